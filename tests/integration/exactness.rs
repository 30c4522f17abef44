//! Tests of promise 1 in real time: at most `max` permits in any window, for any number of tasks and limiters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use limiter_testkit::history::{Admission, feasible, max_permits_in_window};
use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Key, Limit, Limiter};
use tokio::task::JoinSet;

use crate::support::{builder_for, key, limit};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_5_of_64_concurrent_calls_are_admitted_in_memory() {
    assert_eq!(admitted_of_64(Limiter::memory()).await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_5_of_64_concurrent_calls_are_admitted_on_redis() {
    let limiter = builder_for(RedisServer::shared()).connect().await.expect("connects");
    assert_eq!(admitted_of_64(limiter).await, 5);
}

async fn admitted_of_64(limiter: Limiter) -> usize {
    let start = Arc::new(tokio::sync::Barrier::new(64));
    let mut calls = JoinSet::new();
    for _ in 0..64 {
        let (limiter, start) = (limiter.clone(), Arc::clone(&start));
        calls.spawn(async move {
            start.wait().await;
            limiter.check(&key("fresh"), &limit("5/1h")).await.expect("answers").is_allowed()
        });
    }
    calls.join_all().await.into_iter().filter(|allowed| *allowed).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_limiters_on_one_redis_admit_exactly_5_of_160() {
    let prefix = limiter_testkit::unique("shared");
    let mut calls = JoinSet::new();
    for _ in 0..4 {
        let limiter = builder_for(RedisServer::shared()).prefix(&prefix).connect().await.expect("connects");
        calls.spawn(async move {
            let mut admitted = 0;
            for _ in 0..40 {
                let decision = limiter.check(&key("getId"), &limit("5/1h")).await.expect("answers");
                admitted += u32::from(decision.is_allowed());
                tokio::task::yield_now().await;
            }
            admitted
        });
    }
    assert_eq!(calls.join_all().await.into_iter().sum::<u32>(), 5);
}

/// Eight tasks call far above the limit. The check uses the start and end times of admitted calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_of_a_recorded_run_holds_more_than_max() {
    for limiter in [Limiter::memory(), builder_for(RedisServer::shared()).connect().await.expect("connects")] {
        let limit = limit("20/300ms");
        let run = record(&limiter, limit, Duration::from_millis(1_500)).await;
        assert_eq!(feasible(&run, limit.window(), limit.max()), Ok(()), "{limiter:?}");
        assert!(max_permits_in_window(&run, limit.window()) <= 20);
        // The module `denials` tests that no call is denied while a permit is free.
        assert!(run.len() >= 20, "{} admitted by {limiter:?}", run.len());
    }
}

async fn record(limiter: &Limiter, limit: Limit, length: Duration) -> Vec<Admission> {
    let origin = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let mut admitted = Vec::new();
            let key = Key::new("busy");
            while origin.elapsed() < length {
                let start = origin.elapsed();
                if limiter.check(&key, &limit).await.expect("answers").is_allowed() {
                    admitted.push(Admission { start, end: origin.elapsed(), cost: 1 });
                }
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
            admitted
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// Checks `retry_after` against real time: the call is admitted at that instant and not earlier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_is_exact_by_the_servers_clock() {
    let limiter = builder_for(RedisServer::shared()).connect().await.expect("connects");
    let (key, limit) = (key("a"), limit("1/150ms"));
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    let mut confirmed = 0;
    while confirmed < 5 {
        let before = Instant::now();
        // The call is allowed if the machine stalled for a window.
        let Err(denied) = limiter.check(&key, &limit).await.expect("answers").into_result() else { continue };
        // Counted from before the call, `retry_after` ends early by at most the duration of the call.
        let latest = before.elapsed() + denied.retry_after();
        loop {
            let seen = limiter.peek(&key, &limit).await.expect("answers");
            // Compared after the reply: up to now the promised instant has not come.
            if before.elapsed() >= denied.retry_after() {
                break;
            }
            assert!(seen.is_denied());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(latest.saturating_sub(before.elapsed())).await;
        assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed(), "as promised");
        confirmed += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_tasks_share_one_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let limiter = builder_for(&server).url(proxy.url()).connect().await.expect("connects");
    let mut calls = JoinSet::new();
    for index in 0..5_000 {
        let limiter = limiter.clone();
        calls.spawn(async move {
            let key = Key::new("user:").part(index % 1_000);
            limiter.check(&key, &limit("3/1h")).await.expect("answers").is_allowed()
        });
    }
    let admitted = calls.join_all().await.into_iter().filter(|allowed| *allowed).count();
    assert_eq!(admitted, 3_000);
    assert_eq!(proxy.connections(), 1);
}
