//! The leaky bucket as a queue: a call is given its turn in one round trip and waits for exactly that.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Limit, Limiter, ManualClock, Source};
use tokio::task::JoinHandle;

use super::{LeakyBucket, counted, denied};
use crate::deadlines::eventually;
use crate::support::{Subject, key, on};

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

/// A call that waits, once it has been given its turn or has been refused.
async fn waiting(limiter: &Limiter, limit: Limit, max_wait: Duration) -> JoinHandle<bool> {
    let limiter = limiter.clone();
    let call = tokio::spawn(async move {
        limiter.wait(&key("a"), &limit, max_wait).await.expect("the store answers").is_allowed()
    });
    // The store answers within this, on a slow machine too; nothing else moves meanwhile.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    call
}

async fn turns_come_one_at_a_time(subject: Subject) {
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(waiting(&subject.limiter, one_a_second(), Duration::from_secs(10)).await);
    }
    for (turn, call) in calls.into_iter().enumerate() {
        if turn > 0 {
            subject.advance_millis(999);
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(!call.is_finished(), "turn {turn} came 1 ms early");
            subject.advance_millis(1);
        }
        assert!(call.await.expect("no panic"), "turn {turn}");
    }
}

async fn who_cannot_be_served_in_time_is_denied_at_once(subject: Subject) {
    let (limiter, limit) = (&subject.limiter, one_a_second());
    assert!(limiter.check(&key("a"), &limit).await.expect("answers").is_allowed());
    let refused = denied(limiter.check(&key("a"), &limit).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(1));
    let refused = denied(limiter.wait(&key("a"), &limit, Duration::from_millis(999)).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(1));
    let call = waiting(limiter, limit, Duration::from_secs(1)).await;
    assert!(!call.is_finished());
    subject.advance_millis(1_000);
    assert!(call.await.expect("no panic"));
}

async fn the_queue_holds_burst(subject: Subject) {
    let limit = one_a_second();
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(waiting(&subject.limiter, limit, Duration::MAX).await);
    }
    let refused = denied(subject.limiter.wait(&key("a"), &limit, Duration::MAX).await.expect("answers"));
    assert_eq!(refused.retry_after(), Duration::from_secs(4), "one has passed and three wait");
    subject.advance_millis(1_000);
    calls.push(waiting(&subject.limiter, limit, Duration::MAX).await);
    subject.advance_millis(3_000);
    for call in calls {
        assert!(call.await.expect("no panic"));
    }
}

async fn a_cancelled_waiter_loses_its_turn(subject: Subject) {
    let limit = one_a_second();
    let first = waiting(&subject.limiter, limit, Duration::MAX).await;
    let cancelled = waiting(&subject.limiter, limit, Duration::MAX).await;
    let behind = waiting(&subject.limiter, limit, Duration::MAX).await;
    assert!(first.await.expect("no panic"));
    cancelled.abort();
    subject.advance_millis(1_999);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!behind.is_finished(), "it has the turn that it was given, and not a sooner one");
    subject.advance_millis(1);
    assert!(behind.await.expect("no panic"));
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
    let second = waiting(&subject.limiter, limit, Duration::MAX).await;
    subject.limiter.refund(&first).await.expect("answers");
    assert_eq!(next_turn().await, Duration::from_secs(2));
    subject.advance_millis(2_000);
    assert!(second.await.expect("no panic"));
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
    let script_calls = || {
        let stat = server.info("commandstats").remove("cmdstat_evalsha").expect("one at least, when it connected");
        stat.split(['=', ',']).nth(1).and_then(|calls| calls.parse::<u32>().ok()).expect("a number")
    };
    let before = script_calls();
    let started = std::time::Instant::now();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let decision = limiter.wait(&key("a"), &limit, Duration::from_secs(5)).await.expect("answers");
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
    assert_eq!(script_calls() - before, 20);
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
