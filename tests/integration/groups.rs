//! Calls that go to the server together: what each is told, and what one does to the others.

use std::pin::Pin;
use std::time::Duration;

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Decision, Denied, Error, ErrorKind, Limit, Limiter, ManualClock, OnError};

use crate::deadlines::eventually;
use crate::support::{begun, key, limit, on, script_calls, taken_in};

mod agreement;
mod deadlines;
mod failures;
mod histories;

/// A server, a network that can hold its replies back, and a limiter on them by a clock that stands still.
struct Scene {
    server: RedisServer,
    proxy: Proxy,
    limiter: Limiter,
    clock: ManualClock,
}

/// What a call was told.
type Told = Result<Decision, Error>;

/// A limiter's key, its limit, and a cost.
type Ask<'a> = (&'a str, &'a str, u32);

/// Script calls that each group waits behind.
const AHEAD: u64 = 4;

impl Scene {
    async fn new() -> Self {
        Self::on(RedisServer::start()).await
    }

    async fn on(server: RedisServer) -> Self {
        let clock = ManualClock::new();
        let proxy = Proxy::start(&server);
        let builder = on(&server).url(proxy.url()).prefix("rl").clock(clock.clone()).on_error(OnError::Raise);
        Self { limiter: builder.connect().await.expect("the server is there"), server, proxy, clock }
    }

    /// Holds the server's replies back, lets a few calls wait for theirs, and these behind them: they line up, in this order.
    async fn line_up<'a, T>(&self, calls: Vec<Calling<'a, T>>) -> Line<'a, T> {
        let ahead = vec![("ahead", "1000000/1h", 1); 4];
        self.line_up_behind(&ahead, calls).await
    }

    /// The same, behind calls that the test chooses. Each goes alone.
    async fn line_up_behind<'a, T>(&self, ahead: &[Ask<'_>], calls: Vec<Calling<'a, T>>) -> Line<'a, T> {
        self.proxy.hold_replies();
        let mut sent = script_calls(&self.server);
        let mut line = Line { ahead: Vec::new(), calls: Vec::new() };
        for ask in ahead {
            line.ahead.extend(begun(vec![self.limiter.clone().asking(*ask)]).await);
            sent += 1;
            eventually("sent", async || script_calls(&self.server) == sent).await;
        }
        line.calls = begun(calls).await;
        taken_in(&self.limiter, &self.server, sent).await;
        line
    }

    /// Lets the replies through that were held back.
    fn release(&self) {
        self.proxy.pass();
    }

    /// What calls are told that go together, and how many script calls that took.
    async fn together(&mut self, asks: &[Ask<'_>]) -> (Vec<Told>, u64) {
        let line = self.line_up(asks.iter().map(|ask| self.limiter.clone().asking(*ask)).collect()).await;
        let before = script_calls(&self.server);
        self.release();
        let told = line.answers().await;
        (told, script_calls(&self.server) - before)
    }

    async fn decided(&mut self, asks: &[Ask<'_>]) -> Vec<Decision> {
        self.together(asks).await.0.into_iter().map(|told| told.expect("a decision")).collect()
    }
}

type Calling<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Calls under way, and those behind them.
struct Line<'a, T> {
    ahead: Vec<Calling<'static, Told>>,
    calls: Vec<Calling<'a, T>>,
}

impl<T> Line<'_, T> {
    async fn answers(self) -> Vec<T> {
        for call in self.ahead {
            // How it went is not what is asked here.
            let _ = call.await;
        }
        let mut answers = Vec::new();
        for call in self.calls {
            answers.push(call.await);
        }
        answers
    }
}

trait Asking {
    fn asking(self, ask: Ask<'_>) -> Calling<'static, Told>;
}

impl Asking for Limiter {
    fn asking(self, (name, text, cost): Ask<'_>) -> Calling<'static, Told> {
        let (key, limit) = (key(name), limit(text));
        Box::pin(async move { self.check_n(&key, &limit, cost).await })
    }
}

fn remaining(decisions: &[Decision]) -> Vec<(bool, u32)> {
    decisions.iter().map(|decision| (decision.is_allowed(), decision.remaining())).collect()
}

fn denied(decision: &Decision) -> Denied {
    decision.clone().into_result().expect_err("a denial")
}

fn kinds(told: &[Told]) -> Vec<Option<ErrorKind>> {
    told.iter().map(|told| told.as_ref().err().map(Error::kind)).collect()
}

#[tokio::test]
async fn a_lone_call_goes_alone_and_at_once() {
    let scene = Scene::new().await;
    let before = script_calls(&scene.server);
    for call in 1..=20 {
        assert!(scene.limiter.clone().asking(("a", "100/10s", 1)).await.is_ok());
        assert_eq!(script_calls(&scene.server), before + call);
    }
}

/// Nobody waits for company: the first four leave although nothing comes back, and only then others wait.
#[tokio::test]
async fn a_few_calls_are_under_way_before_others_wait() {
    let Scene { server, proxy, limiter, .. } = Scene::new().await;
    proxy.hold_replies();
    let before = script_calls(&server);
    let mut calls = Vec::new();
    for sent in 1..=AHEAD {
        calls.extend(begun(vec![limiter.clone().asking(("a", "5/10s", 1))]).await);
        eventually("sent", async || script_calls(&server) == before + sent).await;
    }
    calls.extend(begun(vec![limiter.clone().asking(("a", "5/10s", 1))]).await);
    // Calls of another kind are no such company: this look goes past the one that waits.
    taken_in(&limiter, &server, before + AHEAD).await;
    assert_eq!(script_calls(&server), before + AHEAD + 1);
}

#[tokio::test]
async fn many_keys_go_in_one_script_call() {
    let mut scene = Scene::new().await;
    let names: Vec<_> = (0..128).map(|name| name.to_string()).collect();
    let asks: Vec<_> = names.iter().map(|name| (&**name, "5/10s", 1)).collect();
    for round in 1..=2 {
        let (told, calls) = scene.together(&asks).await;
        assert_eq!(calls, 1);
        assert!(told.iter().all(|told| matches!(told, Ok(Decision::Allowed(now)) if now.remaining() == 5 - round)));
    }
    assert_eq!(scene.server.keys().len(), 128 + 1, "and what went ahead");
    for name in scene.server.keys_with(":10000") {
        assert!((1..=10_501).contains(&scene.server.pttl(&name)), "{name} expires");
    }
}

#[tokio::test]
async fn a_group_has_a_most_and_who_finds_no_room_is_next() {
    let mut scene = Scene::new().await;
    let names: Vec<_> = (0..300).map(|name| name.to_string()).collect();
    let asks: Vec<_> = names.iter().map(|name| (&**name, "5/10s", 1)).collect();
    let (told, calls) = scene.together(&asks).await;
    assert_eq!(calls, 3);
    assert!(told.iter().all(|told| matches!(told, Ok(Decision::Allowed(now)) if now.remaining() == 4)));
}

/// Two groups leave one after the other: what finds no room in the first is not behind what finds none in the second.
#[tokio::test]
async fn who_comes_first_is_served_first_however_long_the_line() {
    let mut scene = Scene::new().await;
    let names: Vec<_> = (0..1_300).map(|name| name.to_string()).collect();
    let mut asks: Vec<_> = names.iter().map(|name| (&**name, "1/10s", 1)).collect();
    for (late, early) in [(1_030, 500), (1_200, 900), (1_290, 130)] {
        asks[late].0 = &names[early];
    }
    let told = scene.decided(&asks).await;
    let denied: Vec<_> = (0..told.len()).filter(|place| told[*place].is_denied()).collect();
    assert_eq!(denied, [1_030, 1_200, 1_290]);
}

#[tokio::test]
async fn calls_of_one_kind_are_granted_one_by_one_and_those_left_over_know_when() {
    let mut scene = Scene::new().await;
    let (told, calls) = scene.together(&[("a", "20/10s", 1); 50]).await;
    let told: Vec<_> = told.into_iter().map(|told| told.expect("a decision")).collect();
    assert_eq!(calls, 1);
    let granted: Vec<_> = (0..20).rev().map(|left| (true, left)).collect();
    assert_eq!(remaining(&told), [granted, vec![(false, 0); 30]].concat());
    for left_over in &told[20..] {
        assert_eq!(denied(left_over).retry_after(), Duration::from_secs(10));
        assert_eq!(denied(left_over).reset_after(), Duration::from_secs(10));
    }
}

/// Seven of twenty are back after 7 s: time enough for two calls of three.
#[tokio::test]
async fn only_whole_calls_are_granted() {
    let mut scene = Scene::new().await;
    assert_eq!(remaining(&scene.decided(&[("a", "20/10s", 7)]).await), [(true, 13)]);
    scene.clock.advance(Duration::from_secs(3));
    let told = scene.decided(&[("a", "20/10s", 3); 6]).await;
    assert_eq!(remaining(&told), [(true, 10), (true, 7), (true, 4), (true, 1), (false, 1), (false, 1)]);
    assert_eq!(denied(&told[5]).retry_after(), Duration::from_secs(7));
    scene.clock.advance(Duration::from_millis(6_999));
    assert_eq!(remaining(&scene.decided(&[("a", "20/10s", 3); 2]).await), [(false, 1); 2]);
    scene.clock.advance(Duration::from_millis(1));
    let told = scene.decided(&[("a", "20/10s", 3); 4]).await;
    assert_eq!(remaining(&told), [(true, 5), (true, 2), (false, 2), (false, 2)]);
    assert_eq!(denied(&told[3]).retry_after(), Duration::from_secs(3));
}

#[tokio::test]
async fn different_limits_and_costs_of_one_key_are_decided_in_order() {
    let mut scene = Scene::new().await;
    let asks = [
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
    let (told, calls) = scene.together(&asks).await;
    let told: Vec<_> = told.into_iter().map(|told| told.expect("a decision")).collect();
    assert_eq!(calls, 1);
    let expected =
        [(true, 3), (true, 0), (true, 1), (false, 0), (true, 0), (false, 0), (true, 2), (false, 2), (true, 0)];
    assert_eq!(remaining(&told), expected);
    assert!(denied(&told[5]).is_final(), "more than the limit ever holds");
    assert_eq!(denied(&told[7]).retry_after(), Duration::from_secs(10));
}

/// Looks, refunds and resets do not wait in line; all see one count.
#[tokio::test]
async fn calls_of_other_kinds_go_past_a_line() {
    let mut scene = Scene::new().await;
    let limiter = scene.limiter.clone();
    let five = limit("5/10s");
    let taken = scene.decided(&[("refunded", "5/10s", 2), ("reset", "5/10s", 5), ("both", "5/10s", 1)]).await;
    let receipt = taken[0].clone().into_result().expect("allowed");
    let asks = [("refunded", "5/10s", 1), ("reset", "5/10s", 1), ("both", "5/10s", 4), ("both", "5/10s", 4)];
    let line = scene.line_up(asks.map(|ask| limiter.clone().asking(ask)).into()).await;
    let others = async {
        let (both, other) = (key("both"), key("other"));
        let asked = [(&both, &five, 1), (&other, &five, 1)];
        let (all, peeked) = tokio::join!(limiter.check_all(&asked), limiter.peek(&both, &five));
        (all.expect("a decision").remaining(), peeked.expect("a decision").remaining())
    };
    let before = script_calls(&scene.server);
    let release = async {
        eventually("past the line", async || script_calls(&scene.server) == before + 4).await;
        scene.release();
    };
    let reset = key("reset");
    let (all, refunded, forgotten, ()) =
        tokio::join!(others, limiter.refund(&receipt), limiter.reset(&reset, &five), release);
    assert_eq!(all, (3, 3), "before those in the line");
    assert!(refunded.is_ok() && forgotten.is_ok());
    let told: Vec<_> = line.answers().await.into_iter().map(|told| told.expect("a decision")).collect();
    assert_eq!(remaining(&told), [(true, 4), (true, 4), (false, 3), (false, 3)]);
}

/// Limits are arguments here too: one that changes from call to call.
#[tokio::test]
async fn a_burst_of_two_limiters_is_one_count() {
    let scene = Scene::new().await;
    let builder = on(&scene.server).url(scene.proxy.url()).prefix("rl").clock(scene.clock.clone());
    let other = builder.connect().await.expect("the server is there");
    let mut calls: Vec<_> = (0..30).map(|_| scene.limiter.clone().asking(("a", "25/10s", 1))).collect();
    calls.extend((0..30).map(|_| other.clone().asking(("a", "25/10s", 1))));
    let line = scene.line_up(calls).await;
    scene.release();
    let told: Vec<_> = line.answers().await.into_iter().map(|told| told.expect("a decision")).collect();
    let mut left: Vec<_> = told.iter().filter(|told| told.is_allowed()).map(Decision::remaining).collect();
    left.sort_unstable();
    assert_eq!(left, (0..25).collect::<Vec<_>>());
}

/// Limits of one text are one: the kind of a call has a limit's every part in it.
#[tokio::test]
async fn limits_that_differ_in_burst_alone_are_not_one_kind() {
    let scene = Scene::new().await;
    let bucket = |burst| {
        let limit = limit("5/10s").with_algorithm(rate_limited::Algorithm::TokenBucket);
        Limit::with_burst(limit, burst).expect("a burst")
    };
    let calls = [2, 4, 2, 4].map(|burst| -> Calling<'static, Told> {
        let (limiter, limit) = (scene.limiter.clone(), bucket(burst));
        Box::pin(async move { limiter.check(&key("a"), &limit).await })
    });
    let line = scene.line_up(calls.into()).await;
    scene.release();
    let told: Vec<_> = line.answers().await.into_iter().map(|told| told.expect("a decision")).collect();
    // Two of a burst of two, then two of one of four.
    assert_eq!(remaining(&told), [(true, 1), (true, 1), (true, 0), (true, 0)]);
}
