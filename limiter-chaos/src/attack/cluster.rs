//! Attacks on a cluster: moving slots, killed masters, and multi-slot decisions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_testkit::stalls::Stalls;
use limiter_testkit::{Cluster, Random, slot_of};
use rate_limited::{Decision, Error, Key, Limit, Limiter, ManualClock, OnError, Source};
use tokio::task::JoinSet;

use super::bounds::check_worst_window;
use super::calls::{Admitted, Demand, Load, Target};
use super::faults::{check_bounds, report_keys_without_expiry, wait_for_recovery};
use super::ledger::Ledger;
use super::round::{Outcome, Round, connect, runtime};
use crate::transport::limiter_builder;

/// Kills or stops a random master under load from one process.
pub(super) fn failover(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let mut cluster = round.transport.cluster().start();
    let builder = || limiter_builder(&cluster.url(), cluster.ca_certificate()).leases(round.leases);
    let limiter = connect(&runtime, builder)?;
    let targets = Target::for_round(round, (200, 2_000));
    let demand = Demand::random(round, 40);
    let load = Load::start(runtime.handle(), std::slice::from_ref(&limiter), &targets, demand, round);
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
    // The old master returns and learns that it has been replaced.
    if stops {
        cluster.resume(victim);
    } else {
        cluster.restart(victim);
    }
    sleep(round.millis(1, 2_500));
    runtime.block_on(wait_for_recovery(&limiter))?;
    let calls = runtime.block_on(load.stop(round));
    let mut violations = Vec::new();
    report_keys_without_expiry(round, cluster.server(promotion.master), &mut violations);
    if let Some(violation) = violations.pop() {
        return Err(violation);
    }
    let how = if stops { "stopped" } else { "killed" };
    check_bounds(&targets, &calls).map_err(|what| {
        format!("{what}\nrefunds: {}, a master was {how} at {began:.3?}, replaced by {promoted:.3?}", demand.refunds)
    })
}

/// Makes batches of multi-slot decisions of which some are denied after a first slot has granted its permits. Exactly
/// those permits must be refunded.
pub(super) fn multi_slot_decisions(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let cluster = Cluster::builder().masters_only().start();
    // A cluster takes seconds to start, so several ledgers share one.
    for number in 0..12 {
        let clock = ManualClock::new();
        let builder = || {
            let builder = Limiter::builder().url(cluster.url()).clock(clock.clone()).on_error(OnError::Raise);
            builder.deadline(Duration::from_secs(20)).remember_denials(Duration::ZERO)
        };
        let limiter = connect(&runtime, builder)?;
        let keys = (0..round.index(3) + 2).map(|part| Key::new("several:").part(number).part(part)).collect();
        let mut ledger = Ledger::new(round, limiter, clock, keys);
        // A denial is allowed for up to a second after a refund.
        ledger.checks_denials = false;
        runtime.block_on(async {
            for _ in 0..10 {
                ledger.batch(round).await?;
            }
            Ok::<_, String>(())
        })?;
    }
    Ok(())
}

/// The limiter's deadline, which bounds the wait for a moving slot.
const DEADLINE: Duration = Duration::from_millis(500);

/// The time in which each process must get a reply of the store on the slowest machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// The stall of the machine, or the end of a move, above which late calls are excused. Until a move has ended the nodes
/// disagree about the owner of the slot, and three commands end it.
const MAX_STALL: Duration = Duration::from_millis(150);

/// Moves slots while three processes make decisions about one limit and about two. Every limit must hold, and the store
/// or a lease must make every decision.
pub(super) fn moving_slots(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let cluster = Cluster::builder().masters_only().start();
    let origin = Instant::now();
    let failures: Arc<Mutex<Vec<String>>> = Arc::default();
    let builder = || {
        let failures = Arc::clone(&failures);
        let record_failure = move |error: &Error| {
            let failure = format!("{:.3?} {error}", origin.elapsed());
            failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
        };
        Limiter::builder().url(cluster.url()).deadline(DEADLINE).leases(round.leases).on_error(record_failure)
    };
    let limiters: Vec<_> = (0..3).map(|_| connect(&runtime, builder)).collect::<Result<_, _>>()?;
    let name = format!("moved{}", round.random.below(1_000));
    let key = Key::new(&name);
    // With leases the limit is larger, and the key busy: there is one call in less than a millisecond.
    let (short, callers, longest_pause) = match round.leases {
        true => (Limit::new(round.small(100, 3_000), round.millis(200, 1_500)), 24, 4_000),
        false => (Limit::new(round.small(2, 10), round.millis(100, 500)), 12, 20_000),
    };
    let short = short.expect("a limit");
    let long = Limit::new(round.small(20, 60), Duration::from_secs(3_600)).expect("a limit");
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let standby: Arc<Mutex<Vec<String>>> = Arc::default();
    // The second has, for each process, the move before its latest call that the store decided.
    let (move_number, latest_move_seen) = (Arc::new(AtomicU64::new(0)), Arc::new([(); 3].map(|()| AtomicU64::new(0))));
    let mut tasks = JoinSet::new();
    for (number, limiter) in limiters.iter().cycle().take(callers).enumerate() {
        let (limiter, key, stop, standby, calls) =
            (limiter.clone(), key.clone(), Arc::clone(&stop), Arc::clone(&standby), Arc::clone(&calls));
        let (move_number, latest_move_seen) = (Arc::clone(&move_number), Arc::clone(&latest_move_seen));
        let mut random = Random::new(round.random.any());
        let checks_both = (number % 4 != 0) != round.leases;
        tasks.spawn_on(
            async move {
                let mut admitted = Vec::new();
                while !stop.load(Relaxed) {
                    tokio::time::sleep(Duration::from_micros(random.below(longest_pause))).await;
                    let (start, moves_before) = (origin.elapsed(), move_number.load(Relaxed));
                    let decision = match checks_both {
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
                        latest_move_seen[number % 3].fetch_max(moves_before, Relaxed);
                    }
                    if matches!(source, Some(Source::Standby)) {
                        let what = if checks_both { "about two limits" } else { "about one limit" };
                        let what = format!("a decision {what} from {start:.3?} to {end:.3?}");
                        standby.lock().unwrap_or_else(PoisonError::into_inner).push(what);
                    }
                    if let (Ok(Decision::Allowed(_)), Some(source)) = (decision, source) {
                        let (wall_start, wall_end) = (start, end);
                        admitted.push((checks_both, Admitted { start, end, wall_start, wall_end, cost: 1, source }));
                    }
                }
                admitted
            },
            runtime.handle(),
        );
    }
    let stalls = Stalls::watch(origin);
    // All counts of the key are in one slot, so the slot of any of them will do.
    let (mut slot, mut moves, mut longest_end) = (None, Vec::new(), Duration::ZERO);
    for _ in 0..if round.short { 3 } else { 8 } {
        sleep(round.millis(10, 200));
        slot = slot.or_else(|| slot_of_keys_with(&cluster, &name));
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
        // Only an ASK proves to a client that the slot is being migrated. Without its keys the old owner replies ASK to
        // every call.
        migration.move_all_keys();
        let this = move_number.fetch_add(1, Relaxed) + 1;
        let give_up_at = Instant::now() + REPLY_TIMEOUT;
        while latest_move_seen.iter().any(|seen| seen.load(Relaxed) < this) && Instant::now() < give_up_at {
            sleep(Duration::from_millis(1));
        }
        let finishes = origin.elapsed();
        migration.finish();
        let finished = origin.elapsed();
        longest_end = longest_end.max(finished - finishes);
        moves
            .push(format!("{began:.3?} started, {moving:.3?} {moved} keys, {finishes:.3?} to {finished:.3?} finished"));
        round.count("moves", 1);
    }
    let longest = stalls.end().into_iter().map(|(from, to)| to - from).max().unwrap_or_default();
    stop.store(true, Relaxed);
    let admitted = runtime.block_on(tasks.join_all()).concat();
    round.count("calls", calls.load(Relaxed));
    let leased = admitted.iter().filter(|(_, call)| call.source == Source::Lease).count();
    if round.leases {
        round.count("allowed by leases", u64::try_from(leased).expect("few"));
    }
    round.count("allowed", u64::try_from(admitted.len() - leased).expect("few"));
    let failures = std::mem::take(&mut *failures.lock().unwrap_or_else(PoisonError::into_inner));
    let standby = std::mem::take(&mut *standby.lock().unwrap_or_else(PoisonError::into_inner));
    if longest.max(longest_end) > MAX_STALL && !standby.is_empty() {
        round.count("slow rounds", 1);
        return Ok(());
    }
    if !standby.is_empty() {
        return Err(format!(
            "{} decisions of {} were made by the standby limiters while slots moved, and the machine stalled for at \
             most {longest:.0?}; limits {short} and {long}; the first: {}\n{} failures, the first: {}\nmoves: {}",
            standby.len(),
            calls.load(Relaxed),
            standby[..standby.len().min(8)].join(", "),
            failures.len(),
            failures[..failures.len().min(8)].join(", "),
            moves.join("; "),
        ));
    }
    let calls_with = |only_both: bool| {
        admitted.iter().filter(|(both, _)| *both || !only_both).map(|(_, call)| *call).collect::<Vec<_>>()
    };
    check_worst_window(short, &calls_with(false), |_, _| 1)?;
    check_worst_window(long, &calls_with(true), |_, _| 1)
}

/// Returns the slot of the keys that contain this text, once there is one.
fn slot_of_keys_with(cluster: &Cluster, text: &str) -> Option<u16> {
    cluster
        .masters()
        .into_iter()
        .find_map(|master| cluster.server(master).keys_with(text).first().map(|key| slot_of(key.as_bytes())))
}
