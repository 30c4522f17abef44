//! Promise 6 in line: who waits behind a server that does not answer is told when its own time is over.

use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Key, Limiter, OnError, Rule, rate_limited};

use super::{Calling, Scene};
use crate::deadlines::{DEADLINE, eventually};
use crate::support::{begun, key, limit, on, script_calls, taken_in};

/// What the functions give: whether they were answered, by which error not, and when.
type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[rate_limited(key = "short:{n}", name = "short", limit = "4/10s", on_error = raise)]
async fn short(n: usize) -> Outcome {
    Ok(())
}

#[rate_limited(key = "middle:{n}", name = "middle", limit = "4/10s", on_error = raise)]
async fn middle(n: usize) -> Outcome {
    Ok(())
}

#[rate_limited(key = "long:{n}", name = "long", limit = "4/10s", on_error = raise)]
async fn long(n: usize) -> Outcome {
    Ok(())
}

/// By the limiter's own deadline, which is longer.
#[rate_limited(key = "ahead:{n}", limit = "4/10s", on_error = raise)]
async fn ahead(n: usize) -> Outcome {
    Ok(())
}

const SHORT: Duration = Duration::from_millis(60);
const MIDDLE: Duration = Duration::from_millis(180);
/// A deadline that no test waits for.
const LONG: Duration = Duration::from_secs(30);
/// The limiter's own: its server may be silent for so long.
const LONGEST: Duration = Duration::from_secs(60);

impl Scene {
    /// With rules of their own deadlines, by the real clock.
    async fn with_rules() -> Self {
        let scene = Self::new().await;
        let builder = on(&scene.server).url(scene.proxy.url()).deadline(LONGEST).on_error(OnError::Raise);
        let builder = builder.rule("short", Rule::new().deadline(SHORT)).rule("middle", Rule::new().deadline(MIDDLE));
        let limiter = builder.rule("long", Rule::new().deadline(LONG)).connect().await.expect("the server is there");
        Self { limiter, ..scene }
    }
}

/// A call of a rule, with how long it took.
fn timed(limiter: &Limiter, name: &str, n: usize) -> Calling<'static, (Outcome, Duration)> {
    let limiter = limiter.clone();
    let begun = Instant::now();
    match name {
        "short" => Box::pin(async move { (limiter.scope(short(n)).await, begun.elapsed()) }),
        "middle" => Box::pin(async move { (limiter.scope(middle(n)).await, begun.elapsed()) }),
        "ahead" => Box::pin(async move { (limiter.scope(ahead(n)).await, begun.elapsed()) }),
        _ => Box::pin(async move { (limiter.scope(long(n)).await, begun.elapsed()) }),
    }
}

/// The longest come first, so that whoever watches has to look again for those that are shorter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_in_line_is_answered_at_its_own_deadline() {
    let scene = Scene::with_rules().await;
    let _line = scene.line_up::<()>(Vec::new()).await;
    let call = |name, n| tokio::spawn(timed(&scene.limiter, name, n));
    let (mut long, mut others) = (Vec::new(), Vec::new());
    for n in 0..40 {
        long.push(call("long", n));
        others.extend([("middle", MIDDLE), ("short", SHORT), ("middle", MIDDLE)].map(|(name, after)| {
            let call = call(name, n);
            (call, after)
        }));
        long.push(call("long", n));
    }
    for (call, after) in others {
        let (outcome, took) = call.await.expect("ends");
        assert!(outcome.is_err());
        assert!((after..LONG).contains(&took), "{took:?} of {after:?}");
    }
    for call in long {
        assert!(!call.is_finished(), "its time is not over");
        call.abort();
    }
}

#[tokio::test]
async fn who_is_late_or_gone_in_line_is_never_sent_and_the_others_are() {
    let scene = Scene::with_rules().await;
    let mut line = scene.line_up((0..100).map(|n| timed(&scene.limiter, "short", n)).collect()).await;
    let gone = begun((0..100).map(|n| timed(&scene.limiter, "long", n)).collect()).await;
    taken_in(&scene.limiter, &scene.server, script_calls(&scene.server)).await;
    drop(gone);
    let stays = begun((200..203).map(|n| timed(&scene.limiter, "long", n)).collect()).await;
    taken_in(&scene.limiter, &scene.server, script_calls(&scene.server)).await;
    for late in line.calls.drain(..) {
        assert!(late.await.0.is_err());
    }
    let before = script_calls(&scene.server);
    scene.release();
    line.answers().await;
    for call in stays {
        call.await.0.expect("a decision");
    }
    assert_eq!(script_calls(&scene.server), before + 1);
    assert_eq!(scene.server.keys_with(":10000").len(), 3, "of nobody else");
}

/// If it had, the stand-in would have a say and give this instance's half of the limit.
#[tokio::test]
async fn who_is_gone_before_it_was_sent_has_not_failed() {
    let scene = Scene::new().await;
    let builder = on(&scene.server).url(scene.proxy.url()).rule("middle", Rule::new().deadline(MIDDLE));
    let limiter = builder.instances(2).on_error(OnError::Raise).connect().await.expect("the server is there");
    let scene = Scene { limiter, ..scene };
    let line = scene.line_up::<()>(Vec::new()).await;
    let gone = begun(vec![timed(&scene.limiter, "middle", 0)]).await;
    taken_in(&scene.limiter, &scene.server, script_calls(&scene.server)).await;
    drop(gone);
    // Its deadline passes in line.
    tokio::time::sleep(MIDDLE).await;
    scene.release();
    line.answers().await;
    // By the limiter's deadline, which is longer than the rule's.
    let middle = Key::new("middle:").part(0);
    for _ in 0..4 {
        let decision = scene.limiter.check(&middle, &limit("4/10s")).await.expect("answers");
        assert!(decision.is_allowed(), "all of the limit");
    }
}

/// Its own time is all that a call in line has; but the server has been silent for a whole deadline, so nobody waits for it.
#[tokio::test]
async fn a_line_ends_when_the_server_is_given_up() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let long = Rule::new().deadline(LONGEST);
    let builder = on(&server).url(proxy.url()).deadline(DEADLINE).rule("long", long).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.hold_replies();
    let before = script_calls(&server);
    let mut calls = Vec::new();
    for sent in 1..=4 {
        calls.extend(begun(vec![timed(&limiter, "long", calls.len())]).await);
        eventually("sent", async || script_calls(&server) == before + sent).await;
    }
    calls.extend(begun((4..304).map(|n| timed(&limiter, "long", n)).collect()).await);
    // Behind all of them, and the first that is late.
    let error = limiter.check(&key("late"), &limit("5/10s")).await.expect_err("nobody answers");
    assert_eq!(error.kind(), rate_limited::ErrorKind::Timeout);
    for call in calls {
        let (outcome, took) = call.await;
        assert!(outcome.is_err() && took < LONGEST, "after {took:?}");
    }
}

/// The answer to all of them comes between the deadlines of some and of others.
#[tokio::test]
async fn a_group_is_waited_for_by_those_who_have_time_and_is_nothing_to_the_others() {
    let mut scene = Scene::new().await;
    let rule = |deadline| Rule::new().deadline(deadline).on_error(OnError::Standby);
    let builder = on(&scene.server).url(scene.proxy.url()).rule("short", rule(SHORT)).rule("long", rule(LONG));
    scene.limiter = builder.connect().await.expect("the server is there");
    let limiter = scene.limiter.clone();
    scene.proxy.hold_replies();
    let calls = begun(["short", "long"].map(|name| timed(&limiter, name, 0)).into()).await;
    let [short, long] = <[_; 2]>::try_from(calls).ok().expect("two of them");
    eventually("taken by the store", async || scene.server.keys().len() == 2).await;
    let (outcome, took) = short.await;
    outcome.expect("allowed by the stand-in");
    assert!(took >= SHORT, "{took:?}");
    scene.release();
    long.await.0.expect("allowed by the store");
    scene.server.kill();
    // One of four was taken of each: what the store said too late is not taken from the stand-in again.
    for name in ["short", "long"] {
        for _ in 0..3 {
            timed(&limiter, name, 0).await.0.expect("one of four");
        }
        assert!(timed(&limiter, name, 0).await.0.is_err(), "{name}: a fifth of four");
    }
}
