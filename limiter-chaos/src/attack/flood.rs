//! A flood of denied keys beside leased keys in steady use. It fills the cache of denials many times over, and ends no
//! lease.

use std::slice::from_ref;
use std::thread::sleep;
use std::time::Duration;

use limiter_testkit::unique;
use rate_limited::{Decision, Key, Limit, Limiter, OnError, Source};
use tokio::task::JoinSet;

use super::calls::{CallRecord, CallResult, Demand, Load, Target, admitted_between_resets};
use super::concurrent::{check_exactly, shared_server};
use super::round::{Outcome, Round, connect, runtime};
use crate::transport::limiter_builder;

/// The tasks that flood. Their calls make batches.
const FLOOD_TASKS: u64 = 64;

/// Half of the time of a lease. A lease that took longer to arrive was not worth a script call.
const QUICK: Duration = Duration::from_millis(25);

/// Quick calls by the store that are too few for a verdict.
const FEW_CALLS: usize = 200;

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let server = shared_server(round.transport);
    let prefix = unique("flood");
    let limiter = connect(&runtime, || {
        // Nothing may time out here, so that the store makes every decision.
        let builder = limiter_builder(&server.url(), server.ca_certificate());
        builder.prefix(&prefix).deadline(Duration::from_secs(30)).on_error(OnError::Raise).leases(true)
    })?;
    // The demand is below the first limit, and near or above the second one.
    let steady = Limit::new(1_000_000, Duration::from_secs(4)).expect("a limit");
    let tight = Limit::new(10_000, round.millis(2_000, 4_000)).expect("a limit");
    let target = |key, limit| Target { key: Key::new(key), limit, cost: 3, resets: false };
    let targets = [target("steady", steady), target("tight", tight)];
    let demand = Demand {
        tasks: 12,
        pause: Duration::from_millis(2),
        drop_one_in: round.random.between(20, 50),
        refunds: round.once_in(2),
        // Calls of few permits beyond the limit would end the steady use.
        charges: false,
    };
    let load = Load::start(runtime.handle(), from_ref(&limiter), &targets, demand, round);
    sleep(Duration::from_millis(100));
    // More keys than the cache has places.
    let keys = if round.short { 6_000 } else { round.random.between(100_000, 200_000) };
    let flooded = runtime.block_on(flood(&limiter, keys));
    let calls = runtime.block_on(load.stop(round));
    round.count("keys of the flood", keys);
    round.count("denied by the cache", flooded?);
    for (target, calls) in targets.iter().zip(&calls) {
        for part in admitted_between_resets(calls) {
            check_exactly(target, &part)?;
        }
    }
    check_leases(&calls[0])
}

/// Calls three times for each of so many keys with one permit. Returns how many calls the cache of denials has denied.
///
/// # Errors
///
/// A key with another number of admissions than one.
async fn flood(limiter: &Limiter, keys: u64) -> Result<u64, String> {
    let mut tasks = JoinSet::new();
    for task in 0..FLOOD_TASKS {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let limit = Limit::new(1, Duration::from_secs(3_600)).expect("a limit");
            let mut cached = 0;
            for index in (task..keys).step_by(usize::try_from(FLOOD_TASKS).expect("small")) {
                let (key, mut allowed) = (Key::new("flood:").part(index), 0);
                for _ in 0..3 {
                    let decision = limiter.check(&key, &limit).await;
                    match decision.map_err(|error| format!("key {index} of the flood: {error}"))? {
                        Decision::Allowed(_) => allowed += 1,
                        Decision::Denied(denied) => cached += u64::from(denied.source() == Source::DeniedUntil),
                    }
                }
                if allowed != 1 {
                    return Err(format!("key {index} of the flood: {allowed} permits of 1"));
                }
            }
            Ok(cached)
        });
    }
    tasks.join_all().await.into_iter().sum()
}

/// Checks that a key in steady use had leases: most of its quick calls were not by the store.
fn check_leases(calls: &[CallRecord]) -> Outcome {
    let allowed_by = |source| calls.iter().filter(move |call| call.result == CallResult::Allowed(source));
    let leased = allowed_by(Source::Lease).count();
    let stored = allowed_by(Source::Store).filter(|call| call.end - call.start < QUICK).count();
    if stored > FEW_CALLS && leased < 2 * stored {
        return Err(format!("{leased} calls by leases and {stored} quick ones by the store: the flood ended leases"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_the_store_decides_in_place_of_leases_are_a_violation() {
        let calls = |count, source, took: u64| {
            let (start, end) = (Duration::ZERO, Duration::from_millis(took));
            let result = CallResult::Allowed(source);
            let call = CallRecord { start, end, wall_start: start, wall_end: end, cost: 1, result };
            std::iter::repeat_n(call, count)
        };
        let check = |took, stored, leased| {
            let calls: Vec<_> = calls(stored, Source::Store, took).chain(calls(leased, Source::Lease, 0)).collect();
            check_leases(&calls)
        };
        assert!(check(1, 1_000, 2_000).is_ok() && check(1, 1_000, 1_999).is_err());
        assert!(check(30, 1_000, 0).is_ok(), "the machine was too slow for leases");
        assert!(check(1, FEW_CALLS, 0).is_ok(), "too few calls");
    }
}
