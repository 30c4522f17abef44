//! Redis Cluster: keys spread over nodes, slots that move, a master that dies, and decisions about several slots.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use limiter_testkit::{Cluster, slot_of, unique};
use rate_limited::{Algorithm, Builder, Decision, ErrorKind, Key, Limit, Limiter, ManualClock, OnError, Source};
use tokio::task::JoinSet;

use crate::deadlines::{DEADLINE, SLACK, eventually};
use crate::support::{key, limit};

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

/// The name of a key in slot `slot`.
fn name_in(slot: u16) -> String {
    (0..).map(|number| format!("s{number}")).find(|name| slot_of(name.as_bytes()) == slot).expect("of so many")
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

#[tokio::test]
async fn several_slots_are_all_or_nothing() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).connect().await.expect("a cluster");
    let keys = one_a_master(&cluster);
    let (wide, narrow) = (limit("5/1h"), limit("2/1h"));
    let asked = [(&keys[0], &wide, 1), (&keys[1], &narrow, 1), (&keys[2], &wide, 2), (&keys[0], &narrow, 1)];
    let left = async || {
        let mut left = Vec::new();
        for (key, limit, _) in asked {
            left.push(limiter.peek(key, limit).await.expect("a look").remaining());
        }
        left
    };
    let Decision::Allowed(first) = limiter.check_all(&asked).await.expect("a decision") else { panic!("all fit") };
    // Those of one key and window are one count.
    assert_eq!((left().await, first.remaining(), first.limit()), (vec![3, 1, 3, 0], 0, narrow));
    let Decision::Denied(denied) = limiter.check_all(&asked).await.expect("a decision") else { panic!("one does not") };
    assert_eq!((denied.limit(), denied.remaining(), denied.is_final()), (narrow, 0, false));
    assert!(denied.retry_after() > Duration::from_secs(3590), "{denied:?}");
    assert_eq!(left().await, [3, 1, 3, 0], "nothing was taken");
    limiter.refund(&first).await.expect("given back");
    assert_eq!(left().await, [5, 2, 5, 2]);
    // Too much for one is too much for ever, whatever the others say.
    let never = limiter.check_all(&[(&keys[0], &wide, 1), (&keys[1], &narrow, 3)]).await.expect("a decision");
    assert!(never.into_result().is_err_and(|denied| denied.is_final()));
    assert_eq!(left().await, [5, 2, 5, 2]);
}

/// Between the look at all slots and the taking others may take: what was taken by then is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_slots_give_back_what_they_took_in_vain() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).connect().await.expect("a cluster");
    let keys = one_a_master(&cluster);
    let (wide, narrow) = (limit("1000/1h"), limit("20/1h"));
    let mut tasks = JoinSet::new();
    let both = Arc::new(AtomicU32::new(0));
    for _ in 0..50 {
        let (limiter, keys, both) = (limiter.clone(), keys.clone(), Arc::clone(&both));
        tasks.spawn(async move {
            let decision =
                limiter.check_all(&[(&keys[0], &wide, 1), (&keys[1], &narrow, 1)]).await.expect("a decision");
            both.fetch_add(u32::from(decision.is_allowed()), Relaxed);
        });
    }
    tasks.join_all().await;
    assert_eq!(both.load(Relaxed), 20);
    eventually("given back", async || limiter.peek(&keys[0], &wide).await.expect("a look").remaining() == 1000 - 20)
        .await;
}

/// Who was denied for what was taken in vain is denied no longer once it is given back. The clock stands still, and so would
/// a denial that is remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_in_vain_denies_nobody_after_that() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).clock(ManualClock::new()).connect().await.expect("a cluster");
    let keys = one_a_master(&cluster);
    let (wide, narrow) = (limit("25/1h"), limit("5/1h"));
    for _ in 0..40 {
        limiter.reset(&keys[0], &wide).await.expect("reset");
        limiter.reset(&keys[1], &narrow).await.expect("reset");
        let mut tasks = JoinSet::new();
        for _ in 0..40 {
            let (limiter, keys) = (limiter.clone(), keys.clone());
            tasks.spawn(async move {
                let both = [(&keys[0], &wide, 1), (&keys[1], &narrow, 1)];
                u32::from(limiter.check_all(&both).await.expect("a decision").is_allowed())
            });
        }
        let mut taken = 0;
        while !tasks.is_empty() {
            taken += u32::from(limiter.check(&keys[0], &wide).await.expect("a decision").is_allowed());
            tokio::task::yield_now().await;
            while let Some(both) = tasks.try_join_next() {
                taken += both.expect("no panic");
            }
        }
        let left = 25 - taken;
        eventually("given back", async || limiter.peek(&keys[0], &wide).await.expect("a look").remaining() == left)
            .await;
        let next = limiter.check(&keys[0], &wide).await.expect("a decision");
        assert_eq!(next.is_allowed(), left > 0, "{left} left: {next:?}");
    }
}

#[tokio::test]
async fn a_slot_that_moves_is_followed() {
    let cluster = Cluster::builder().masters_only().start();
    let clock = ManualClock::new();
    let limiter = on(&cluster).clock(clock).connect().await.expect("a cluster");
    let slot = 4711;
    let (name, second, third) = (name_in(slot), limit("9/1s"), limit("9/1h"));
    let key = key(&name);
    let check = async |limits: &[&Limit]| {
        let asked: Vec<_> = limits.iter().map(|limit| (&key, *limit, 1)).collect();
        limiter.check_all(&asked).await.expect("a decision").into_result().expect("nine are allowed").remaining()
    };
    let from = cluster.master_of(slot);
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("another");
    assert_eq!(check(&[&second]).await, 8);
    assert_eq!(check(&[&second, &third]).await, 7);
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(check(&[&second, &third]).await, 6, "still there");
    assert_eq!(migration.move_keys(1), 1);
    // One is here, the other there: no node can decide about both until they are together again.
    let both = tokio::spawn({
        let (limiter, key) = (limiter.clone(), key.clone());
        async move { limiter.check_all(&[(&key, &second, 1), (&key, &third, 1)]).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!both.is_finished());
    assert_eq!(migration.move_keys(10), 1);
    assert_eq!(both.await.expect("no panic").expect("a decision").remaining(), 5);
    assert_eq!(check(&[&second]).await, 4, "asked where it is going");
    cluster.server(to).command(&["SCRIPT", "FLUSH"]);
    assert_eq!(check(&[&second]).await, 3);
    migration.finish();
    assert_eq!(check(&[&second]).await, 2, "moved");
    assert_eq!(check(&[&third]).await, 5);
    assert_eq!(cluster.server(to).keys().len(), 2);
}

/// Calls that go together need not be decided together: the keys of some have arrived, those of others have not.
#[tokio::test]
async fn calls_on_keys_of_a_slot_that_moves_do_not_wait_for_each_other() {
    const CALLS: u32 = 30;
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).deadline(Duration::from_secs(2)).connect().await.expect("a cluster");
    let slot = 4711;
    let (name, limits) = (name_in(slot), ["99/1m", "99/1h", "99/2h"].map(limit));
    for limit in &limits[..2] {
        assert_eq!(limiter.check(&key(&name), limit).await.expect("a decision").remaining(), 98);
    }
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.move_keys(1), 1);
    let mut calls = JoinSet::new();
    for (limit, _) in limits.into_iter().cycle().zip(0..3 * CALLS) {
        let (limiter, key) = (limiter.clone(), key(&name));
        calls.spawn(async move { limiter.check(&key, &limit).await.expect("a decision").is_allowed() });
    }
    assert!(calls.join_all().await.into_iter().all(|allowed| allowed));
    migration.finish();
    for (limit, before) in limits.iter().zip([1, 1, 0]) {
        let left = limiter.peek(&key(&name), limit).await.expect("a decision").remaining();
        assert_eq!(left, 99 - before - CALLS, "{limit:?}: each was counted once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load_and_nobody_notices() {
    let cluster = Arc::new(Cluster::builder().masters_only().start());
    let limiter = on(&cluster).connect().await.expect("a cluster");
    let (slots, most) = (100..112, 40);
    let limit = limit("40/1h");
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for slot in slots.clone() {
        for _ in 0..2 {
            let (limiter, key, over) = (limiter.clone(), key(&name_in(slot)), Arc::clone(&over));
            tasks.spawn(async move {
                let mut taken = 0;
                while !over.load(Relaxed) {
                    taken += u32::from(limiter.check(&key, &limit).await.expect("a decision").is_allowed());
                    tokio::time::sleep(Duration::from_millis(4)).await;
                }
                (slot, taken)
            });
        }
    }
    let movers = tokio::task::spawn_blocking(move || {
        for slot in slots {
            let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
            cluster.migrate_slot(slot, to);
        }
        cluster
    });
    let cluster = movers.await.expect("moved");
    tokio::time::sleep(Duration::from_millis(300)).await;
    over.store(true, Relaxed);
    let mut taken = std::collections::BTreeMap::<u16, u32>::new();
    for (slot, some) in tasks.join_all().await {
        *taken.entry(slot).or_default() += some;
    }
    assert!(taken.values().all(|taken| *taken == most), "{taken:?}");
    let homes: BTreeSet<_> = taken.keys().map(|slot| cluster.master_of(*slot)).collect();
    assert!(!homes.contains(&cluster.master_of(0)));
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
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for (index, key) in keys.iter().enumerate() {
        let (limiter, key, over) = (limiter.clone(), key.clone(), Arc::clone(&over));
        tasks.spawn(async move {
            let (mut slowest, mut sources, mut last_by_standby) = (Duration::ZERO, Vec::new(), Instant::now());
            while !over.load(Relaxed) {
                let asked = Instant::now();
                let allowed = limiter.check(&key, &limit).await.expect("a decision").into_result().expect("enough");
                slowest = slowest.max(asked.elapsed());
                if allowed.source() == Source::Standby {
                    last_by_standby = Instant::now();
                }
                if sources.last() != Some(&allowed.source()) {
                    sources.push(allowed.source());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            (index, slowest, sources, last_by_standby)
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.kill(victim);
    let cluster = tokio::task::spawn_blocking(move || (cluster.wait_for_promotion(victim), cluster));
    let (_, _cluster) = cluster.await.expect("promoted");
    let promoted = Instant::now();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    over.store(true, Relaxed);
    for (index, slowest, sources, last_by_standby) in tasks.join_all().await {
        assert!(slowest <= DEADLINE + SLACK, "a call took {slowest:?}");
        if index == 0 {
            assert_eq!(sources, [Source::Store, Source::Standby, Source::Store]);
            let back = last_by_standby.saturating_duration_since(promoted);
            assert!(back < Duration::from_secs(2), "back {back:?} after the promotion");
        } else {
            assert_eq!(sources, [Source::Store], "of another master");
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
