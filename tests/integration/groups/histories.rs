//! Runs of many tasks whose calls go in groups, judged from outside: no window above the limit, nothing denied that had
//! room.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Algorithm, Limiter};
use tokio::task::JoinSet;

use crate::algorithms::ALL;
use crate::denials::Run;
use crate::support::{limit, on};

/// What rounding to whole milliseconds may cost, at both ends.
const ROUNDING: Duration = Duration::from_millis(2);

async fn two_on_one_prefix(server: &RedisServer) -> [Limiter; 2] {
    let first = on(server).prefix("rl").connect().await.expect("the server is there");
    [first, on(server).prefix("rl").connect().await.expect("the server is there")]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_limiters_with_many_tasks_on_one_key_are_right() {
    let server = RedisServer::start();
    let limiters = two_on_one_prefix(&server).await;
    for tasks in [64, 256] {
        let limit = limit("60/250ms");
        let run = Run::of_many(&limiters, tasks, limit, Duration::from_millis(1_000), Duration::from_millis(6)).await;
        run.assert_right(limit, ROUNDING + limit.window() / 128);
    }
}

/// Each key has a run of its own, and all of them the same groups.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_with_many_tasks_each_are_right() {
    let server = RedisServer::start();
    let limiters = two_on_one_prefix(&server).await;
    let mut runs = JoinSet::new();
    for algorithm in ALL.into_iter().chain(ALL) {
        let limiters = limiters.clone();
        runs.spawn(async move {
            // The queue lets one pass at a time.
            let text = if algorithm == Algorithm::LeakyBucket { "100/100ms" } else { "30/150ms" };
            let limit = limit(text).with_algorithm(algorithm);
            let run = Run::of_many(&limiters, 16, limit, Duration::from_millis(1_500), Duration::from_millis(8)).await;
            run.assert_right(limit, ROUNDING + limit.window() / 128);
        });
    }
    while let Some(run) = runs.join_next().await {
        run.expect("a run that is right");
    }
}
