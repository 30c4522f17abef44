//! The bound of calls after charges, from one process or on a store without faults.
//!
//! Charges may exceed a limit, but no call after them does. A call is allowed only if its cost fits beside all permits of
//! its window that were taken or charged before. The judge knows those whose replies came before the call began.

use rate_limited::{Algorithm, Limit, Source};

use super::calls::{CallRecord, CallResult, between_resets};
use super::round::Outcome;

/// Checks each call that was allowed beside the charges and calls before it.
///
/// # Errors
///
/// The first call that did not fit.
pub(super) fn check_calls_after_charges(limit: Limit, calls: &[CallRecord]) -> Outcome {
    between_resets(calls).iter().try_for_each(|part| check_part(limit, part))
}

fn check_part(limit: Limit, calls: &[CallRecord]) -> Outcome {
    let is_in_window: fn(&CallRecord, &CallRecord, Limit) -> bool = match limit.algorithm() {
        Algorithm::SlidingWindow => |earlier, call, limit| earlier.start + limit.window() > call.end,
        Algorithm::FixedWindow => is_in_same_window,
        // The bounds of the others depend on more than the sum.
        _ => return Ok(()),
    };
    let mut counted: Vec<_> = calls.iter().filter(|call| counts(call)).collect();
    counted.sort_by_key(|call| call.start);
    let mut oldest = 0;
    for (index, call) in counted.iter().enumerate() {
        // Permits that were leased before a charge are used after it.
        if !matches!(call.result, CallResult::Allowed(source) if source != Source::Lease) {
            continue;
        }
        while counted[oldest].start + limit.window() <= call.start {
            oldest += 1;
        }
        let is_before = |earlier: &&&CallRecord| earlier.end <= call.start && is_in_window(earlier, call, limit);
        let used: u64 = counted[oldest..index].iter().filter(is_before).map(|earlier| u64::from(earlier.cost)).sum();
        if used + u64::from(call.cost) > u64::from(limit.max()) {
            let (start, end, cost) = (call.start, call.end, call.cost);
            return Err(format!(
                "{:?} of {limit}: a call of cost {cost} was allowed between {start:.4?} and {end:.4?}, after {used} \
                 permits in its window",
                limit.algorithm()
            ));
        }
    }
    Ok(())
}

/// Returns whether the permits of a call are known to count.
fn counts(call: &CallRecord) -> bool {
    matches!(call.result, CallResult::Allowed(_) | CallResult::Charged)
}

/// Returns whether both calls were in one window of the server, which begins at multiples of its length.
fn is_in_same_window(earlier: &CallRecord, call: &CallRecord, limit: Limit) -> bool {
    let window = limit.window().as_millis();
    // Stamps are whole milliseconds.
    let of_call = (call.wall_end.as_millis() + 1) / window;
    earlier.wall_start.as_millis().saturating_sub(1) / window == of_call
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn call(millis: (u64, u64), cost: u32, result: CallResult) -> CallRecord {
        let [start, end] = [millis.0, millis.1].map(Duration::from_millis);
        CallRecord { start, end, wall_start: start, wall_end: end, cost, result }
    }

    #[test]
    fn a_call_that_does_not_fit_beside_earlier_charges_is_a_violation() {
        const ALLOWED: CallResult = CallResult::Allowed(Source::Store);
        const LEASED: CallResult = CallResult::Allowed(Source::Lease);
        let check = |algorithm, calls: &[CallRecord]| {
            let limit = Limit::new(5, Duration::from_millis(100)).expect("a limit").with_algorithm(algorithm);
            check_calls_after_charges(limit, calls)
        };
        let charged = |at: u64| call((at, at + 10), 4, CallResult::Charged);
        for (calls, is_ok) in [
            ([charged(10), call((20, 30), 1, ALLOWED)], true),
            ([charged(10), call((20, 30), 2, ALLOWED)], false),
            ([charged(10), call((20, 30), 2, LEASED)], true),
            ([charged(10), call((19, 30), 2, ALLOWED)], true),
            ([charged(10), call((90, 97), 2, ALLOWED)], false),
            ([charged(10), call((90, 110), 2, ALLOWED)], true),
            ([call((10, 20), 4, CallResult::Failed), call((20, 30), 2, ALLOWED)], true),
            ([call((10, 20), 4, ALLOWED), call((20, 30), 2, ALLOWED)], false),
        ] {
            for algorithm in [Algorithm::SlidingWindow, Algorithm::FixedWindow] {
                assert_eq!(check(algorithm, &calls).is_ok(), is_ok, "{algorithm:?}: {calls:?}");
            }
        }
        let across = [charged(80), call((105, 106), 2, ALLOWED)];
        assert!(check(Algorithm::SlidingWindow, &across).is_err() && check(Algorithm::FixedWindow, &across).is_ok());
        let reset = [charged(10), call((21, 22), 0, CallResult::Reset), call((23, 30), 5, ALLOWED)];
        assert!(check(Algorithm::SlidingWindow, &reset).is_ok());
    }
}
