//! Calls that wait for a place: in order, in time, and without taking what they do not use.

use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Decision, Key, Limiter, ManualClock, OnError, rate_limited};
use tokio::task::JoinSet;

use crate::support::{key, limit, on};

mod by_hand;
mod held;
mod order;
mod passed_over;
mod schedules;

async fn limiters() -> [Limiter; 2] {
    [Limiter::memory(), on(RedisServer::shared()).connect().await.expect("connects")]
}

#[tokio::test]
async fn a_call_waits_for_its_place_and_no_longer() {
    for limiter in limiters().await {
        let (key, limit) = (key("a"), limit("2/200ms"));
        let start = Instant::now();
        for _ in 0..6 {
            assert!(limiter.wait(&key, &limit, Duration::from_secs(5)).await.expect("answers").is_allowed());
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(400), "three windows' worth in {took:?}");
        assert!(took < Duration::from_millis(800), "{took:?}");
    }
}

/// A store that is slow is no reason to deny what there is room for.
#[tokio::test]
async fn nobody_is_in_line_while_there_is_room() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let limiter = on(&server).url(proxy.url()).connect().await.expect("connects");
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
async fn a_wait_that_is_hopeless_ends_at_once() {
    for limiter in limiters().await {
        let (key, limit) = (key("a"), limit("1/1m"));
        assert!(limiter.wait(&key, &limit, Duration::from_secs(1)).await.expect("answers").is_allowed());
        let start = Instant::now();
        let decision = limiter.wait(&key, &limit, Duration::from_secs(30)).await.expect("answers");
        let denied = decision.into_result().expect_err("a denial");
        assert!(denied.retry_after() > Duration::from_secs(59));
        assert!(start.elapsed() < Duration::from_secs(1));
    }
}

/// By a clock that stands still: whoever waits is woken by the clock, not by time.
#[tokio::test]
async fn waits_by_the_clock_it_was_given() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
    let (key, limit) = (key("a"), limit("1/1h"));
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    let waiting = limiter.wait(&key, &limit, Duration::from_secs(7200));
    let mut waiting = std::pin::pin!(waiting);
    for minutes in [0, 59] {
        clock.advance(Duration::from_secs(minutes * 60));
        let early = tokio::time::timeout(Duration::from_millis(20), waiting.as_mut()).await;
        assert!(early.is_err(), "after {minutes} min");
    }
    clock.advance(Duration::from_secs(60));
    assert!(waiting.await.expect("answers").is_allowed());
}

#[tokio::test]
async fn one_who_leaves_takes_nothing_and_holds_nobody_up() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
    let (key, limit) = (key("a"), limit("1/10s"));
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    {
        // The first in line, and the second, both gone before it is their turn.
        let first = limiter.wait(&key, &limit, Duration::from_secs(60));
        let second = limiter.wait(&key, &limit, Duration::from_secs(60));
        let both = async { tokio::join!(first, second) };
        assert!(tokio::time::timeout(Duration::from_millis(20), both).await.is_err());
    }
    clock.advance(Duration::from_secs(10));
    assert!(limiter.wait(&key, &limit, Duration::from_secs(60)).await.expect("answers").is_allowed());
    assert!(limiter.check(&key, &limit).await.expect("answers").is_denied());
}

/// The line is too long for the last one's patience: it is told at the end of it, as a denial.
#[tokio::test]
async fn patience_that_ends_in_line_is_a_denial() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
    let (key, limit) = (key("a"), limit("1/10s"));
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    let patient = limiter.wait(&key, &limit, Duration::from_secs(60));
    let hasty = limiter.wait(&key, &limit, Duration::from_secs(15));
    let moves = async {
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            clock.advance(Duration::from_secs(5));
        }
    };
    let (patient, hasty, ()) = tokio::join!(patient, hasty, moves);
    assert!(patient.expect("answers").is_allowed());
    assert!(hasty.expect("answers").is_denied());
}

/// Two rules, of which all share the first: one who waits for a count of their own is in nobody else's way.
#[tokio::test]
async fn one_who_waits_for_their_own_limit_holds_up_nobody_else() {
    #[rate_limited(key = "all", limit = "1000/s", wait = "1m", fallback = false)]
    #[rate_limited(key = "user:{user}", limit = "1/50s", fallback = false)]
    async fn call(user: u32) -> bool {
        true
    }

    let limiter = Limiter::memory();
    limiter
        .scope(async {
            assert!(call(1).await);
            let mut waits = std::pin::pin!(call(1));
            assert!(tokio::time::timeout(Duration::from_millis(50), waits.as_mut()).await.is_err(), "waits its turn");
            let other = tokio::time::timeout(Duration::from_secs(5), call(2)).await;
            assert_eq!(other, Ok(true));
        })
        .await;
}

#[tokio::test]
async fn a_policys_denial_is_not_waited_for() {
    let server = RedisServer::start();
    let limiter = on(&server).on_error(OnError::Closed).connect().await.expect("connects");
    drop(server);
    let start = Instant::now();
    let decision = limiter.wait(&Key::new("a"), &limit("1/1m"), Duration::from_secs(30)).await.expect("a decision");
    assert!(matches!(decision, Decision::Denied(_)));
    assert!(start.elapsed() < Duration::from_secs(6));
}
