//! Several limiters that share the slots of one store, as processes do.

use std::time::{Duration, Instant};

use limiter_testkit::{Cluster, RedisServer, unique};
use rate_limited::{Key, Limit, Limiter};
use tokio::task::JoinSet;

use super::{concurrent, denied, entered};
use crate::child_process;
use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, builder_for, key};

/// Limiters with one prefix on a server.
pub(super) async fn fleet<const N: usize>(server: &RedisServer) -> [Limiter; N] {
    let prefix = unique("fleet");
    let mut limiters = Vec::new();
    for _ in 0..N {
        limiters.push(builder_for(server).prefix(&prefix).connect().await.expect("a server"));
    }
    limiters.try_into().expect("as many")
}

#[tokio::test]
async fn processes_share_the_slots_of_a_key() {
    let [one, other] = fleet(RedisServer::shared()).await;
    let (key, limit) = (key("a"), concurrent(3));
    let mut held = vec![entered(&one, &key, &limit).await, entered(&other, &key, &limit).await];
    held.push(entered(&one, &key, &limit).await);
    assert!(denied(&one, &key, &limit).await.retry_after() > Duration::ZERO);
    assert!(denied(&other, &key, &limit).await.retry_after() > Duration::ZERO);
    held.remove(0).leave();
    let again = other.enter_wait(&key, &limit, LONG_DEADLINE).await.expect("a decision");
    assert!(again.is_entered());
    drop((held, again));
    eventually("free", async || one.peek(&key, &limit).await.expect("a decision").remaining() == 3).await;
}

#[tokio::test]
async fn a_slot_that_comes_free_goes_to_a_process_that_waits() {
    let [one, other] = fleet(RedisServer::shared()).await;
    let (key, limit) = (key("a"), concurrent(1));
    for round in 0..4 {
        let held = entered(&one, &key, &limit).await;
        let waiting = tokio::spawn({
            let (other, key) = (other.clone(), key.clone());
            async move { other.enter_wait(&key, &limit, LONG_DEADLINE).await.expect("a decision").is_entered() }
        });
        eventually("waits", async || other.peek(&key, &limit).await.expect("a decision").is_denied()).await;
        drop(held);
        assert!(waiting.await.expect("no panic"), "round {round}");
        eventually("free", async || one.peek(&key, &limit).await.expect("a decision").remaining() == 1).await;
    }
}

#[tokio::test]
async fn slots_outlive_the_limiter_of_their_calls() {
    let server = RedisServer::shared();
    let [one, other] = fleet(server).await;
    let (key, limit) = (key("a"), concurrent(1));
    let held = entered(&one, &key, &limit).await;
    drop(one);
    assert!(denied(&other, &key, &limit).await.retry_after() > Duration::ZERO);
    drop(held);
    assert!(other.enter_wait(&key, &limit, LONG_DEADLINE).await.expect("a decision").is_entered());
}

#[tokio::test]
async fn slots_are_of_a_cluster_as_of_one_server() {
    let cluster = Cluster::builder().masters_only().start();
    let builder = || Limiter::builder().url(cluster.url()).deadline(LONG_DEADLINE);
    let one = builder().connect().await.expect("a cluster");
    let other = builder().connect().await.expect("a cluster");
    let limit: Limit = concurrent(2);
    for number in 0..20 {
        let key = Key::new("k:").part(number);
        let held = [entered(&one, &key, &limit).await, entered(&other, &key, &limit).await];
        assert!(denied(&one, &key, &limit).await.limit() == limit);
        drop(held);
        assert!(one.enter_wait(&key, &limit, LONG_DEADLINE).await.expect("a decision").is_entered());
    }
}

/// The slots of a process that is gone end by themselves.
#[tokio::test]
async fn a_message_every_third_of_a_slot_time_is_enough() {
    let [one] = fleet(RedisServer::shared()).await;
    let (key, limit) = (key("a"), concurrent(5));
    let (_held, began) = (entered(&one, &key, &limit).await, Instant::now());
    for _ in 0..1000 {
        drop(entered(&one, &key, &limit).await);
    }
    assert!(began.elapsed() < LONG_DEADLINE);
}

#[tokio::test]
async fn a_program_that_flushes_at_its_end_keeps_no_slot() {
    let server = RedisServer::start();
    let prefix = unique("ended");
    for _ in 0..3 {
        let variables = [("URL", server.url()), ("PREFIX", prefix.clone())];
        let mut child = child_process::command("concurrency::processes::enter_once_and_end", &variables);
        let ended = tokio::task::spawn_blocking(move || child.output()).await.expect("no panic").expect("it starts");
        assert!(ended.status.success(), "{ended:?}");
        let limiter = Limiter::builder().url(server.url()).prefix(&prefix).deadline(LONG_DEADLINE);
        let limiter = limiter.connect().await.expect("a server");
        let entry = limiter.enter(&key("a"), &concurrent(1)).await.expect("the store answers");
        assert!(entry.is_entered(), "the slot of the program that has ended is free");
        drop(entry);
        Limiter::flush().await;
    }
}

#[tokio::test]
#[ignore = "is a process of its own"]
async fn enter_once_and_end() {
    if !child_process::is_child() {
        return;
    }
    let builder = Limiter::builder().url(child_process::variable("URL")).prefix(child_process::variable("PREFIX"));
    let limiter = builder.deadline(LONG_DEADLINE).connect().await.expect("a server");
    drop(entered(&limiter, &key("a"), &concurrent(1)).await);
    Limiter::flush().await;
    std::process::exit(0);
}

/// The notices of a process are lost until it has subscribed.
#[tokio::test(flavor = "multi_thread")]
async fn processes_that_begin_together_share_the_slots_at_once() {
    const SLOTS: u32 = 4;
    let server = RedisServer::start();
    for _ in 0..3 {
        let prefix = unique("cold");
        let latest = Instant::now() + Duration::from_secs(2);
        let mut processes = JoinSet::new();
        for process in 0..2 {
            let builder = Limiter::builder().url(server.url()).prefix(&prefix).deadline(LONG_DEADLINE);
            let limiter = builder.slot_time(Duration::from_secs(60)).build().expect("a limiter");
            for _ in 0..SLOTS {
                let limiter = limiter.clone();
                processes.spawn(async move {
                    let mut calls = 0;
                    while Instant::now() < latest {
                        let wait = Duration::from_secs(30);
                        let entry = limiter.enter_wait(&key("a"), &concurrent(SLOTS), wait).await.expect("a decision");
                        assert!(entry.is_entered());
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        calls += 1;
                        drop(entry);
                    }
                    (process, calls)
                });
            }
        }
        let calls = tokio::time::timeout(Duration::from_secs(30), processes.join_all()).await;
        let calls = calls.expect("no call waits until a renewal, a third of the slot time");
        let of_process =
            |number| calls.iter().filter(|(process, _)| *process == number).map(|(_, calls)| calls).sum::<u32>();
        assert!(of_process(0) > 0 && of_process(1) > 0, "{calls:?}");
    }
}
