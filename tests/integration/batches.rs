//! Tests of batches: the decision that each call gets, and the effect of calls on each other.

use std::pin::Pin;
use std::time::Duration;

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Decision, Denied, Error, ErrorKind, Limit, Limiter, ManualClock, OnError};

use crate::deadlines::eventually;
use crate::support::{
    builder_for, key, limit, longest_ttl, poll_once, unpacked_limit, wait_until_quick, wait_until_received,
};

mod agreement;
mod deadlines;
mod failures;
mod histories;
mod round_trips;

/// A server behind a proxy that can hold back replies, and a limiter with a manual clock.
struct BatchFixture {
    server: RedisServer,
    proxy: Proxy,
    limiter: Limiter,
    clock: ManualClock,
    /// Reads the limit of a call.
    limit: fn(&str) -> Limit,
}

/// The result of a call.
type CallResult = Result<Decision, Error>;

/// A call: its key, limit and cost.
type CallSpec<'a> = (&'a str, &'a str, u32);

/// The number of batches in flight above which further calls wait in the queue.
const MAX_IN_FLIGHT_BATCHES: u64 = 4;

impl BatchFixture {
    async fn new() -> Self {
        Self::with_server(RedisServer::start()).await
    }

    async fn with_server(server: RedisServer) -> Self {
        let clock = ManualClock::new();
        let proxy = Proxy::start(&server);
        let builder = builder_for(&server).url(proxy.url()).prefix("rl").clock(clock.clone()).on_error(OnError::Raise);
        Self { limiter: builder.connect().await.expect("the server is there"), server, proxy, clock, limit }
    }

    /// Returns the fixture with calls whose counts always have keys of their own.
    fn unpacked(self) -> Self {
        Self { limit: unpacked_limit, ..self }
    }

    fn start_call(&self, spec: CallSpec<'_>) -> CallFuture<'static, CallResult> {
        start_call(self.limiter.clone(), spec, self.limit)
    }

    /// Holds back the server's replies, so that a few calls are in flight and `calls` wait in the queue in this order.
    async fn queue_calls<'a, T>(&self, calls: Vec<CallFuture<'a, T>>) -> QueuedCalls<'a, T> {
        let ahead = vec![("ahead", "1000000/1h", 1); 4];
        self.queue_calls_behind(&ahead, calls).await
    }

    /// Queues `calls` behind the calls in `ahead`, which are sent one per batch.
    async fn queue_calls_behind<'a, T>(
        &self,
        ahead: &[CallSpec<'_>],
        calls: Vec<CallFuture<'a, T>>,
    ) -> QueuedCalls<'a, T> {
        wait_until_quick(&self.limiter).await;
        self.proxy.hold_replies();
        let mut sent = self.server.script_calls();
        let mut queued = QueuedCalls { ahead: Vec::new(), calls: Vec::new() };
        for spec in ahead {
            queued.ahead.extend(poll_once(vec![self.start_call(*spec)]).await);
            sent += 1;
            eventually("sent", async || self.server.script_calls() == sent).await;
        }
        queued.calls = poll_once(calls).await;
        wait_until_received(&self.limiter, &self.server, sent).await;
        queued
    }

    /// Releases the replies that were held back.
    fn release(&self) {
        self.proxy.pass();
    }

    /// Sends calls in as few batches as possible. Returns their results and the number of script calls.
    async fn send_batch(&mut self, specs: &[CallSpec<'_>]) -> (Vec<CallResult>, u64) {
        let queued = self.queue_calls(specs.iter().map(|spec| self.start_call(*spec)).collect()).await;
        let before = self.server.script_calls();
        self.release();
        let results = queued.results().await;
        (results, self.server.script_calls() - before)
    }

    async fn decide_batch(&mut self, specs: &[CallSpec<'_>]) -> Vec<Decision> {
        self.send_batch(specs).await.0.into_iter().map(|result| result.expect("a decision")).collect()
    }
}

type CallFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Calls in flight, and the calls queued behind them.
struct QueuedCalls<'a, T> {
    ahead: Vec<CallFuture<'static, CallResult>>,
    calls: Vec<CallFuture<'a, T>>,
}

impl<T> QueuedCalls<'_, T> {
    async fn results(self) -> Vec<T> {
        for call in self.ahead {
            // These results do not matter.
            let _ = call.await;
        }
        let mut results = Vec::new();
        for call in self.calls {
            results.push(call.await);
        }
        results
    }
}

/// Starts calls that are given by a [`CallSpec`].
trait StartCall {
    fn start_call(self, spec: CallSpec<'_>) -> CallFuture<'static, CallResult>;
}

impl StartCall for Limiter {
    fn start_call(self, spec: CallSpec<'_>) -> CallFuture<'static, CallResult> {
        start_call(self, spec, limit)
    }
}

fn start_call(
    limiter: Limiter,
    (name, text, cost): CallSpec<'_>,
    limit: fn(&str) -> Limit,
) -> CallFuture<'static, CallResult> {
    let (key, limit) = (key(name), limit(text));
    Box::pin(async move { limiter.check_n(&key, &limit, cost).await })
}

fn remaining(decisions: &[Decision]) -> Vec<(bool, u32)> {
    decisions.iter().map(|decision| (decision.is_allowed(), decision.remaining())).collect()
}

fn denied(decision: &Decision) -> Denied {
    decision.clone().into_result().expect_err("a denial")
}

fn error_kinds(results: &[CallResult]) -> Vec<Option<ErrorKind>> {
    results.iter().map(|result| result.as_ref().err().map(Error::kind)).collect()
}

#[tokio::test]
async fn single_calls_are_sent_at_once() {
    let fixture = BatchFixture::new().await;
    let before = fixture.server.script_calls();
    for call in 1..=20 {
        assert!(fixture.limiter.clone().start_call(("a", "100/10s", 1)).await.is_ok());
        assert_eq!(fixture.server.script_calls(), before + call);
    }
}

/// Batches are never delayed to fill: four calls are sent although no reply arrives, and only then calls queue.
#[tokio::test]
async fn four_batches_are_in_flight_before_calls_queue() {
    let BatchFixture { server, proxy, limiter, .. } = BatchFixture::new().await;
    wait_until_quick(&limiter).await;
    proxy.hold_replies();
    let before = server.script_calls();
    let mut calls = Vec::new();
    for sent in 1..=MAX_IN_FLIGHT_BATCHES {
        calls.extend(poll_once(vec![limiter.clone().start_call(("a", "5/10s", 1))]).await);
        eventually("sent", async || server.script_calls() == before + sent).await;
    }
    calls.extend(poll_once(vec![limiter.clone().start_call(("a", "5/10s", 1))]).await);
    // A peek does not wait in the queue, so it overtakes the waiting call.
    wait_until_received(&limiter, &server, before + MAX_IN_FLIGHT_BATCHES).await;
    assert_eq!(server.script_calls(), before + MAX_IN_FLIGHT_BATCHES + 1);
}

#[tokio::test]
async fn many_keys_share_one_script_call() {
    let mut fixture = BatchFixture::new().await;
    let names: Vec<_> = (0..128).map(|name| name.to_string()).collect();
    let specs: Vec<_> = names.iter().map(|name| (&**name, "5/10s", 1)).collect();
    for round in 1..=2 {
        let (results, calls) = fixture.send_batch(&specs).await;
        assert_eq!(calls, 1);
        assert!(
            results.iter().all(|result| matches!(result, Ok(Decision::Allowed(now)) if now.remaining() == 5 - round))
        );
    }
    assert_eq!(fixture.server.keys().len(), 128 + 1, "and the key of the calls in flight");
    for name in fixture.server.keys_with("10s") {
        assert!((1..=longest_ttl(10_601)).contains(&fixture.server.pttl(&name)), "{name} expires");
    }
}

#[tokio::test]
async fn calls_beyond_a_full_batch_go_in_the_next() {
    let mut fixture = BatchFixture::new().await;
    let names: Vec<_> = (0..300).map(|name| name.to_string()).collect();
    let specs: Vec<_> = names.iter().map(|name| (&**name, "5/10s", 1)).collect();
    let (results, calls) = fixture.send_batch(&specs).await;
    assert_eq!(calls, 3);
    assert!(results.iter().all(|result| matches!(result, Ok(Decision::Allowed(now)) if now.remaining() == 4)));
}

/// Several batches are sent one after the other. A call that does not fit into one is in the next, before later calls.
#[tokio::test]
async fn calls_are_decided_in_order_across_batches() {
    let mut fixture = BatchFixture::new().await;
    let names: Vec<_> = (0..1_300).map(|name| name.to_string()).collect();
    let mut specs: Vec<_> = names.iter().map(|name| (&**name, "1/10s", 1)).collect();
    for (late, early) in [(1_030, 500), (1_200, 900), (1_290, 130)] {
        specs[late].0 = &names[early];
    }
    let decisions = fixture.decide_batch(&specs).await;
    let denied: Vec<_> = (0..decisions.len()).filter(|index| decisions[*index].is_denied()).collect();
    assert_eq!(denied, [1_030, 1_200, 1_290]);
}

#[tokio::test]
async fn identical_calls_are_granted_one_by_one_and_the_rest_get_retry_after() {
    let mut fixture = BatchFixture::new().await;
    let (results, calls) = fixture.send_batch(&[("a", "20/10s", 1); 50]).await;
    let decisions: Vec<_> = results.into_iter().map(|result| result.expect("a decision")).collect();
    assert_eq!(calls, 1);
    let granted: Vec<_> = (0..20).rev().map(|left| (true, left)).collect();
    assert_eq!(remaining(&decisions), [granted, vec![(false, 0); 30]].concat());
    for denied_decision in &decisions[20..] {
        assert_eq!(denied(denied_decision).retry_after(), Duration::from_secs(10));
        assert_eq!(denied(denied_decision).reset_after(), Duration::from_secs(10));
    }
}

/// Seven of twenty permits are back after 7 s, which is room for two calls of cost three.
#[tokio::test]
async fn calls_are_granted_in_full_or_denied() {
    let mut fixture = BatchFixture::new().await;
    assert_eq!(remaining(&fixture.decide_batch(&[("a", "20/10s", 7)]).await), [(true, 13)]);
    fixture.clock.advance(Duration::from_secs(3));
    let decisions = fixture.decide_batch(&[("a", "20/10s", 3); 6]).await;
    assert_eq!(remaining(&decisions), [(true, 10), (true, 7), (true, 4), (true, 1), (false, 1), (false, 1)]);
    assert_eq!(denied(&decisions[5]).retry_after(), Duration::from_secs(7));
    fixture.clock.advance(Duration::from_millis(6_999));
    assert_eq!(remaining(&fixture.decide_batch(&[("a", "20/10s", 3); 2]).await), [(false, 1); 2]);
    fixture.clock.advance(Duration::from_millis(1));
    let decisions = fixture.decide_batch(&[("a", "20/10s", 3); 4]).await;
    assert_eq!(remaining(&decisions), [(true, 5), (true, 2), (false, 2), (false, 2)]);
    assert_eq!(denied(&decisions[3]).retry_after(), Duration::from_secs(3));
}

#[tokio::test]
async fn different_limits_and_costs_of_one_key_are_decided_in_order() {
    let mut fixture = BatchFixture::new().await;
    let specs = [
        ("a", "5/10s", 2),
        ("a", "3/10s", 1),
        ("a", "5/10s", 1),
        ("a", "4/10s", 1),
        ("a", "10/10s", 6),
        ("a", "10/10s", 11),
        ("a", "12/10s", 0),
        ("a", "12/10s", 3),
        ("a", "12/10s", 2),
    ];
    let (results, calls) = fixture.send_batch(&specs).await;
    let decisions: Vec<_> = results.into_iter().map(|result| result.expect("a decision")).collect();
    assert_eq!(calls, 1);
    let expected =
        [(true, 3), (true, 0), (true, 1), (false, 0), (true, 0), (false, 0), (true, 2), (false, 2), (true, 0)];
    assert_eq!(remaining(&decisions), expected);
    assert!(denied(&decisions[5]).is_final(), "more than the limit ever holds");
    assert_eq!(denied(&decisions[7]).retry_after(), Duration::from_secs(10));
}

/// Peeks, refunds, resets and decisions over several limits do not wait in the queue. All use the same counters.
#[tokio::test]
async fn unbatched_calls_overtake_queued_calls() {
    let mut fixture = BatchFixture::new().await;
    let limiter = fixture.limiter.clone();
    let five = limit("5/10s");
    let taken = fixture.decide_batch(&[("refunded", "5/10s", 2), ("reset", "5/10s", 5), ("both", "5/10s", 1)]).await;
    let receipt = taken[0].clone().into_result().expect("allowed");
    let specs = [("refunded", "5/10s", 1), ("reset", "5/10s", 1), ("both", "5/10s", 4), ("both", "5/10s", 4)];
    let queued = fixture.queue_calls(specs.map(|spec| limiter.clone().start_call(spec)).into()).await;
    let others = async {
        let (both, other) = (key("both"), key("other"));
        let requests = [(&both, &five, 1), (&other, &five, 1)];
        let (all, peeked) = tokio::join!(limiter.check_all(&requests), limiter.peek(&both, &five));
        (all.expect("a decision").remaining(), peeked.expect("a decision").remaining())
    };
    let before = fixture.server.script_calls();
    let release = async {
        eventually("ahead of the queue", async || fixture.server.script_calls() == before + 4).await;
        fixture.release();
    };
    let reset = key("reset");
    let (all, refunded, reset_result, ()) =
        tokio::join!(others, limiter.refund(&receipt), limiter.reset(&reset, &five), release);
    assert_eq!(all, (3, 3), "before the queued calls");
    assert!(refunded.is_ok() && reset_result.is_ok());
    let decisions: Vec<_> = queued.results().await.into_iter().map(|result| result.expect("a decision")).collect();
    assert_eq!(remaining(&decisions), [(true, 4), (true, 4), (false, 3), (false, 3)]);
}

/// Two limiters send bursts on one key, and the limit holds over both.
#[tokio::test]
async fn bursts_of_two_limiters_share_one_counter() {
    let fixture = BatchFixture::new().await;
    let builder = builder_for(&fixture.server).url(fixture.proxy.url()).prefix("rl").clock(fixture.clock.clone());
    let other = builder.connect().await.expect("the server is there");
    let mut calls: Vec<_> = (0..30).map(|_| fixture.limiter.clone().start_call(("a", "25/10s", 1))).collect();
    calls.extend((0..30).map(|_| other.clone().start_call(("a", "25/10s", 1))));
    let queued = fixture.queue_calls(calls).await;
    fixture.release();
    let decisions: Vec<_> = queued.results().await.into_iter().map(|result| result.expect("a decision")).collect();
    let mut left: Vec<_> = decisions.iter().filter(|decision| decision.is_allowed()).map(Decision::remaining).collect();
    left.sort_unstable();
    assert_eq!(left, (0..25).collect::<Vec<_>>());
}

/// Identical calls are merged, and calls are identical only if every field of their limits is.
#[tokio::test]
async fn limits_that_differ_only_in_burst_are_not_merged() {
    let fixture = BatchFixture::new().await;
    let bucket = |burst| {
        let limit = limit("5/10s").with_algorithm(rate_limited::Algorithm::TokenBucket);
        Limit::with_burst(limit, burst).expect("a burst")
    };
    let calls = [2, 4, 2, 4].map(|burst| -> CallFuture<'static, CallResult> {
        let (limiter, limit) = (fixture.limiter.clone(), bucket(burst));
        Box::pin(async move { limiter.check(&key("a"), &limit).await })
    });
    let queued = fixture.queue_calls(calls.into()).await;
    fixture.release();
    let decisions: Vec<_> = queued.results().await.into_iter().map(|result| result.expect("a decision")).collect();
    // Two calls with a burst of two, then two with a burst of four.
    assert_eq!(remaining(&decisions), [(true, 1), (true, 1), (true, 0), (true, 0)]);
}

/// Callers read the replies to most of these calls themselves.
#[tokio::test]
async fn lone_calls_can_be_refunded() {
    let builder = builder_for(RedisServer::shared()).on_error(OnError::Raise).busy_poll(Duration::from_millis(1));
    let limiter = builder.connect().await.expect("the server is there");
    let (key, limit) = (key("refunded"), limit("1000/1h"));
    let take = async || limiter.check(&key, &limit).await.expect("a reply").into_result().expect("permits are left");
    let mut taken = 0;
    for _ in 0..5 {
        let mut last = take().await;
        for _ in 0..40 {
            last = take().await;
        }
        taken += 41;
        assert_eq!(last.remaining(), 1000 - taken);
        limiter.refund(&last).await.expect("a reply");
        taken -= 1;
    }
}
