//! The leaky bucket as a queue: a call is given its turn in one round trip and waits for exactly that.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Limit, Limiter, ManualClock, Source};

use super::{LeakyBucket, counted, denied};
use crate::deadlines::eventually;
use crate::support::{AMPLE, Subject, key, on, script_calls};

macro_rules! on_both_stores {
    ($($test:ident),+ $(,)?) => {
        mod memory { $(#[tokio::test] async fn $test() { super::$test(crate::support::Subject::memory().await).await; })+ }
        mod redis { $(#[tokio::test] async fn $test() { super::$test(crate::support::Subject::redis().await).await; })+ }
    };
}

on_both_stores! {
    turns_come_one_at_a_time,
    who_cannot_be_served_in_time_is_denied_at_once,
    the_queue_holds_burst,
    a_cancelled_waiter_loses_its_turn,
    a_call_of_cost_above_burst_never_waits,
    only_the_last_turn_can_be_given_back,
}

fn one_a_second() -> Limit {
    counted("10/10s", LeakyBucket).with_burst(3).expect("a bucket")
}

/// A call that waits for its turn, polled by hand.
pub(crate) struct Waiting {
    call: Pin<Box<dyn Future<Output = bool> + Send>>,
    allowed: Option<bool>,
}

impl Waiting {
    /// Begins a call, and returns once it has been given its turn or has been refused.
    pub(crate) async fn begin(limiter: &Limiter, limit: Limit, max_wait: Duration) -> Self {
        let asking = limiter.clone();
        let call =
            Box::pin(
                async move { asking.wait(&key("a"), &limit, max_wait).await.expect("the store answers").is_allowed() },
            );
        let mut waiting = Self { call, allowed: None };
        waiting.is_over();
        // The store answers in the order in which it is asked.
        let _ = limiter.peek(&key("behind"), &limit).await.expect("the store answers");
        waiting.is_over();
        waiting
    }

    /// Polls it, unless it has ended before.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.allowed.is_none() {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(allowed) = self.call.as_mut().poll(&mut context) {
                self.allowed = Some(allowed);
            }
        }
        self.allowed.is_some()
    }

    /// Waits until it has ended, and returns whether it was allowed.
    pub(crate) async fn await_turn(self) -> bool {
        match self.allowed {
            Some(allowed) => allowed,
            None => self.call.await,
        }
    }
}

async fn turns_come_one_at_a_time(subject: Subject) {
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(Waiting::begin(&subject.limiter, one_a_second(), Duration::from_secs(10)).await);
    }
    for (turn, mut call) in calls.into_iter().enumerate() {
        if turn > 0 {
            subject.advance_millis(999);
            assert!(!call.is_over(), "turn {turn} came 1 ms early");
            subject.advance_millis(1);
        }
        assert!(call.await_turn().await, "turn {turn}");
    }
}

async fn who_cannot_be_served_in_time_is_denied_at_once(subject: Subject) {
    let (limiter, limit) = (&subject.limiter, one_a_second());
    assert!(limiter.check(&key("a"), &limit).await.expect("answers").is_allowed());
    let refused = denied(limiter.check(&key("a"), &limit).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(1));
    let refused = denied(limiter.wait(&key("a"), &limit, Duration::from_millis(999)).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(1));
    let mut call = Waiting::begin(limiter, limit, Duration::from_secs(1)).await;
    assert!(!call.is_over());
    subject.advance_millis(1_000);
    assert!(call.await_turn().await);
}

async fn the_queue_holds_burst(subject: Subject) {
    let limit = one_a_second();
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(Waiting::begin(&subject.limiter, limit, Duration::MAX).await);
    }
    let refused = denied(subject.limiter.wait(&key("a"), &limit, Duration::MAX).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(4), "one has passed and three wait");
    subject.advance_millis(1_000);
    calls.push(Waiting::begin(&subject.limiter, limit, Duration::MAX).await);
    subject.advance_millis(3_000);
    for call in calls {
        assert!(call.await_turn().await);
    }
}

async fn a_cancelled_waiter_loses_its_turn(subject: Subject) {
    let limit = one_a_second();
    let first = Waiting::begin(&subject.limiter, limit, Duration::MAX).await;
    let cancelled = Waiting::begin(&subject.limiter, limit, Duration::MAX).await;
    let mut behind = Waiting::begin(&subject.limiter, limit, Duration::MAX).await;
    assert!(first.await_turn().await);
    drop(cancelled);
    subject.advance_millis(1_999);
    assert!(!behind.is_over(), "it has the turn that it was given, and not a sooner one");
    subject.advance_millis(1);
    assert!(behind.await_turn().await);
}

async fn a_call_of_cost_above_burst_never_waits(subject: Subject) {
    let limit = one_a_second();
    let never = denied(subject.limiter.check_n(&key("a"), &limit, 4).await.expect("answers"));
    assert!(never.is_final());
    assert!(subject.limiter.check_n(&key("a"), &limit, 3).await.expect("answers").is_allowed());
    let refused = denied(subject.limiter.wait(&key("a"), &limit, Duration::from_secs(2)).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(3), "it passed as one, and takes three turns");
}

/// Two at one instant cannot be told apart, so neither is the last.
async fn only_the_last_turn_can_be_given_back(subject: Subject) {
    let limit = one_a_second();
    let next_turn = async || {
        let seen = subject.limiter.peek(&key("a"), &limit).await.expect("answers");
        seen.into_result().map_or_else(|denied| denied.retry_after(), |_| Duration::ZERO)
    };
    let first = subject.limiter.check(&key("a"), &limit).await.expect("answers").into_result().expect("free");
    let second = Waiting::begin(&subject.limiter, limit, Duration::MAX).await;
    subject.limiter.refund(&first).await.expect("answers");
    assert_eq!(next_turn().await, Duration::from_secs(2));
    subject.advance_millis(2_000);
    assert!(second.await_turn().await);
    let third = subject.limiter.check(&key("a"), &limit).await.expect("answers").into_result().expect("free");
    subject.advance_millis(1);
    assert_eq!(next_turn().await, Duration::from_millis(999));
    subject.limiter.refund(&third).await.expect("answers");
    assert_eq!(next_turn().await, Duration::ZERO);
}

/// By the real clocks: twenty at once, spaced as the limit says, and each one script call.
#[tokio::test]
async fn each_wait_is_one_round_trip() {
    let server = RedisServer::start();
    let limiter = on(&server).connect().await.expect("connects");
    let limit = counted("100/s", LeakyBucket);
    let before = script_calls(&server);
    let started = std::time::Instant::now();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let decision = limiter.wait(&key("a"), &limit, AMPLE).await.expect("answers");
                assert!(decision.is_allowed());
                started.elapsed()
            })
        })
        .collect();
    let mut begun = Vec::new();
    for call in calls {
        begun.push(call.await.expect("no panic"));
    }
    begun.sort_unstable();
    assert!(begun[19] >= Duration::from_millis(190), "{begun:?}");
    assert_eq!(script_calls(&server) - before, 20);
}

/// After an outage both the store and the stand-in give each call its turn: one, and not one after the other.
#[tokio::test]
async fn no_turn_is_lost_while_the_stand_in_has_a_say() {
    let mut server = RedisServer::start();
    let clock = ManualClock::new();
    let limiter = on(&server).clock(clock.clone()).connect().await.expect("connects");
    let limit = counted("100/s", LeakyBucket);
    let check = async || limiter.check(&key("a"), &limit).await.expect("a decision").into_result();
    assert!(check().await.is_ok());
    server.kill();
    clock.advance(Duration::from_millis(10));
    assert_eq!(check().await.expect("a turn").source(), Source::Standby);
    server.restart();
    let other = counted("1000000/s", LeakyBucket);
    eventually("served by the store", async || {
        clock.advance(Duration::from_micros(1));
        let decision = limiter.check(&key("b"), &other).await.expect("a decision");
        decision.into_result().is_ok_and(|allowed| allowed.source() == Source::Store)
    })
    .await;
    for turn in 0..50 {
        clock.advance(Duration::from_millis(10));
        let allowed = check().await.unwrap_or_else(|denied| panic!("turn {turn}: {denied}"));
        assert_eq!(allowed.source(), Source::Store);
        assert!(check().await.is_err(), "turn {turn}: twice");
    }
}
