//! Several limiters that share the slots of one store, as processes do.

use std::time::{Duration, Instant};

use limiter_testkit::{Cluster, RedisServer, unique};
use rate_limited::{Key, Limit, Limiter};

use super::{concurrent, denied, entered};
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
