//! Tests of `wait`: waiters are served in order and in time, and take no permits that they do not use.

use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Decision, Key, Limiter, ManualClock, OnError, rate_limited};
use tokio::task::JoinSet;

use crate::support::{builder_for, key, limit};

/// Defines two tests for each function, with a [`QueueSubject`](held_store::QueueSubject) each: on the embedded store, and
/// on Redis.
macro_rules! on_every_store_with_queues {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            use crate::waiting::held_store::QueueSubject;
            $(#[tokio::test] async fn $test() { super::$test(QueueSubject::memory().await).await; })+
        }
        mod redis {
            use crate::waiting::held_store::QueueSubject;
            $(#[tokio::test] async fn $test() { super::$test(QueueSubject::redis().await).await; })+
        }
    };
}

mod polled;
mod held_store;
mod given_back;
mod too_long;
mod changed_rules;
mod reserving;
mod order;
mod passed_over;
mod schedules;

async fn limiters() -> [Limiter; 2] {
    [Limiter::memory(), builder_for(RedisServer::shared()).connect().await.expect("connects")]
}

/// The exact moment is tested with a manual clock, below.
#[tokio::test]
async fn wait_ends_when_a_permit_is_free() {
    const MAX_WAIT: Duration = Duration::from_secs(60);
    for limiter in limiters().await {
        let (key, limit) = (key("a"), limit("2/200ms"));
        let start = Instant::now();
        for _ in 0..6 {
            assert!(limiter.wait(&key, &limit, MAX_WAIT).await.expect("answers").is_allowed());
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(400), "the permits of three windows in {took:?}");
        assert!(took < MAX_WAIT, "{took:?}");
    }
}

/// No call is denied while permits are free, even if the store is slow.
#[tokio::test]
async fn no_call_queues_while_permits_are_free() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let limiter = builder_for(&server).url(proxy.url()).connect().await.expect("connects");
    proxy.delay(Duration::from_millis(50));
    let calls: JoinSet<_> = (0..8)
        .map(|_| {
            let limiter = limiter.clone();
            async move { limiter.wait(&key("a"), &limit("100000/10s"), Duration::from_millis(20)).await }
        })
        .collect();
    for decision in calls.join_all().await {
        assert!(decision.expect("answers").is_allowed());
    }
}

#[tokio::test]
async fn wait_beyond_max_wait_is_denied_at_once() {
    for limiter in limiters().await {
        let (key, limit) = (key("a"), limit("1/1m"));
        assert!(limiter.wait(&key, &limit, Duration::from_secs(1)).await.expect("answers").is_allowed());
        let start = Instant::now();
        let decision = limiter.wait(&key, &limit, Duration::from_secs(30)).await.expect("answers");
        let denied = decision.into_result().expect_err("a denial");
        assert!(denied.retry_after() > Duration::from_secs(59));
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}

/// Waiters are woken by the limiter's clock and not by real time.
#[tokio::test]
async fn wait_uses_the_limiters_clock() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
    let (key, limit) = (key("a"), limit("1/1h"));
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    let waiting = limiter.wait(&key, &limit, Duration::from_secs(7200));
    let mut waiting = std::pin::pin!(waiting);
    for minutes in [0, 59] {
        clock.advance(Duration::from_secs(minutes * 60));
        let result = tokio::time::timeout(Duration::from_millis(20), waiting.as_mut()).await;
        assert!(result.is_err(), "after {minutes} min");
    }
    clock.advance(Duration::from_secs(60));
    assert!(waiting.await.expect("answers").is_allowed());
}

#[tokio::test]
async fn dropped_waiter_takes_no_permit_and_delays_no_other() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
    let (key, limit) = (key("a"), limit("1/10s"));
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    {
        // Two waiters, both dropped before it is their turn.
        let first = limiter.wait(&key, &limit, Duration::from_secs(60));
        let second = limiter.wait(&key, &limit, Duration::from_secs(60));
        let both = async { tokio::join!(first, second) };
        assert!(tokio::time::timeout(Duration::from_millis(20), both).await.is_err());
    }
    clock.advance(Duration::from_secs(10));
    assert!(limiter.wait(&key, &limit, Duration::from_secs(60)).await.expect("answers").is_allowed());
    assert!(limiter.check(&key, &limit).await.expect("answers").is_denied());
}

/// The queue is too long for the last waiter's `max_wait`, so it is denied when that has passed.
#[tokio::test]
async fn waiter_is_denied_when_its_max_wait_passes_in_the_queue() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
    let (key, limit) = (key("a"), limit("1/10s"));
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    let patient = limiter.wait(&key, &limit, Duration::from_secs(60));
    let impatient = limiter.wait(&key, &limit, Duration::from_secs(15));
    let clock_steps = async {
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            clock.advance(Duration::from_secs(5));
        }
    };
    let (patient, impatient, ()) = tokio::join!(patient, impatient, clock_steps);
    assert!(patient.expect("answers").is_allowed());
    assert!(impatient.expect("answers").is_denied());
}

/// Two rules: one limit is shared by all users, the other is per user. A waiter on its own limit blocks no other user.
#[tokio::test]
async fn waiter_on_its_own_limit_delays_no_other_user() {
    #[rate_limited(key = "all", limit = "1000/s", wait = "1m", fallback = false)]
    #[rate_limited(key = "user:{user}", limit = "1/50s", fallback = false)]
    async fn call(user: u32) -> bool {
        true
    }

    let limiter = Limiter::memory();
    limiter
        .scope(async {
            assert!(call(1).await);
            let mut first_user = std::pin::pin!(call(1));
            assert!(
                tokio::time::timeout(Duration::from_millis(50), first_user.as_mut()).await.is_err(),
                "waits its turn"
            );
            let second_user = tokio::time::timeout(Duration::from_secs(5), call(2)).await;
            assert_eq!(second_user, Ok(true));
        })
        .await;
}

#[tokio::test]
async fn denial_by_policy_is_returned_without_waiting() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Closed).connect().await.expect("connects");
    drop(server);
    let start = Instant::now();
    let decision = limiter.wait(&Key::new("a"), &limit("1/1m"), Duration::from_secs(30)).await.expect("a decision");
    assert!(matches!(decision, Decision::Denied(_)));
    assert!(start.elapsed() < Duration::from_secs(30));
}
