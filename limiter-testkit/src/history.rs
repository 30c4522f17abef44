//! Checks of a recorded concurrent run: it must not exceed its limit, and must not deny a call that had room. The
//! instant at which each call was decided need not be known.
//!
//! A caller sees the start and the end of its call; the permit was taken at some instant between. A run violates its
//! limit only if *no* choice of those instants satisfies it, so no function here reports a correct limiter.
//!
//! Windows are half-open, `(t - window, t]`: two permits exactly one window apart share no window.

use std::collections::VecDeque;
use std::time::Duration;

mod denials;
mod violation;

pub use denials::{Counts, Denial, Rule, WrongDenial, check_denials};
pub use violation::LimitViolation;

/// One admitted call. Its instants are durations since any origin that all calls of a run share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// The start of the call, read before it.
    pub start: Duration,
    /// The end of the call, read after it. It is not before `start`.
    pub end: Duration,
    /// The permits that the call took.
    pub cost: u32,
}

/// Returns the greatest number of permits that one window certainly contains, however the calls are placed.
///
/// A window `[s, s + window)` starts at the start `s` of a call and certainly contains each call that begins and ends
/// in it. This plain count can be checked by eye; [`feasible`] detects more, and [`fullest_window`] counts runs of many
/// calls.
#[must_use]
pub fn max_permits_in_window(admissions: &[Admission], window: Duration) -> u64 {
    let permits_from = |first: &Admission| {
        let is_inside = |call: &&Admission| first.start <= call.start && call.end < first.start + window;
        admissions.iter().filter(is_inside).map(|call| u64::from(call.cost)).sum()
    };
    admissions.iter().map(permits_from).max().unwrap_or_default()
}

/// Returns `Ok` if the calls can be placed, each within its interval, with at most `max` permits in every window.
///
/// There are no false alarms: `Err` proves that there is no such placement. `Ok` proves that there is one if all calls
/// have the same cost and no interval lies strictly inside another. Otherwise the function checks relaxed problems,
/// each of which only favours the limiter, and returns `Err` if one of them has no solution:
///
/// - calls of different costs are split into single permits, which need not stay together;
/// - of two nested intervals, first the longer one is left out, then the shorter one may end as late as the longer,
///   then begin as early.
///
/// # Errors
///
/// The first call without room.
///
/// # Panics
///
/// A call ends before it starts.
pub fn feasible(admissions: &[Admission], window: Duration, max: u32) -> Result<(), LimitViolation> {
    let mut calls: Vec<_> = admissions.iter().copied().filter(|call| call.cost > 0).collect();
    for call in &calls {
        assert!(call.start <= call.end, "ends before it starts: {call:?}");
        if call.cost > max {
            return Err(LimitViolation::Cost { call: *call, max });
        }
    }
    calls.sort_by_key(|call| (call.start, call.end));

    let (start, permits) = fullest_window(&calls, window);
    if permits > u64::from(max) {
        return Err(LimitViolation::Window { start, window, permits, max });
    }
    for relaxed in [remove_enclosing(&calls), extend_ends(&calls), extend_starts(&calls)] {
        place_calls(&relaxed, window, max)?;
    }
    Ok(())
}

/// Returns the start of the first window with the most permits of calls that certainly lie in it, and their number.
///
/// The number is that of [`max_permits_in_window`], for runs of any length: the calls are sorted and not compared with
/// each other.
#[must_use]
pub fn fullest_window(admissions: &[Admission], window: Duration) -> (Duration, u64) {
    // Longer calls lie in no window.
    let mut by_start: Vec<_> = admissions.iter().filter(|call| call.end < call.start + window).collect();
    by_start.sort_by_key(|call| call.start);
    let mut by_end = by_start.clone();
    by_end.sort_by_key(|call| call.end);
    let mut ends = by_end.into_iter().peekable();
    let (mut begun, mut ended, mut fullest) = (0, 0, (Duration::ZERO, 0));
    for first in by_start {
        while let Some(call) = ends.next_if(|call| call.end < first.start + window) {
            ended += u64::from(call.cost);
        }
        // The calls that began before this window have all ended, too.
        let permits = ended - begun;
        if permits > fullest.1 {
            fullest = (first.start, permits);
        }
        begun += u64::from(first.cost);
    }
    fullest
}

/// Removes the calls whose interval strictly encloses another one. The remaining starts and ends have the same order.
fn remove_enclosing(calls: &[Admission]) -> Vec<Admission> {
    let mut kept = Vec::with_capacity(calls.len());
    let mut first_end = Duration::MAX; // the earliest end of the calls that start later
    for group in calls.chunk_by(|a, b| a.start == b.start).rev() {
        kept.extend(group.iter().rev().filter(|call| call.end <= first_end));
        first_end = first_end.min(group[0].end);
    }
    kept.reverse();
    kept
}

/// Extends each call to the latest end of all calls that start no later.
fn extend_ends(calls: &[Admission]) -> Vec<Admission> {
    let mut latest = Duration::ZERO;
    let stretch = |call: &Admission| {
        latest = latest.max(call.end);
        Admission { end: latest, ..*call }
    };
    calls.iter().map(stretch).collect()
}

/// Extends each call to the earliest start of all calls that end no earlier.
fn extend_starts(calls: &[Admission]) -> Vec<Admission> {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| (call.end, call.start));
    let mut earliest = Duration::MAX;
    for call in calls.iter_mut().rev() {
        earliest = earliest.min(call.start);
        call.start = earliest;
    }
    calls
}

/// Places each call at the first instant with room, in the order of starts and ends. That order is optimal for such
/// calls.
fn place_calls(calls: &[Admission], window: Duration, max: u32) -> Result<(), LimitViolation> {
    // Calls of equal costs are placed whole; others permit by permit.
    let equal = calls.iter().all(|call| call.cost == calls[0].cost);
    let unit = if equal { calls.first().map_or(1, |call| call.cost) } else { 1 };
    let room = max / unit;

    let mut recent: VecDeque<Duration> = VecDeque::new(); // the last `room` instants taken
    for call in calls {
        for _ in 0..call.cost / unit {
            let oldest = if recent.len() < room as usize { None } else { recent.pop_front() };
            let instant = oldest.map_or(call.start, |oldest| call.start.max(oldest + window));
            if instant > call.end {
                return Err(LimitViolation::Late { call: *call, earliest: instant, max });
            }
            recent.push_back(instant);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
