//! Tests of promise 6 in the queue: a call behind a server that does not reply ends at its own deadline.

use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Key, Limiter, OnError, Rule, rate_limited};

use super::{BatchFixture, CallFuture};
use crate::deadlines::{DEADLINE, eventually};
use crate::support::{builder_for, key, limit, poll_once, wait_until_received};

/// The result of an annotated function: an error if it was not decided in time.
type FunctionResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[rate_limited(key = "short:{n}", name = "short", limit = "4/10s", on_error = raise)]
async fn short(n: usize) -> FunctionResult {
    Ok(())
}

#[rate_limited(key = "middle:{n}", name = "middle", limit = "4/10s", on_error = raise)]
async fn middle(n: usize) -> FunctionResult {
    Ok(())
}

#[rate_limited(key = "long:{n}", name = "long", limit = "4/10s", on_error = raise)]
async fn long(n: usize) -> FunctionResult {
    Ok(())
}

/// A function without a rule, which has the limiter's longer deadline.
#[rate_limited(key = "ahead:{n}", limit = "4/10s", on_error = raise)]
async fn ahead(n: usize) -> FunctionResult {
    Ok(())
}

const SHORT_DEADLINE: Duration = Duration::from_millis(60);
const MIDDLE_DEADLINE: Duration = Duration::from_millis(180);
/// A deadline that no test waits for.
const LONG_DEADLINE_OF_RULE: Duration = Duration::from_secs(30);
/// The limiter's own deadline, during which its server may be silent.
const LIMITER_DEADLINE: Duration = Duration::from_secs(60);

impl BatchFixture {
    /// Creates a fixture with the real clock and a rule for each deadline.
    async fn with_rules() -> Self {
        let fixture = Self::new().await;
        let builder =
            builder_for(&fixture.server).url(fixture.proxy.url()).deadline(LIMITER_DEADLINE).on_error(OnError::Raise);
        let builder = builder
            .rule("short", Rule::new().deadline(SHORT_DEADLINE))
            .rule("middle", Rule::new().deadline(MIDDLE_DEADLINE));
        let limiter = builder
            .rule("long", Rule::new().deadline(LONG_DEADLINE_OF_RULE))
            .connect()
            .await
            .expect("the server is there");
        Self { limiter, ..fixture }
    }
}

/// Calls the function of this name, and returns its result and duration.
fn timed(limiter: &Limiter, name: &str, n: usize) -> CallFuture<'static, (FunctionResult, Duration)> {
    let limiter = limiter.clone();
    let begun = Instant::now();
    match name {
        "short" => Box::pin(async move { (limiter.scope(short(n)).await, begun.elapsed()) }),
        "middle" => Box::pin(async move { (limiter.scope(middle(n)).await, begun.elapsed()) }),
        "ahead" => Box::pin(async move { (limiter.scope(ahead(n)).await, begun.elapsed()) }),
        _ => Box::pin(async move { (limiter.scope(long(n)).await, begun.elapsed()) }),
    }
}

/// Calls with long deadlines come first, so the timer has to be set again for shorter ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_calls_time_out_at_their_own_deadlines() {
    let fixture = BatchFixture::with_rules().await;
    let _line = fixture.queue_calls::<()>(Vec::new()).await;
    let call = |name, n| tokio::spawn(timed(&fixture.limiter, name, n));
    let (mut long, mut others) = (Vec::new(), Vec::new());
    for n in 0..40 {
        long.push(call("long", n));
        others.extend([("middle", MIDDLE_DEADLINE), ("short", SHORT_DEADLINE), ("middle", MIDDLE_DEADLINE)].map(
            |(name, after)| {
                let call = call(name, n);
                (call, after)
            },
        ));
        long.push(call("long", n));
    }
    for (call, after) in others {
        let (result, took) = call.await.expect("ends");
        assert!(result.is_err());
        assert!((after..LONG_DEADLINE_OF_RULE).contains(&took), "{took:?} of {after:?}");
    }
    for call in long {
        assert!(!call.is_finished(), "before its deadline");
        call.abort();
    }
}

#[tokio::test]
async fn late_and_dropped_calls_in_the_queue_are_never_sent() {
    let fixture = BatchFixture::with_rules().await;
    let mut queued = fixture.queue_calls((0..100).map(|n| timed(&fixture.limiter, "short", n)).collect()).await;
    let dropped = poll_once((0..100).map(|n| timed(&fixture.limiter, "long", n)).collect()).await;
    wait_until_received(&fixture.limiter, &fixture.server, fixture.server.script_calls()).await;
    drop(dropped);
    let remaining = poll_once((200..203).map(|n| timed(&fixture.limiter, "long", n)).collect()).await;
    wait_until_received(&fixture.limiter, &fixture.server, fixture.server.script_calls()).await;
    for late in queued.calls.drain(..) {
        assert!(late.await.0.is_err());
    }
    let before = fixture.server.script_calls();
    fixture.release();
    queued.results().await;
    for call in remaining {
        call.await.0.expect("a decision");
    }
    assert_eq!(fixture.server.script_calls(), before + 1);
    assert_eq!(fixture.server.keys_with("10s").len(), 3, "only of the remaining calls");
}

/// A counted failure would consult the standby limiter, whose mirror is full. The store has lost the counter.
#[tokio::test]
async fn dropped_call_in_the_queue_is_not_counted_as_a_failure() {
    let fixture = BatchFixture::new().await;
    let builder =
        builder_for(&fixture.server).url(fixture.proxy.url()).rule("middle", Rule::new().deadline(MIDDLE_DEADLINE));
    let limiter = builder.on_error(OnError::Raise).connect().await.expect("the server is there");
    let fixture = BatchFixture { limiter, ..fixture };
    // `check` has the limiter's deadline, which is longer than the rule's.
    let middle = Key::new("middle:").part(0);
    let take_all = async || {
        for _ in 0..4 {
            let decision = fixture.limiter.check(&middle, &limit("4/10s")).await.expect("answers");
            assert!(decision.is_allowed(), "all of the limit");
        }
    };
    take_all().await;
    fixture.server.command(&["FLUSHALL"]);
    let queued = fixture.queue_calls::<()>(Vec::new()).await;
    let dropped = poll_once(vec![timed(&fixture.limiter, "middle", 0)]).await;
    wait_until_received(&fixture.limiter, &fixture.server, fixture.server.script_calls()).await;
    drop(dropped);
    // Its deadline passes in the queue.
    tokio::time::sleep(MIDDLE_DEADLINE).await;
    fixture.release();
    queued.results().await;
    take_all().await;
}

/// Queued calls have long deadlines, but the server has been silent for a whole deadline, so they fail at once.
#[tokio::test]
async fn queued_calls_fail_when_the_connection_is_given_up() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let long = Rule::new().deadline(LIMITER_DEADLINE);
    let builder = builder_for(&server).url(proxy.url()).deadline(DEADLINE).rule("long", long).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.hold_replies();
    let before = server.script_calls();
    let mut calls = Vec::new();
    for sent in 1..=4 {
        calls.extend(poll_once(vec![timed(&limiter, "long", calls.len())]).await);
        eventually("sent", async || server.script_calls() == before + sent).await;
    }
    calls.extend(poll_once((4..304).map(|n| timed(&limiter, "long", n)).collect()).await);
    // The last call in the queue, and the first that times out.
    let error = limiter.check(&key("late"), &limit("5/10s")).await.expect_err("no reply");
    assert_eq!(error.kind(), rate_limited::ErrorKind::Timeout);
    for call in calls {
        let (result, took) = call.await;
        assert!(result.is_err() && took < LIMITER_DEADLINE, "after {took:?}");
    }
}

/// The batch's reply arrives between the deadlines of its calls.
#[tokio::test]
async fn late_batch_serves_only_calls_within_their_deadline() {
    let mut fixture = BatchFixture::new().await;
    let rule = |deadline| Rule::new().deadline(deadline).on_error(OnError::Standby);
    let builder = builder_for(&fixture.server)
        .url(fixture.proxy.url())
        .rule("short", rule(SHORT_DEADLINE))
        .rule("long", rule(LONG_DEADLINE_OF_RULE));
    fixture.limiter = builder.connect().await.expect("the server is there");
    let limiter = fixture.limiter.clone();
    fixture.proxy.hold_replies();
    let calls = poll_once(["short", "long"].map(|name| timed(&limiter, name, 0)).into()).await;
    let [short, long] = <[_; 2]>::try_from(calls).ok().expect("two of them");
    eventually("counted by the store", async || fixture.server.keys().len() == 2).await;
    let (result, took) = short.await;
    result.expect("allowed by the standby limiter");
    assert!(took >= SHORT_DEADLINE, "{took:?}");
    fixture.release();
    long.await.0.expect("allowed by the store");
    fixture.server.kill();
    // One of four permits was taken of each key. The store's late reply is not mirrored a second time.
    for name in ["short", "long"] {
        for _ in 0..3 {
            timed(&limiter, name, 0).await.0.expect("fewer than four");
        }
        assert!(timed(&limiter, name, 0).await.0.is_err(), "{name}: a fifth of four");
    }
}
