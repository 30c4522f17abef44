//! Tests of the end of a limiter's connection and threads, and of dropped futures.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::{fs, thread};

use limiter_testkit::{Random, RedisServer};
use rate_limited::Limiter;
use tokio::task::{JoinSet, yield_now};

use super::check;
use crate::child_process;
use crate::deadlines::eventually;
use crate::support::{builder_for, key, limit};

/// Returns the number of connections, without that of this `INFO`. Connections of earlier `INFO`s may still be open.
fn connections(server: &RedisServer) -> u32 {
    let connected: u32 = server.info("clients")["connected_clients"].parse().expect("a number");
    connected - 1
}

#[tokio::test]
async fn connection_closes_with_the_last_clone() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("the server is there");
    let clones: Vec<_> = (0..10).map(|_| limiter.clone()).collect();
    drop(limiter);
    for clone in &clones {
        check(clone).await;
    }
    eventually("one connection for all clones", || async { connections(&server) == 1 }).await;
    drop(clones);
    eventually("closed", || async { connections(&server) == 0 }).await;
}

#[test]
fn threads_end_with_their_limiters() {
    child_process::run("runtimes::shutdown::count_threads", &[("", ""); 0]);
}

#[tokio::test]
#[ignore = "needs a process of its own, to count its threads"]
async fn count_threads() {
    if !child_process::is_child() {
        return;
    }
    let server = RedisServer::start();
    let unreachable = || Limiter::builder().url("redis+unix:///nowhere/redis.sock");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free TCP port");
    let silent = format!("redis://{}", silent.local_addr().expect("the address of a bound listener"));
    let mut limiters = Vec::new();
    for _ in 0..3 {
        limiters.push(builder_for(&server).connect().await.expect("the server is there"));
        limiters.push(unreachable().build().expect("a URL"));
        limiters.push(Limiter::builder().url(&silent).build().expect("a URL"));
        unreachable().connect().await.expect_err("no server");
        let mut connecting = Box::pin(Limiter::connect(&silent));
        poll_fn(|context| Poll::Ready(connecting.as_mut().poll(context).is_ready())).await;
    }
    eventually("counted", || async { thread_count() == 9 }).await;
    limiters.truncate(4);
    eventually("ended", || async { thread_count() == 4 }).await;
    // Also when the limiters are dropped on a thread that ends at once.
    thread::spawn(move || drop(limiters)).join().expect("no panic");
    eventually("ended", || async { thread_count() == 0 }).await;
}

/// Returns the number of limiter threads in this process.
fn thread_count() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("a directory of threads").flatten();
    tasks
        .filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "rate-limited"))
        .count()
}

/// Each task drops most of its calls after a few polls. A dropped call takes at most one permit and delays no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_take_at_most_one_permit_each() {
    const TASKS: u64 = 50;
    const CALLS: u64 = 40;
    let server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("the server is there");
    let limit = Arc::new(limit("100000/h"));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (limiter, limit) = (limiter.clone(), Arc::clone(&limit));
        tasks.spawn(async move {
            let (mut random, key) = (Random::new(task), key("a"));
            let mut admitted = 0;
            for _ in 0..CALLS {
                let mut call = Box::pin(limiter.check(&key, &limit));
                for _ in 0..random.below(4) {
                    let polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
                    if let Poll::Ready(decision) = polled {
                        admitted += u64::from(decision.expect("a decision").is_allowed());
                        break;
                    }
                    yield_now().await;
                }
            }
            admitted
        });
    }
    let admitted: u64 = tasks.join_all().await.into_iter().sum();
    check(&limiter).await;
    let seen = limiter.peek(&key("a"), &limit).await.expect("a decision");
    let taken = u64::from(limit.max() - seen.remaining());
    assert!((admitted + 1..=TASKS * CALLS + 1).contains(&taken), "{taken} taken, {admitted} admitted");
    eventually("one connection for all clones", || async { connections(&server) == 1 }).await;
}
