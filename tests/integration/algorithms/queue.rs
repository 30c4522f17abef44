//! Tests of the leaky bucket as a queue: a call reserves its slot in one round trip and waits until then.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Limit, Limiter, ManualClock, Source};

use super::{LeakyBucket, denied, limit_with_algorithm};
use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, Subject, builder_for, key};

macro_rules! on_both_stores {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() { super::$test(crate::support::Subject::memory().await).await; })+
        }
        mod redis {
            $(#[tokio::test] async fn $test() { super::$test(crate::support::Subject::redis().await).await; })+
        }
    };
}

on_both_stores! {
    calls_are_admitted_one_at_a_time,
    call_beyond_max_wait_is_denied_at_once,
    queue_holds_as_many_calls_as_burst,
    cancelled_wait_does_not_move_the_next_call_forward,
    cost_above_burst_is_denied_and_large_costs_take_several_slots,
    only_the_last_reserved_slot_can_be_refunded,
}

fn one_per_second() -> Limit {
    limit_with_algorithm("10/10s", LeakyBucket).with_burst(3).expect("a bucket")
}

/// A call that waits for its slot, polled by the test.
pub(crate) struct WaitingCall {
    call: Pin<Box<dyn Future<Output = bool> + Send>>,
    allowed: Option<bool>,
}

impl WaitingCall {
    /// Starts a call, and returns once the store has reserved its slot or denied it.
    pub(crate) async fn begin(limiter: &Limiter, limit: Limit, max_wait: Duration) -> Self {
        let call_limiter = limiter.clone();
        let call = Box::pin(async move {
            call_limiter.wait(&key("a"), &limit, max_wait).await.expect("the store answers").is_allowed()
        });
        let mut waiting = Self { call, allowed: None };
        waiting.poll_is_done();
        // The store replies in the order of requests, so the call's reply has arrived by then.
        let _ = limiter.peek(&key("next request"), &limit).await.expect("the store answers");
        waiting.poll_is_done();
        waiting
    }

    /// Polls the call unless it has ended, and returns whether it has ended.
    pub(crate) fn poll_is_done(&mut self) -> bool {
        if self.allowed.is_none() {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(allowed) = self.call.as_mut().poll(&mut context) {
                self.allowed = Some(allowed);
            }
        }
        self.allowed.is_some()
    }

    /// Waits until the call has ended, and returns whether it was allowed.
    pub(crate) async fn finish(self) -> bool {
        match self.allowed {
            Some(allowed) => allowed,
            None => self.call.await,
        }
    }
}

async fn calls_are_admitted_one_at_a_time(subject: Subject) {
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(WaitingCall::begin(&subject.limiter, one_per_second(), Duration::from_secs(10)).await);
    }
    for (call_index, mut call) in calls.into_iter().enumerate() {
        if call_index > 0 {
            subject.advance_millis(999);
            assert!(!call.poll_is_done(), "call {call_index} was admitted 1 ms early");
            subject.advance_millis(1);
        }
        assert!(call.finish().await, "call {call_index}");
    }
}

async fn call_beyond_max_wait_is_denied_at_once(subject: Subject) {
    let (limiter, limit) = (&subject.limiter, one_per_second());
    assert!(limiter.check(&key("a"), &limit).await.expect("answers").is_allowed());
    let refused = denied(limiter.check(&key("a"), &limit).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(1));
    let refused = denied(limiter.wait(&key("a"), &limit, Duration::from_millis(999)).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(1));
    let mut call = WaitingCall::begin(limiter, limit, Duration::from_secs(1)).await;
    assert!(!call.poll_is_done());
    subject.advance_millis(1_000);
    assert!(call.finish().await);
}

async fn queue_holds_as_many_calls_as_burst(subject: Subject) {
    let limit = one_per_second();
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(WaitingCall::begin(&subject.limiter, limit, Duration::MAX).await);
    }
    let refused = denied(subject.limiter.wait(&key("a"), &limit, Duration::MAX).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(4), "one was admitted and three wait");
    subject.advance_millis(1_000);
    calls.push(WaitingCall::begin(&subject.limiter, limit, Duration::MAX).await);
    subject.advance_millis(3_000);
    for call in calls {
        assert!(call.finish().await);
    }
}

async fn cancelled_wait_does_not_move_the_next_call_forward(subject: Subject) {
    let limit = one_per_second();
    let first = WaitingCall::begin(&subject.limiter, limit, Duration::MAX).await;
    let cancelled = WaitingCall::begin(&subject.limiter, limit, Duration::MAX).await;
    let mut behind = WaitingCall::begin(&subject.limiter, limit, Duration::MAX).await;
    assert!(first.finish().await);
    drop(cancelled);
    subject.advance_millis(1_999);
    assert!(!behind.poll_is_done(), "it keeps the slot it reserved, and gets no earlier one");
    subject.advance_millis(1);
    assert!(behind.finish().await);
}

async fn cost_above_burst_is_denied_and_large_costs_take_several_slots(subject: Subject) {
    let limit = one_per_second();
    let never = denied(subject.limiter.check_n(&key("a"), &limit, 4).await.expect("answers"));
    assert!(never.is_final());
    assert!(subject.limiter.check_n(&key("a"), &limit, 3).await.expect("answers").is_allowed());
    let refused = denied(subject.limiter.wait(&key("a"), &limit, Duration::from_secs(2)).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(3), "it passed at once, and takes three slots");
}

/// Two calls at one instant cannot be distinguished, so neither counts as the last.
async fn only_the_last_reserved_slot_can_be_refunded(subject: Subject) {
    let limit = one_per_second();
    let time_to_next_slot = async || {
        let seen = subject.limiter.peek(&key("a"), &limit).await.expect("answers");
        seen.into_result().map_or_else(|denied| denied.retry_after(), |_| Duration::ZERO)
    };
    let first = subject.limiter.check(&key("a"), &limit).await.expect("answers").into_result().expect("free");
    let second = WaitingCall::begin(&subject.limiter, limit, Duration::MAX).await;
    subject.limiter.refund(&first).await.expect("answers");
    assert_eq!(time_to_next_slot().await, Duration::from_secs(2));
    subject.advance_millis(2_000);
    assert!(second.finish().await);
    let third = subject.limiter.check(&key("a"), &limit).await.expect("answers").into_result().expect("free");
    subject.advance_millis(1);
    assert_eq!(time_to_next_slot().await, Duration::from_millis(999));
    subject.limiter.refund(&third).await.expect("answers");
    assert_eq!(time_to_next_slot().await, Duration::ZERO);
}

/// Twenty concurrent calls with real clocks: they are spaced by the limit, and each makes one script call.
#[tokio::test]
async fn each_wait_makes_one_script_call() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("connects");
    let limit = limit_with_algorithm("100/s", LeakyBucket);
    let before = server.script_calls();
    let started = std::time::Instant::now();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let decision = limiter.wait(&key("a"), &limit, LONG_DEADLINE).await.expect("answers");
                assert!(decision.is_allowed());
                started.elapsed()
            })
        })
        .collect();
    let mut waits = Vec::new();
    for call in calls {
        waits.push(call.await.expect("no panic"));
    }
    waits.sort_unstable();
    assert!(waits[19] >= Duration::from_millis(190), "{waits:?}");
    assert_eq!(server.script_calls() - before, 20);
}

/// The store and the standby limiter both reserve a slot for each call after an outage. The call waits once.
#[tokio::test]
async fn no_slot_is_lost_while_the_standby_limiter_is_consulted() {
    let mut server = RedisServer::start();
    let clock = ManualClock::new();
    let limiter = builder_for(&server).clock(clock.clone()).connect().await.expect("connects");
    let limit = limit_with_algorithm("100/s", LeakyBucket);
    let check = async || limiter.check(&key("a"), &limit).await.expect("a decision").into_result();
    assert!(check().await.is_ok());
    server.kill();
    clock.advance(Duration::from_millis(10));
    assert_eq!(check().await.expect("a decision").source(), Source::Standby);
    server.restart();
    let other = limit_with_algorithm("1000000/s", LeakyBucket);
    eventually("served by the store", async || {
        clock.advance(Duration::from_micros(1));
        let decision = limiter.check(&key("b"), &other).await.expect("a decision");
        decision.into_result().is_ok_and(|allowed| allowed.source() == Source::Store)
    })
    .await;
    for call_index in 0..50 {
        clock.advance(Duration::from_millis(10));
        let allowed = check().await.unwrap_or_else(|denied| panic!("call {call_index}: {denied}"));
        assert_eq!(allowed.source(), Source::Store);
        assert!(check().await.is_err(), "call {call_index}: admitted twice");
    }
}
