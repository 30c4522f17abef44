//! A measurement of calls that reserve permits, and give back those that they did not use.

use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{Algorithm, Decision, Key, Limit, Limiter};
use tokio::task::JoinSet;

use crate::support::{builder_for, limit};

const WORKERS: usize = 20;
const RUN_TIME: Duration = Duration::from_secs(12);
const WORK_TIME: Duration = Duration::from_millis(20);

/// The number of calls of workers that reserve 1000 permits each, and give 900 back.
async fn calls(limiter: Limiter, key: Key, limit: Limit, waits: bool) -> usize {
    let end = Instant::now() + RUN_TIME;
    let workers: JoinSet<_> = (0..WORKERS)
        .map(|_| {
            let (limiter, key) = (limiter.clone(), key.clone());
            async move {
                let mut calls = 0;
                while Instant::now() < end {
                    let decision = if waits {
                        limiter.wait_n(&key, &limit, 1_000, end - Instant::now()).await.expect("answers")
                    } else {
                        limiter.check_n(&key, &limit, 1_000).await.expect("answers")
                    };
                    if let Decision::Allowed(allowed) = decision {
                        calls += 1;
                        tokio::time::sleep(WORK_TIME).await;
                        limiter.refund_n(&allowed, 900).await.expect("refunds");
                    } else {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                calls
            }
        })
        .collect();
    workers.join_all().await.into_iter().sum()
}

/// Calls that wait are woken by refunds, so they serve about as many as a loop of checks.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of 12 s of real time, for an idle machine"]
async fn waiting_serves_nearly_as_many_as_a_loop_of_checks() {
    let server = RedisServer::start();
    let mut runs = JoinSet::new();
    for (name, limiter) in
        [("memory", Limiter::memory()), ("Redis", builder_for(&server).connect().await.expect("connects"))]
    {
        for algorithm in [Algorithm::SlidingWindow, Algorithm::TokenBucket] {
            let limiter = limiter.clone();
            runs.spawn(async move {
                let limit = limit("5000/6s").with_algorithm(algorithm);
                let key = |part: &str| Key::new(part).part(format!("{algorithm:?}"));
                let (waited, checked) = tokio::join!(
                    calls(limiter.clone(), key("waits"), limit, true),
                    calls(limiter.clone(), key("checks"), limit, false),
                );
                (name, algorithm, waited, checked)
            });
        }
    }
    let mut too_few = Vec::new();
    for (name, algorithm, waited, checked) in runs.join_all().await {
        println!("{name}, {algorithm:?}: {waited} calls that wait, {checked} of a loop of checks");
        if waited * 10 < checked * 9 {
            too_few.push((name, algorithm));
        }
    }
    assert!(too_few.is_empty(), "{too_few:?}");
}
