//! Tests of slot migration while calls go on.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use limiter_testkit::history::{Admission, feasible};
use limiter_testkit::{Cluster, NodeId, Random, unique};
use rate_limited::{Decision, Key, Limit, Limiter, ManualClock, OnError, Source};
use tokio::task::JoinSet;

use super::{builder_for, name_in, names_in};
use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, key, limit};

/// Returns a slot, and a master that does not own it.
fn slot_and_target(cluster: &Cluster) -> (u16, NodeId) {
    let slot = 4711;
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
    (slot, to)
}

#[tokio::test]
async fn calls_follow_a_migrating_slot() {
    let cluster = Cluster::builder().masters_only().start();
    let clock = ManualClock::new();
    let limiter = builder_for(&cluster).clock(clock).connect().await.expect("a cluster");
    let slot = 4711;
    let (name, per_second, per_hour) = (name_in(slot), limit("9/1s"), limit("9/1h"));
    let key = key(&name);
    let check = async |limits: &[&Limit]| {
        let requests: Vec<_> = limits.iter().map(|limit| (&key, *limit, 1)).collect();
        limiter.check_all(&requests).await.expect("a decision").into_result().expect("nine are allowed").remaining()
    };
    let from = cluster.master_of(slot);
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("another");
    assert_eq!(check(&[&per_second]).await, 8);
    assert_eq!(check(&[&per_second, &per_hour]).await, 7);
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(check(&[&per_second, &per_hour]).await, 6, "no counter has moved");
    assert_eq!(migration.move_keys(1), 1);
    assert_eq!(check(&[&per_second, &per_hour]).await, 5, "one counter has moved, the other has not");
    assert_eq!(migration.move_keys(10), 1);
    assert_eq!(check(&[&per_second]).await, 4, "redirected to the target");
    cluster.server(to).command(&["SCRIPT", "FLUSH"]);
    assert_eq!(check(&[&per_second]).await, 3);
    migration.finish();
    assert_eq!(check(&[&per_second]).await, 2, "moved");
    assert_eq!(check(&[&per_hour]).await, 5);
    assert_eq!(cluster.server(to).keys().len(), 2);
}

/// Calls of one batch may be decided on different nodes: some keys have moved, others have not.
#[tokio::test]
async fn batched_calls_on_a_migrating_slot_are_counted_once_each() {
    const CALLS: u32 = 30;
    let cluster = Cluster::builder().masters_only().start();
    let limiter = builder_for(&cluster).connect().await.expect("a cluster");
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
        assert_eq!(left, 99 - before - CALLS, "{limit:?}: each call was counted once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migration_under_load_keeps_the_limit_and_fails_no_call() {
    let cluster = Arc::new(Cluster::builder().masters_only().start());
    let limiter = builder_for(&cluster).connect().await.expect("a cluster");
    let (slots, most) = (100..112, 40);
    let limit = limit("40/1h");
    let is_over = Arc::new(AtomicBool::new(false));
    let taken: Arc<BTreeMap<u16, AtomicU32>> = Arc::new(slots.clone().map(|slot| (slot, AtomicU32::new(0))).collect());
    let mut tasks = JoinSet::new();
    for slot in slots.clone() {
        for _ in 0..2 {
            let (limiter, key, is_over) = (limiter.clone(), key(&name_in(slot)), Arc::clone(&is_over));
            let taken = Arc::clone(&taken);
            tasks.spawn(async move {
                while !is_over.load(Relaxed) {
                    let is_allowed = limiter.check(&key, &limit).await.expect("a decision").is_allowed();
                    taken[&slot].fetch_add(is_allowed.into(), Relaxed);
                    tokio::time::sleep(Duration::from_millis(4)).await;
                }
            });
        }
    }
    let migrations = tokio::task::spawn_blocking(move || {
        for slot in slots {
            let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
            cluster.migrate_slot(slot, to);
        }
        cluster
    });
    let cluster = migrations.await.expect("moved");
    eventually("used up", async || taken.values().all(|taken| taken.load(Relaxed) >= most)).await;
    is_over.store(true, Relaxed);
    tasks.join_all().await;
    assert!(taken.values().all(|taken| taken.load(Relaxed) == most), "{taken:?}");
    let homes: BTreeSet<_> = taken.keys().map(|slot| cluster.master_of(*slot)).collect();
    assert!(!homes.contains(&cluster.master_of(0)));
}

/// One of three counters has moved, one has not, and one does not exist yet. No node can decide about all of them.
#[tokio::test]
async fn decision_split_by_a_migration_is_all_or_nothing() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = builder_for(&cluster).connect().await.expect("a cluster");
    let (slot, to) = slot_and_target(&cluster);
    let (key, limits) = (key(&name_in(slot)), ["5/1m", "4/1h", "3/2h"].map(limit));
    let all = async || {
        let requests = limits.each_ref().map(|limit| (&key, limit, 1));
        limiter.check_all(&requests).await.expect("a decision")
    };
    let left = async || {
        let mut left = Vec::new();
        for limit in &limits {
            left.push(limiter.peek(&key, limit).await.expect("a peek").remaining());
        }
        left
    };
    let allowed = |decision: Decision| decision.into_result().expect("room");
    for limit in &limits[..2] {
        assert!(limiter.check(&key, limit).await.expect("a decision").is_allowed());
    }
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.move_keys(1), 1);
    let first = allowed(all().await);
    assert_eq!((left().await, first.remaining(), first.limit()), (vec![3, 2, 2], 2, limits[1]));
    let second = allowed(all().await);
    limiter.refund(&first).await.expect("refunded during the migration");
    assert_eq!(left().await, [3, 2, 2]);
    let third = [allowed(all().await), allowed(all().await)];
    assert_eq!(left().await, [1, 0, 0]);
    let Decision::Denied(denied) = all().await else { panic!("two of three are used up") };
    assert_eq!((denied.limit(), denied.remaining(), denied.source()), (limits[1], 0, Source::Store));
    eventually("no permit was taken from the first counter", async || left().await == [1, 0, 0]).await;
    migration.finish();
    assert!(all().await.is_denied());
    // Their permits were taken one by one, possibly at different instants.
    for receipt in [&second, &third[0], &third[1]] {
        limiter.refund(receipt).await.expect("refunded after the migration");
    }
    assert_eq!(left().await, [4, 3, 3]);
    let whole = allowed(all().await);
    let back = cluster.begin_migration(slot, cluster.masters().into_iter().find(|node| *node != to).expect("another"));
    assert_eq!(back.move_keys(1), 1);
    limiter.refund(&whole).await.expect("taken in one script call, refunded in two");
    assert_eq!(left().await, [4, 3, 3]);
    back.finish();
}

/// A decision over two slots, one of which is migrating.
#[tokio::test]
async fn multi_slot_decision_with_a_migrating_slot_is_all_or_nothing() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = builder_for(&cluster).connect().await.expect("a cluster");
    let (slot, to) = slot_and_target(&cluster);
    let (moves, stays) = (key(&name_in(slot)), key(&name_in(1)));
    let (short, long) = (limit("3/1m"), limit("2/1h"));
    let requests = [(&moves, &short, 1), (&stays, &short, 1), (&moves, &long, 1)];
    let decide = async || limiter.check_all(&requests).await.expect("a decision");
    assert!(limiter.check(&moves, &short).await.expect("a decision").is_allowed());
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.move_keys(1), 1);
    assert!(decide().await.is_allowed());
    migration.move_keys(1);
    let allowed = decide().await.into_result().expect("room for two");
    assert_eq!(allowed.remaining(), 0);
    assert!(decide().await.is_denied());
    limiter.refund(&allowed).await.expect("refunded");
    assert!(decide().await.is_allowed());
    migration.finish();
    let left = async |key, limit| limiter.peek(key, limit).await.expect("a peek").remaining();
    let all = async || (left(&moves, &short).await, left(&stays, &short).await, left(&moves, &long).await);
    eventually("counted once each", async || all().await == (0, 1, 0)).await;
}

/// There are four instances, so the standby limiter grants only a quarter of the limit. This shows which one decided.
#[tokio::test]
async fn noticed_migration_does_not_consult_the_standby_limiter() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = builder_for(&cluster).instances(4).on_error(OnError::Standby).connect().await.expect("a cluster");
    let (slot, limit) = (4711, limit("8/1h"));
    let key = key(&name_in(slot));
    let take = async || match limiter.check(&key, &limit).await.expect("a decision") {
        Decision::Allowed(allowed) => (true, allowed.source()),
        Decision::Denied(denied) => (false, denied.source()),
    };
    let migrate = || {
        let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
        let migration = cluster.begin_migration(slot, to);
        assert_eq!(migration.move_keys(10), 1);
        migration
    };
    for _ in 0..4 {
        assert_eq!(take().await, (true, Source::Store));
    }
    let migration = migrate();
    assert_eq!(take().await, (true, Source::Store), "redirected to the target");
    migration.finish();
    for _ in 0..2 {
        assert_eq!(take().await, (true, Source::Store));
    }
    // No call noticed this migration, so the limiter must assume that the slot may have lost its counters.
    migrate().finish();
    assert_eq!(take().await, (false, Source::Standby));
}

/// Two keys of one slot with two limits each, and the state that all calling tasks share.
#[derive(Clone)]
struct Traffic {
    keys: [Key; 2],
    /// The limits of each key. The longer limit of the first key is soon used up.
    limits: [[Limit; 2]; 2],
    origin: Instant,
    is_over: Arc<AtomicBool>,
    /// The number of completed calls, by process.
    completed: Arc<[AtomicU32]>,
}

/// Results of one task's calls.
#[derive(Default)]
struct TaskResults {
    /// Admissions that were not refunded, by key and limit.
    admissions: [[Vec<Admission>; 2]; 2],
}

impl Traffic {
    async fn calls(self, process: usize, limiter: Limiter, mut random: Random) -> TaskResults {
        let mut results = TaskResults::default();
        while !self.is_over.load(Relaxed) {
            // Mostly both limits together.
            let (key, limits) =
                [(0, 0..2), (1, 0..2), (1, 0..1), (1, 1..2)][usize::try_from(random.below(4)).expect("small")].clone();
            let requests: Vec<_> = limits.clone().map(|limit| (&self.keys[key], &self.limits[key][limit], 1)).collect();
            let start = self.origin.elapsed();
            let decision = limiter.check_all(&requests).await.expect("a decision");
            let admission = Admission { start, end: self.origin.elapsed(), cost: 1 };
            match decision {
                Decision::Allowed(allowed) if random.below(4) == 0 => {
                    limiter.refund(&allowed).await.expect("refunded");
                }
                Decision::Allowed(_) => limits.for_each(|limit| results.admissions[key][limit].push(admission)),
                Decision::Denied(_) => {}
            }
            self.completed[process].fetch_add(1, Relaxed);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        results
    }

    /// Waits until each process has completed some more calls, or is stuck.
    fn wait_for_progress(&self) {
        let counts = || self.completed.iter().map(|completed| completed.load(Relaxed));
        let (before, since) = (counts().collect::<Vec<_>>(), Instant::now());
        let all_have = || counts().zip(&before).all(|(now, before)| now >= before + 5);
        while !all_have() && since.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Three processes decide about two limits of a key while its slot migrates repeatedly. Each step of a migration waits
/// until all processes have made calls, so that they meet every step on every machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_limits_of_a_key_hold_while_its_slot_migrates() {
    const PROCESSES: usize = 3;
    const MIN_DURATION: Duration = Duration::from_secs(2);
    let cluster = Arc::new(Cluster::builder().masters_only().start());
    let (prefix, slot) = (unique("moving"), 4711);
    let mut names = names_in(slot);
    let traffic = Traffic {
        keys: [(); 2].map(|()| key(&names.next().expect("one of many names"))),
        limits: [["5/300ms", "10/h"], ["5/300ms", "100000/h"]].map(|limits| limits.map(limit)),
        origin: Instant::now(),
        is_over: Arc::default(),
        completed: (0..PROCESSES).map(|_| AtomicU32::new(0)).collect(),
    };
    let mut tasks = JoinSet::new();
    let mut limiters = Vec::new();
    let errors = Arc::new(Mutex::new(Vec::new()));
    for process in 0..PROCESSES {
        let builder = builder_for(&cluster).prefix(&prefix).deadline(LONG_DEADLINE).on_error(OnError::Standby);
        let builder = builder.on_failure({
            let errors = Arc::clone(&errors);
            move |error| errors.lock().expect("not poisoned").push(error.to_string())
        });
        limiters.push(builder.connect().await.expect("a cluster"));
        for task in 0..2 {
            let random = Random::new((2 * process + task) as u64);
            tasks.spawn(traffic.clone().calls(process, limiters[process].clone(), random));
        }
    }
    let moves = tokio::task::spawn_blocking({
        let (cluster, traffic) = (Arc::clone(&cluster), traffic.clone());
        move || {
            traffic.wait_for_progress();
            while traffic.origin.elapsed() < MIN_DURATION {
                let (_, to) = slot_and_target(&cluster);
                let migration = cluster.begin_migration(slot, to);
                for _ in 0..3 {
                    traffic.wait_for_progress();
                    migration.move_keys(1);
                }
                traffic.wait_for_progress();
                migration.finish();
                traffic.wait_for_progress();
            }
        }
    });
    moves.await.expect("no panic");
    traffic.is_over.store(true, Relaxed);
    let results = tasks.join_all().await;
    // The standby limiter may be consulted: a node that is late may name the owner before the move.
    let errors = mem::take(&mut *errors.lock().expect("not poisoned"));
    assert!(errors.is_empty(), "calls failed: {errors:?}");
    for (key, limits) in traffic.limits.iter().enumerate() {
        for (index, limit) in limits.iter().enumerate() {
            let admissions: Vec<_> =
                results.iter().flat_map(|results| &results.admissions[key][index]).copied().collect();
            feasible(&admissions, limit.window(), limit.max()).expect("the limit is kept");
            assert!(admissions.len() >= 5, "{} calls were allowed", admissions.len());
            if index == 1 {
                let left = limit.max() - u32::try_from(admissions.len()).expect("few");
                eventually("no permit is counted beyond those granted", async || {
                    limiters[0].peek(&traffic.keys[key], limit).await.expect("a peek").remaining() == left
                })
                .await;
            }
        }
    }
}

/// Messages about slots of calls, in one script call: some keys have moved, others have not, and some do not exist yet.
#[tokio::test]
async fn slots_of_calls_on_a_migrating_slot_are_taken_and_given_back() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = builder_for(&cluster).connect().await.expect("a cluster");
    let ((slot, to), limit) = (slot_and_target(&cluster), Limit::concurrent(2).expect("valid"));
    let keys: Vec<_> = names_in(slot).take(24).map(|name| key(&name)).collect();
    let enter = async |keys: &[Key]| {
        let call = |key: &Key| {
            let (limiter, key) = (limiter.clone(), key.clone());
            async move { limiter.enter(&key, &limit).await.expect("a decision").entered().expect("a free slot") }
        };
        keys.iter().map(call).collect::<JoinSet<_>>().join_all().await
    };
    let first = enter(&keys[..16]).await;
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.move_keys(8), 8);
    for _ in 0..8 {
        drop(enter(&keys).await);
    }
    let second = enter(&keys).await;
    migration.finish();
    let free = async |key| limiter.peek(key, &limit).await.expect("a peek").remaining();
    assert_eq!((free(&keys[0]).await, free(&keys[23]).await), (0, 1));
    drop((first, second));
    for key in &keys {
        eventually("free", async || free(key).await == 2).await;
    }
}
