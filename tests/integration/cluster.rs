//! Tests on Redis Cluster: keys spread over the masters, and the failure of a master.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use limiter_testkit::{Cluster, slot_of, unique};
use rate_limited::{Algorithm, Builder, ErrorKind, Key, Limit, Limiter, OnError, Source};
use tokio::task::JoinSet;

use crate::deadlines::{DEADLINE, MAX_LATENESS, eventually};
use crate::support::{key, limit};

mod migration;
mod multi_slot;

pub(crate) fn builder_for(cluster: &Cluster) -> Builder {
    Limiter::builder()
        .url(cluster.url())
        .prefix(unique("cluster"))
        .deadline(Duration::from_secs(5))
        .on_error(OnError::Raise)
}

/// Returns a key for each master, in the order of their slots.
pub(crate) fn key_per_master(cluster: &Cluster) -> Vec<Key> {
    let masters = cluster.masters();
    let name = |master| {
        let mut names = (0..).map(|number| format!("k{number}"));
        names.find(|name| cluster.master_of(slot_of(name.as_bytes())) == master).expect("one of many names")
    };
    masters.into_iter().map(|master| key(&name(master))).collect()
}

/// Returns names of keys in slot `slot`.
pub(crate) fn names_in(slot: u16) -> impl Iterator<Item = String> {
    (0..).map(|number| format!("s{number}")).filter(move |name| slot_of(name.as_bytes()) == slot)
}

pub(crate) fn name_in(slot: u16) -> String {
    names_in(slot).next().expect("one of many names")
}

async fn take_all(limiter: &Limiter, key: &Key, limit: &Limit) -> usize {
    let mut taken = 0;
    while limiter.check(key, limit).await.expect("a decision").is_allowed() {
        taken += 1;
    }
    taken
}

#[tokio::test]
async fn cluster_decides_like_one_server() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = builder_for(&cluster).connect().await.expect("a cluster");
    for algorithm in
        [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::SlidingCounter, Algorithm::TokenBucket]
    {
        let limit = limit("5/366d").with_algorithm(algorithm);
        for number in 0..30 {
            assert_eq!(take_all(&limiter, &key(&format!("k{number}")), &limit).await, 5);
        }
    }
    let used = cluster.masters().into_iter().map(|master| cluster.server(master).keys().len()).collect::<Vec<_>>();
    assert_eq!(used.iter().sum::<usize>(), 4 * 30);
    assert!(used.iter().all(|keys| *keys > 20), "spread over all: {used:?}");
}

/// Calls on three keys, one per master, while one master is killed. Keys of the other masters are unaffected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_master_affects_no_other_master_and_its_replica_takes_over() {
    let mut cluster = Cluster::builder().setting("cluster-require-full-coverage", "no").start();
    let limiter =
        builder_for(&cluster).deadline(DEADLINE).on_error(OnError::Standby).connect().await.expect("a cluster");
    let (keys, limit) = (key_per_master(&cluster), limit("100000/1h"));
    let victim = cluster.masters()[0];
    for key in &keys {
        assert!(limiter.check(key, &limit).await.expect("a decision").is_allowed());
    }
    cluster.settle();
    let [is_over, is_promoted, is_back] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for (index, key) in keys.into_iter().enumerate() {
        let (limiter, is_over) = (limiter.clone(), Arc::clone(&is_over));
        let (is_promoted, is_back) = (Arc::clone(&is_promoted), Arc::clone(&is_back));
        tasks.spawn(async move {
            let mut first_by_standby = None;
            while !is_over.load(Relaxed) {
                let (began, was_promoted) = (Instant::now(), is_promoted.load(Relaxed));
                let allowed = limiter.check(&key, &limit).await.expect("a decision").into_result().expect("enough");
                let took = began.elapsed();
                assert!(took <= DEADLINE + MAX_LATENESS, "a call took {took:?}");
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
    eventually("decided by the promoted master", || async { is_back.load(Relaxed) }).await;
    is_over.store(true, Relaxed);
    for (index, first_by_standby) in tasks.join_all().await {
        if index == 0 {
            assert!(first_by_standby.is_some(), "no call was decided by the standby limiter");
        } else {
            // A busy machine may miss a deadline. An effect of the killed master would show earlier.
            assert!(
                first_by_standby.is_none_or(|took| took >= DEADLINE),
                "a key of another master: {first_by_standby:?}"
            );
        }
    }
}

#[tokio::test]
async fn flushed_scripts_are_loaded_again_on_each_master() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = builder_for(&cluster).connect().await.expect("a cluster");
    let (keys, limit) = (key_per_master(&cluster), limit("3/1h"));
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
async fn cluster_url_of_a_plain_server_is_rejected_with_a_hint() {
    let server = limiter_testkit::RedisServer::builder().tcp().start();
    let url = server.url().replacen("redis:", "redis-cluster:", 1);
    let error = Limiter::connect(&url).await.expect_err("no cluster");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("write `redis://` instead of `redis-cluster://`"), "{error}");
}

/// A slot is taken from its master and assigned to another one without its counters.
#[tokio::test]
async fn unassigned_slot_gives_no_fresh_quota() {
    let cluster = Cluster::builder().masters_only().setting("cluster-require-full-coverage", "no").start();
    let limiter =
        builder_for(&cluster).deadline(DEADLINE).on_error(OnError::Standby).connect().await.expect("a cluster");
    let (limit, limit_of_other) = (limit("5/1h"), limit("100000/1h"));
    let slot = 4711;
    let key = key(&name_in(slot));
    assert_eq!(take_all(&limiter, &key, &limit).await, 5);
    let from = cluster.master_of(slot);
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("another");
    let others = cluster.masters().into_iter().filter(|master| *master != from);
    // Its master first: otherwise it would announce to the others that it owns the slot.
    for master in [from].into_iter().chain(others) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.server(master).command(&["CLUSTER", "DELSLOTS", &slot.to_string()]);
    }
    // Calls on another key of that slot make the limiter notice.
    let other = Key::new((0..).map(|n| format!("t{n}")).find(|name| slot_of(name.as_bytes()) == slot).expect("many"));
    let by_store = async || {
        let decision = limiter.check(&other, &limit_of_other).await.expect("a decision");
        tokio::time::sleep(Duration::from_millis(20)).await;
        decision.into_result().expect("enough").source() == Source::Store
    };
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(1) {
        by_store().await;
    }
    cluster.server(to).command(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
    eventually("served again", by_store).await;
    assert_eq!(take_all(&limiter, &key, &limit).await, 0);
}

#[tokio::test]
async fn connect_with_six_dead_nodes_fails_within_five_seconds() {
    let silent: Vec<_> = (0..6).map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<_> = silent.iter().map(|listener| listener.local_addr().expect("bound").to_string()).collect();
    let started = Instant::now();
    let error =
        Limiter::connect(&format!("redis-cluster://{}", addresses.join(","))).await.expect_err("no node replies");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(5) + MAX_LATENESS, "{:?}", started.elapsed());
}

/// A node outside any cluster knows no slots, so the limiter queries the next one in the URL.
#[tokio::test]
async fn node_without_slots_is_skipped() {
    let cluster = Cluster::builder().masters_only().start();
    let outsider = limiter_testkit::RedisServer::builder().tcp().setting("cluster-enabled", "yes").start();
    let cluster_url = cluster.url();
    let (scheme, nodes) = cluster_url.split_once("://").expect("a URL");
    let url = format!("{scheme}://{},{nodes}", crate::support::tcp_address(&outsider));
    let limiter = Limiter::connect(&url).await.expect("the cluster is there");
    assert!(limiter.check(&key("a"), &limit("1/h")).await.expect("a decision").is_allowed());
}
