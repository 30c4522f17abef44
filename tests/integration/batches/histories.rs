//! Tests with many tasks whose calls are batched: no window exceeds the limit, and no call is denied while it fits.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Algorithm, Limiter};
use tokio::task::JoinSet;

use crate::algorithms::ALL_ALGORITHMS;
use crate::denials::Run;
use crate::support::{builder_for, limit};

/// The error of rounding to whole milliseconds, at both ends.
const MAX_ROUNDING: Duration = Duration::from_millis(2);

async fn two_limiters_on_one_prefix(server: &RedisServer) -> [Limiter; 2] {
    let first = builder_for(server).prefix("rl").connect().await.expect("the server is there");
    [first, builder_for(server).prefix("rl").connect().await.expect("the server is there")]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_limiters_with_many_tasks_on_one_key_are_exact() {
    let server = RedisServer::start();
    let limiters = two_limiters_on_one_prefix(&server).await;
    for tasks in [64, 256] {
        let limit = limit("60/250ms");
        let run =
            Run::record_with_limiters(&limiters, tasks, limit, Duration::from_millis(1_000), Duration::from_millis(6))
                .await;
        run.assert_exact(limit, MAX_ROUNDING + limit.window() / 128);
    }
}

/// Each key has its own run, and all of them share the batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_with_many_tasks_each_are_exact() {
    let server = RedisServer::start();
    let limiters = two_limiters_on_one_prefix(&server).await;
    let mut runs = JoinSet::new();
    for algorithm in ALL_ALGORITHMS.into_iter().chain(ALL_ALGORITHMS) {
        let limiters = limiters.clone();
        runs.spawn(async move {
            // The leaky bucket admits one call at a time.
            let text = if algorithm == Algorithm::LeakyBucket { "100/100ms" } else { "30/150ms" };
            let limit = limit(text).with_algorithm(algorithm);
            let run =
                Run::record_with_limiters(&limiters, 16, limit, Duration::from_millis(1_500), Duration::from_millis(8))
                    .await;
            run.assert_exact(limit, MAX_ROUNDING + limit.window() / 128);
        });
    }
    while let Some(run) = runs.join_next().await {
        run.expect("a correct run");
    }
}
