//! Slots that move from one master to another while calls go on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use limiter_testkit::history::{Admission, feasible};
use limiter_testkit::{Cluster, NodeId, Random, unique};
use rate_limited::{Decision, Key, Limit, Limiter, ManualClock, OnError, Source};
use tokio::task::JoinSet;

use super::{name_in, names_in, on};
use crate::deadlines::eventually;
use crate::support::{key, limit};

/// A slot, and a master that does not have it.
fn slot_and_target(cluster: &Cluster) -> (u16, NodeId) {
    let slot = 4711;
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
    (slot, to)
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
    assert_eq!(check(&[&second, &third]).await, 5, "one is here, the other there");
    assert_eq!(migration.move_keys(10), 1);
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
    let taken: Arc<BTreeMap<u16, AtomicU32>> = Arc::new(slots.clone().map(|slot| (slot, AtomicU32::new(0))).collect());
    let mut tasks = JoinSet::new();
    for slot in slots.clone() {
        for _ in 0..2 {
            let (limiter, key, over) = (limiter.clone(), key(&name_in(slot)), Arc::clone(&over));
            let taken = Arc::clone(&taken);
            tasks.spawn(async move {
                while !over.load(Relaxed) {
                    let is_allowed = limiter.check(&key, &limit).await.expect("a decision").is_allowed();
                    taken[&slot].fetch_add(is_allowed.into(), Relaxed);
                    tokio::time::sleep(Duration::from_millis(4)).await;
                }
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
    eventually("used up", async || taken.values().all(|taken| taken.load(Relaxed) >= most)).await;
    over.store(true, Relaxed);
    tasks.join_all().await;
    assert!(taken.values().all(|taken| taken.load(Relaxed) == most), "{taken:?}");
    let homes: BTreeSet<_> = taken.keys().map(|slot| cluster.master_of(*slot)).collect();
    assert!(!homes.contains(&cluster.master_of(0)));
}

/// Of three counts of one key one has moved, one has not, and one does not exist yet: no node can decide about them together.
#[tokio::test]
async fn a_decision_that_is_torn_apart_is_all_or_nothing() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).deadline(Duration::from_secs(1)).connect().await.expect("a cluster");
    let (slot, to) = slot_and_target(&cluster);
    let (key, limits) = (key(&name_in(slot)), ["5/1m", "4/1h", "3/2h"].map(limit));
    let all = async || {
        let asked = limits.each_ref().map(|limit| (&key, limit, 1));
        limiter.check_all(&asked).await.expect("a decision")
    };
    let left = async || {
        let mut left = Vec::new();
        for limit in &limits {
            left.push(limiter.peek(&key, limit).await.expect("a look").remaining());
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
    limiter.refund(&first).await.expect("given back while it is torn apart");
    assert_eq!(left().await, [3, 2, 2]);
    let third = [allowed(all().await), allowed(all().await)];
    assert_eq!(left().await, [1, 0, 0]);
    let Decision::Denied(denied) = all().await else { panic!("two of three are used up") };
    assert_eq!((denied.limit(), denied.remaining(), denied.source()), (limits[1], 0, Source::Store));
    eventually("nothing was taken from the first", async || left().await == [1, 0, 0]).await;
    migration.finish();
    assert!(all().await.is_denied());
    // They were taken one by one, and may be of different instants.
    for receipt in [&second, &third[0], &third[1]] {
        limiter.refund(receipt).await.expect("given back when they are together again");
    }
    assert_eq!(left().await, [4, 3, 3]);
    let whole = allowed(all().await);
    let back = cluster.begin_migration(slot, cluster.masters().into_iter().find(|node| *node != to).expect("another"));
    assert_eq!(back.move_keys(1), 1);
    limiter.refund(&whole).await.expect("taken together, given back apart");
    assert_eq!(left().await, [4, 3, 3]);
    back.finish();
}

/// Two slots, of which one is on the move.
#[tokio::test]
async fn a_part_of_a_decision_that_is_torn_apart_is_made_count_by_count() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).deadline(Duration::from_secs(1)).connect().await.expect("a cluster");
    let (slot, to) = slot_and_target(&cluster);
    let (moves, stays) = (key(&name_in(slot)), key(&name_in(1)));
    let (short, long) = (limit("3/1m"), limit("2/1h"));
    let asked = [(&moves, &short, 1), (&stays, &short, 1), (&moves, &long, 1)];
    let decide = async || limiter.check_all(&asked).await.expect("a decision");
    assert!(limiter.check(&moves, &short).await.expect("a decision").is_allowed());
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.move_keys(1), 1);
    assert!(decide().await.is_allowed());
    migration.move_keys(1);
    let allowed = decide().await.into_result().expect("room for two");
    assert_eq!(allowed.remaining(), 0);
    assert!(decide().await.is_denied());
    limiter.refund(&allowed).await.expect("given back");
    assert!(decide().await.is_allowed());
    migration.finish();
    let left = async |key, limit| limiter.peek(key, limit).await.expect("a look").remaining();
    let all = async || (left(&moves, &short).await, left(&stays, &short).await, left(&moves, &long).await);
    eventually("counted once each", async || all().await == (0, 1, 0)).await;
}

/// Of four processes each has a standby limiter for a quarter of the limit, so that its decisions can be told from the store's.
#[tokio::test]
async fn a_migration_that_was_seen_does_not_consult_the_standby_limiter() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).instances(4).on_error(OnError::Standby).connect().await.expect("a cluster");
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
    assert_eq!(take().await, (true, Source::Store), "sent on to the target");
    migration.finish();
    for _ in 0..2 {
        assert_eq!(take().await, (true, Source::Store));
    }
    // No call has seen this one: for the limiter the slot may as well have lost its counts.
    migrate().finish();
    assert_eq!(take().await, (false, Source::Standby));
}

/// Two keys of one slot with two limits each, and the calls of all processes for them.
#[derive(Clone)]
struct Traffic {
    keys: [Key; 2],
    /// By key: of the first the longer one is used up soon.
    limits: [[Limit; 2]; 2],
    origin: Instant,
    over: Arc<AtomicBool>,
    /// Calls that are answered, by process.
    answered: Arc<[AtomicU32]>,
}

/// The calls of one task.
#[derive(Default)]
struct Seen {
    /// Those that took permits and kept them, by key and limit.
    admissions: [[Vec<Admission>; 2]; 2],
    by_standby: u32,
}

impl Traffic {
    async fn calls(self, process: usize, limiter: Limiter, mut random: Random) -> Seen {
        let mut seen = Seen::default();
        while !self.over.load(Relaxed) {
            // Mostly both limits together.
            let (key, limits) =
                [(0, 0..2), (1, 0..2), (1, 0..1), (1, 1..2)][usize::try_from(random.below(4)).expect("small")].clone();
            let asked: Vec<_> = limits.clone().map(|limit| (&self.keys[key], &self.limits[key][limit], 1)).collect();
            let start = self.origin.elapsed();
            let decision = limiter.check_all(&asked).await.expect("a decision");
            let admission = Admission { start, end: self.origin.elapsed(), cost: 1 };
            let source = match &decision {
                Decision::Allowed(allowed) => allowed.source(),
                Decision::Denied(denied) => denied.source(),
            };
            seen.by_standby += u32::from(source == Source::Standby);
            match decision {
                Decision::Allowed(allowed) if random.below(4) == 0 => {
                    limiter.refund(&allowed).await.expect("given back");
                }
                Decision::Allowed(_) => limits.for_each(|limit| seen.admissions[key][limit].push(admission)),
                Decision::Denied(_) => {}
            }
            self.answered[process].fetch_add(1, Relaxed);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        seen
    }

    /// Returns when each process has been answered some more calls, or is stuck.
    fn go_on(&self) {
        let counts = || self.answered.iter().map(|answered| answered.load(Relaxed));
        let (before, since) = (counts().collect::<Vec<_>>(), Instant::now());
        let all_have = || counts().zip(&before).all(|(now, before)| now >= before + 5);
        while !all_have() && since.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Three processes decide about two limits of one key while its slot moves on and on. Each step of a move lasts until all of
/// them have gone on, so that they meet it on every machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_limits_of_a_key_are_kept_while_its_slot_moves() {
    const PROCESSES: usize = 3;
    const LENGTH: Duration = Duration::from_secs(2);
    let cluster = Arc::new(Cluster::builder().masters_only().start());
    let (prefix, slot) = (unique("moving"), 4711);
    let mut names = names_in(slot);
    let traffic = Traffic {
        keys: [(); 2].map(|()| key(&names.next().expect("of so many"))),
        limits: [["5/300ms", "10/h"], ["5/300ms", "100000/h"]].map(|limits| limits.map(limit)),
        origin: Instant::now(),
        over: Arc::default(),
        answered: (0..PROCESSES).map(|_| AtomicU32::new(0)).collect(),
    };
    let mut tasks = JoinSet::new();
    let mut limiters = Vec::new();
    for process in 0..PROCESSES {
        let builder = on(&cluster).prefix(&prefix).deadline(Duration::from_secs(4)).on_error(OnError::Standby);
        limiters.push(builder.connect().await.expect("a cluster"));
        for task in 0..2 {
            let random = Random::new((2 * process + task) as u64);
            tasks.spawn(traffic.clone().calls(process, limiters[process].clone(), random));
        }
    }
    let moves = tokio::task::spawn_blocking({
        let (cluster, traffic) = (Arc::clone(&cluster), traffic.clone());
        move || {
            traffic.go_on();
            while traffic.origin.elapsed() < LENGTH {
                let (_, to) = slot_and_target(&cluster);
                let migration = cluster.begin_migration(slot, to);
                for _ in 0..3 {
                    traffic.go_on();
                    migration.move_keys(1);
                }
                traffic.go_on();
                migration.finish();
                traffic.go_on();
            }
        }
    });
    moves.await.expect("no panic");
    traffic.over.store(true, Relaxed);
    let seen = tasks.join_all().await;
    assert_eq!(seen.iter().map(|seen| seen.by_standby).sum::<u32>(), 0, "decisions by standby limiters");
    for (key, limits) in traffic.limits.iter().enumerate() {
        for (index, limit) in limits.iter().enumerate() {
            let admissions: Vec<_> = seen.iter().flat_map(|seen| &seen.admissions[key][index]).copied().collect();
            feasible(&admissions, limit.window(), limit.max()).expect("the limit is kept");
            assert!(admissions.len() >= 5, "{} calls were allowed", admissions.len());
            if index == 1 {
                let left = limit.max() - u32::try_from(admissions.len()).expect("few");
                eventually("nothing more is counted than was given", async || {
                    limiters[0].peek(&traffic.keys[key], limit).await.expect("a look").remaining() == left
                })
                .await;
            }
        }
    }
}
