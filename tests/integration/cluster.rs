//! Redis Cluster: keys spread over nodes, and a master that dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use limiter_testkit::{Cluster, slot_of, unique};
use rate_limited::{Algorithm, Builder, ErrorKind, Key, Limit, Limiter, OnError, Source};
use tokio::task::JoinSet;

use crate::deadlines::{DEADLINE, SLACK, eventually};
use crate::support::{key, limit};

mod moving;
mod several_slots;

fn on(cluster: &Cluster) -> Builder {
    Limiter::builder()
        .url(&cluster.url())
        .prefix(&unique("cluster"))
        .deadline(Duration::from_secs(5))
        .on_error(OnError::Raise)
}

/// A key for each master, in the order of their slots.
fn one_a_master(cluster: &Cluster) -> Vec<Key> {
    let masters = cluster.masters();
    let name = |master| {
        let mut names = (0..).map(|number| format!("k{number}"));
        names.find(|name| cluster.master_of(slot_of(name.as_bytes())) == master).expect("of so many")
    };
    masters.into_iter().map(|master| key(&name(master))).collect()
}

/// The names of keys in slot `slot`.
fn names_in(slot: u16) -> impl Iterator<Item = String> {
    (0..).map(|number| format!("s{number}")).filter(move |name| slot_of(name.as_bytes()) == slot)
}

fn name_in(slot: u16) -> String {
    names_in(slot).next().expect("of so many")
}

async fn takes(limiter: &Limiter, key: &Key, limit: &Limit) -> usize {
    let mut taken = 0;
    while limiter.check(key, limit).await.expect("a decision").is_allowed() {
        taken += 1;
    }
    taken
}

#[tokio::test]
async fn decisions_are_as_on_one_server() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).connect().await.expect("a cluster");
    for algorithm in
        [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::SlidingCounter, Algorithm::TokenBucket]
    {
        let limit = limit("5/366d").with_algorithm(algorithm);
        for number in 0..30 {
            assert_eq!(takes(&limiter, &key(&format!("k{number}")), &limit).await, 5);
        }
    }
    let used = cluster.masters().into_iter().map(|master| cluster.server(master).keys().len()).collect::<Vec<_>>();
    assert_eq!(used.iter().sum::<usize>(), 4 * 30);
    assert!(used.iter().all(|keys| *keys > 20), "spread over all: {used:?}");
}

/// Calls of three keys, one a master, while one of the masters dies: the other two go on as if nothing had happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_is_nothing_to_the_others_and_its_replica_follows() {
    let mut cluster = Cluster::builder().setting("cluster-require-full-coverage", "no").start();
    let limiter = on(&cluster).deadline(DEADLINE).on_error(OnError::Standby).connect().await.expect("a cluster");
    let (keys, limit) = (one_a_master(&cluster), limit("100000/1h"));
    let victim = cluster.masters()[0];
    for key in &keys {
        assert!(limiter.check(key, &limit).await.expect("a decision").is_allowed());
    }
    cluster.settle();
    let [over, is_promoted, is_back] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for (index, key) in keys.into_iter().enumerate() {
        let (limiter, over) = (limiter.clone(), Arc::clone(&over));
        let (is_promoted, is_back) = (Arc::clone(&is_promoted), Arc::clone(&is_back));
        tasks.spawn(async move {
            let mut first_by_standby = None;
            while !over.load(Relaxed) {
                let (began, was_promoted) = (Instant::now(), is_promoted.load(Relaxed));
                let allowed = limiter.check(&key, &limit).await.expect("a decision").into_result().expect("enough");
                let took = began.elapsed();
                assert!(took <= DEADLINE + SLACK, "a call took {took:?}");
                match allowed.source() {
                    Source::Standby => _ = first_by_standby.get_or_insert(took),
                    source => {
                        assert_eq!(source, Source::Store);
                        is_back.fetch_or(index == 0 && was_promoted, Relaxed);
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            (index, first_by_standby)
        });
    }
    cluster.kill(victim);
    let cluster = tokio::task::spawn_blocking(move || (cluster.wait_for_promotion(victim), cluster));
    let (_, _cluster) = cluster.await.expect("promoted");
    is_promoted.store(true, Relaxed);
    eventually("decided by the new master", || async { is_back.load(Relaxed) }).await;
    over.store(true, Relaxed);
    for (index, first_by_standby) in tasks.join_all().await {
        if index == 0 {
            assert!(first_by_standby.is_some(), "nothing was left to the standby limiter");
        } else {
            // A busy machine may miss a deadline. The death of another master would show at once.
            assert!(first_by_standby.is_none_or(|took| took >= DEADLINE), "of another master: {first_by_standby:?}");
        }
    }
}

#[tokio::test]
async fn a_master_without_its_scripts_gets_them_again() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).connect().await.expect("a cluster");
    let (keys, limit) = (one_a_master(&cluster), limit("3/1h"));
    for key in &keys {
        assert!(limiter.check(key, &limit).await.expect("a decision").is_allowed());
    }
    for master in cluster.masters() {
        cluster.server(master).command(&["SCRIPT", "FLUSH"]);
    }
    for key in &keys {
        assert_eq!(limiter.check(key, &limit).await.expect("a decision").remaining(), 1);
    }
}

#[tokio::test]
async fn a_server_that_is_no_cluster_says_so() {
    let server = limiter_testkit::RedisServer::builder().tcp().start();
    let url = server.url().replacen("redis:", "redis-cluster:", 1);
    let error = Limiter::connect(&url).await.expect_err("no cluster");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("write `redis://` instead of `redis-cluster://`"), "{error}");
}

/// A slot is taken from its master, and given to another without what was counted there.
#[tokio::test]
async fn a_slot_that_was_nobodys_for_a_while_is_no_fresh_quota() {
    let cluster = Cluster::builder().masters_only().setting("cluster-require-full-coverage", "no").start();
    let limiter = on(&cluster).deadline(DEADLINE).on_error(OnError::Standby).connect().await.expect("a cluster");
    let (limit, limit_of_other) = (limit("5/1h"), limit("100000/1h"));
    let slot = 4711;
    let key = key(&name_in(slot));
    assert_eq!(takes(&limiter, &key, &limit).await, 5);
    let from = cluster.master_of(slot);
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("another");
    let others = cluster.masters().into_iter().filter(|master| *master != from);
    // Its master first: the others would hear from it that it has the slot.
    for master in [from].into_iter().chain(others) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.server(master).command(&["CLUSTER", "DELSLOTS", &slot.to_string()]);
    }
    // Somebody asks about another key of that slot, so that the limiter hears of it.
    let other = Key::new((0..).map(|n| format!("t{n}")).find(|name| slot_of(name.as_bytes()) == slot).expect("many"));
    let by_store = async || {
        let decision = limiter.check(&other, &limit_of_other).await.expect("a decision");
        tokio::time::sleep(Duration::from_millis(20)).await;
        decision.into_result().expect("enough").source() == Source::Store
    };
    let asked = Instant::now();
    while asked.elapsed() < Duration::from_secs(1) {
        by_store().await;
    }
    cluster.server(to).command(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
    eventually("served again", by_store).await;
    assert_eq!(takes(&limiter, &key, &limit).await, 0);
}

#[tokio::test]
async fn many_dead_nodes_in_the_url_are_told_within_five_seconds() {
    let silent: Vec<_> = (0..6).map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let places: Vec<_> = silent.iter().map(|place| place.local_addr().expect("bound").to_string()).collect();
    let asked = Instant::now();
    let error = Limiter::connect(&format!("redis-cluster://{}", places.join(","))).await.expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

/// A node that was added to no cluster yet, or was taken out of one, knows of nobody: the next is asked.
#[tokio::test]
async fn a_node_that_knows_of_no_slots_is_not_believed() {
    let cluster = Cluster::builder().masters_only().start();
    let lonely = limiter_testkit::RedisServer::builder().tcp().setting("cluster-enabled", "yes").start();
    let known = cluster.url();
    let (scheme, nodes) = known.split_once("://").expect("a URL");
    let url = format!("{scheme}://{},{nodes}", crate::support::place(&lonely));
    let limiter = Limiter::connect(&url).await.expect("the cluster is there");
    assert!(limiter.check(&key("a"), &limit("1/h")).await.expect("a decision").is_allowed());
}
