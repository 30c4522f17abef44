//! A cluster: slots that move, masters that die, and decisions about several slots.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rate_limited::{Decision, Error, Key, Limit, Limiter, ManualClock, OnError, Source};
use tokio::task::JoinSet;

use super::bounds::keeps_the_worst_window;
use super::calls::{Admitted, Demand, Load, Subject};
use super::faults::{comes_back, judge, keys_without_expiry};
use super::ledger::Ledger;
use super::round::{Outcome, Round, runtime};
use crate::cluster::{Cluster, slot_of};
use crate::random::Random;
use crate::stalls::Stalls;

/// The master of a random key dies, or is stopped, under load from one process.
pub(super) fn failover(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let mut cluster = Cluster::start();
    let limiter = runtime.block_on(Limiter::builder().url(&cluster.url()).connect());
    let limiter = limiter.map_err(|error| format!("a sound cluster: {error}"))?;
    let subjects = Subject::of_all_algorithms(round, (200, 2_000));
    let demand = Demand::random(round, 40);
    let load = Load::start(runtime.handle(), std::slice::from_ref(&limiter), &subjects, demand, round);
    sleep(round.millis(300, 2_000));
    let victim = cluster.masters()[round.index(3)];
    let stops = round.once_in(3);
    let began = load.elapsed();
    if stops {
        cluster.pause(victim);
    } else {
        cluster.kill(victim);
    }
    let promotion = cluster.wait_for_promotion(victim);
    let promoted = load.elapsed();
    round.count("failovers", 1);
    sleep(round.millis(1, 1_500));
    // The old master is back, and finds out that it is one no more.
    if stops {
        cluster.resume(victim);
    } else {
        cluster.restart(victim);
    }
    sleep(round.millis(1, 2_500));
    runtime.block_on(comes_back(&limiter))?;
    let calls = runtime.block_on(load.stop(round));
    let mut wrong = Vec::new();
    keys_without_expiry(round, cluster.server(promotion.master), &mut wrong);
    if let Some(wrong) = wrong.pop() {
        return Err(wrong);
    }
    let how = if stops { "stopped" } else { "killed" };
    judge(&subjects, &calls).map_err(|what| {
        format!("{what}\nrefunds: {}, a master was {how} at {began:.3?}, replaced by {promoted:.3?}", demand.refunds)
    })
}

/// Batches of decisions about several slots, of which some are denied in the middle: what was taken is given back, and
/// nothing else.
pub(super) fn several(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let cluster = Cluster::builder().masters_only().start();
    // A cluster takes seconds to start: it serves several ledgers.
    for number in 0..12 {
        let clock = ManualClock::new();
        let builder = Limiter::builder().url(&cluster.url()).clock(clock.clone()).on_error(OnError::Raise);
        let builder = builder.deadline(Duration::from_secs(20)).remember_denials(Duration::ZERO);
        let limiter = runtime.block_on(builder.connect()).map_err(|error| format!("a sound cluster: {error}"))?;
        let keys = (0..round.index(3) + 2).map(|place| Key::new("several:").part(number).part(place)).collect();
        let mut ledger = Ledger::new(round, limiter, clock, keys);
        // For up to a second after what was given back, a denial is right.
        ledger.judges_denials = false;
        runtime.block_on(async {
            for _ in 0..10 {
                ledger.batch(round).await?;
            }
            Ok::<_, String>(())
        })?;
    }
    Ok(())
}

/// A call waits no longer than this for a slot that moves.
const DEADLINE: Duration = Duration::from_millis(500);

/// The time for each process to have an answer of the store, on the slowest machine.
const HEARD: Duration = Duration::from_secs(20);

/// A machine that stands still for longer may be why a call was late.
const STILL: Duration = Duration::from_millis(150);

/// Slots that move while three processes make decisions about one limit and about two: every limit is kept, and no
/// decision is left to the standby limiters.
pub(super) fn slots(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let cluster = Cluster::builder().masters_only().start();
    let origin = Instant::now();
    let failures: Arc<Mutex<Vec<String>>> = Arc::default();
    let limiters: Vec<_> = (0..3)
        .map(|_| {
            let failures = Arc::clone(&failures);
            let note = move |error: &Error| {
                let failure = format!("{:.3?} {error}", origin.elapsed());
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
            };
            runtime.block_on(Limiter::builder().url(&cluster.url()).deadline(DEADLINE).on_error(note).connect())
        })
        .collect::<Result<_, _>>()
        .map_err(|error| format!("a sound cluster: {error}"))?;
    let name = format!("moved{}", round.random.below(1_000));
    let key = Key::new(&name);
    let short = Limit::new(round.small(2, 10), round.millis(100, 500)).expect("a limit");
    let long = Limit::new(round.small(20, 60), Duration::from_secs(3_600)).expect("a limit");
    let (over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let standby: Arc<Mutex<Vec<String>>> = Arc::default();
    // The number of the move that a process has last heard of the slot in, by an answer of the store.
    let (number_of_move, heard) = (Arc::new(AtomicU64::new(0)), Arc::new([(); 3].map(|()| AtomicU64::new(0))));
    let mut tasks = JoinSet::new();
    for (number, limiter) in limiters.iter().cycle().take(12).enumerate() {
        let (limiter, key, over, standby, calls) =
            (limiter.clone(), key.clone(), Arc::clone(&over), Arc::clone(&standby), Arc::clone(&calls));
        let (number_of_move, heard) = (Arc::clone(&number_of_move), Arc::clone(&heard));
        let mut random = Random::new(round.random.any());
        let of_both = number % 4 != 0;
        tasks.spawn_on(
            async move {
                let mut admitted = Vec::new();
                while !over.load(Relaxed) {
                    tokio::time::sleep(Duration::from_micros(random.below(20_000))).await;
                    let (start, asked) = (origin.elapsed(), number_of_move.load(Relaxed));
                    let decision = match of_both {
                        true => limiter.check_all(&[(&key, &short, 1), (&key, &long, 1)]).await,
                        false => limiter.check(&key, &short).await,
                    };
                    let end = origin.elapsed();
                    calls.fetch_add(1, Relaxed);
                    let source = match &decision {
                        Ok(Decision::Allowed(allowed)) => Some(allowed.source()),
                        Ok(Decision::Denied(denied)) => Some(denied.source()),
                        Err(_) => None,
                    };
                    if matches!(source, Some(Source::Store)) {
                        heard[number % 3].fetch_max(asked, Relaxed);
                    }
                    if matches!(source, Some(Source::Standby)) {
                        let what = if of_both { "of two limits" } else { "of one" };
                        let what = format!("a decision {what} from {start:.3?} to {end:.3?}");
                        standby.lock().unwrap_or_else(PoisonError::into_inner).push(what);
                    }
                    if let (Ok(Decision::Allowed(_)), Some(source)) = (decision, source) {
                        let (wall_start, wall_end) = (start, end);
                        admitted.push((of_both, Admitted { start, end, wall_start, wall_end, cost: 1, source }));
                    }
                }
                admitted
            },
            runtime.handle(),
        );
    }
    let still = Stalls::watch(origin);
    // Parts of a key have marks of their own in a name: all counts of the key are in the slot that any of them is in.
    let (mut slot, mut moves) = (None, Vec::new());
    for _ in 0..if round.short { 3 } else { 8 } {
        sleep(round.millis(10, 200));
        slot = slot.or_else(|| slot_with(&cluster, &name));
        let Some(slot) = slot else { continue };
        let masters = cluster.masters();
        let from = cluster.master_of(slot);
        let to = masters.into_iter().find(|master| *master != from).expect("three masters");
        let began = origin.elapsed();
        let migration = cluster.begin_migration(slot, to);
        sleep(round.millis(1, 1_200));
        let (moving, moved) = (origin.elapsed(), migration.move_keys(round.index(3)));
        round.count("keys moved", u64::try_from(moved).expect("few"));
        sleep(round.millis(1, 1_200));
        // An ASK proves a migration. Without its keys the old owner gives one to every call.
        migration.move_all_keys();
        let this = number_of_move.fetch_add(1, Relaxed) + 1;
        let until = Instant::now() + HEARD;
        while heard.iter().any(|heard| heard.load(Relaxed) < this) && Instant::now() < until {
            sleep(Duration::from_millis(1));
        }
        let finishes = origin.elapsed();
        migration.finish();
        moves.push(format!(
            "{began:.3?} begun, {moving:.3?} {moved} keys, {finishes:.3?} to {:.3?} finished",
            origin.elapsed()
        ));
        round.count("moves", 1);
    }
    let longest = still.end().into_iter().map(|(from, to)| to - from).max().unwrap_or_default();
    over.store(true, Relaxed);
    let admitted = runtime.block_on(tasks.join_all()).concat();
    round.count("calls", calls.load(Relaxed));
    round.count("allowed", u64::try_from(admitted.len()).expect("few"));
    let failures = std::mem::take(&mut *failures.lock().unwrap_or_else(PoisonError::into_inner));
    let standby = std::mem::take(&mut *standby.lock().unwrap_or_else(PoisonError::into_inner));
    if longest > STILL && !standby.is_empty() {
        round.count("slow rounds", 1);
        return Ok(());
    }
    if !standby.is_empty() {
        return Err(format!(
            "{} decisions of {} were left to the standby limiters while slots moved, and the machine stood still for \
             {longest:.0?} at most; limits {short} and {long}; the first: {}\n{} failures, the first: {}\nmoves: {}",
            standby.len(),
            calls.load(Relaxed),
            standby[..standby.len().min(8)].join(", "),
            failures.len(),
            failures[..failures.len().min(8)].join(", "),
            moves.join("; "),
        ));
    }
    let of = |both_alone: bool| {
        admitted.iter().filter(|(both, _)| *both || !both_alone).map(|(_, call)| *call).collect::<Vec<_>>()
    };
    keeps_the_worst_window(short, &of(false), |_, _| 1)?;
    keeps_the_worst_window(long, &of(true), |_, _| 1)
}

/// Returns the slot of the keys with this text, once there is one.
fn slot_with(cluster: &Cluster, text: &str) -> Option<u16> {
    cluster
        .masters()
        .into_iter()
        .find_map(|master| cluster.server(master).keys_with(text).first().map(|key| slot_of(key.as_bytes())))
}
