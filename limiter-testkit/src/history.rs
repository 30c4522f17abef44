//! Whether a recorded concurrent run kept its limit and used it, without knowing at which instant each call was
//! decided.
//!
//! A caller sees when it asked and when it had the answer; the permit was taken somewhere between. A run is at fault
//! only if *no* choice of those instants makes it right, so no function here can blame a limiter that is right.
//!
//! Windows are half-open, `(t - window, t]`: two permits that are exactly one window apart are in no common window.

use std::collections::VecDeque;
use std::time::Duration;

mod room;
mod violation;

pub use room::{Counts, Denial, HadRoom, Rule, no_denial_had_room};
pub use violation::Violation;

/// One admitted call. Instants are durations since any origin that all calls of a run have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// Read before the limiter was asked.
    pub start: Duration,
    /// Read after its answer. Not before `start`.
    pub end: Duration,
    /// Permits taken.
    pub cost: u32,
}

/// The largest number of permits that are inside one window however the calls are placed.
///
/// Those are the calls that begin and end within `[s, s + window)`, for the start `s` of some call: a plain count that
/// a reader can check by eye. [`feasible`] sees more.
#[must_use]
pub fn most_certain(admissions: &[Admission], window: Duration) -> u64 {
    fullest_window(admissions, window).1
}

/// Whether the calls can be placed, each within its interval, with at most `max` permits in every window.
///
/// Never a false alarm: `Err` means that there is no such placement. It is also exact (`Ok` means that there is one)
/// when all calls have the same cost and no interval lies strictly inside another. Otherwise the problem is eased in
/// ways that only ever help the limiter, and `Err` is given if one of the eased problems has no solution:
///
/// - calls of different costs are taken apart into single permits, which need not stay together;
/// - of two nested intervals, once the longer is left out, once the shorter is let end as late, once begin as early.
///
/// # Errors
///
/// The first call for which there is no room left.
///
/// # Panics
///
/// A call ends before it starts.
pub fn feasible(admissions: &[Admission], window: Duration, max: u32) -> Result<(), Violation> {
    let mut calls: Vec<_> = admissions.iter().copied().filter(|call| call.cost > 0).collect();
    for call in &calls {
        assert!(call.start <= call.end, "ends before it starts: {call:?}");
        if call.cost > max {
            return Err(Violation::Cost { call: *call, max });
        }
    }
    calls.sort_by_key(|call| (call.start, call.end));

    let (start, permits) = fullest_window(&calls, window);
    if permits > u64::from(max) {
        return Err(Violation::Window { start, window, permits, max });
    }
    for relaxed in [without_enclosing(&calls), with_later_ends(&calls), with_earlier_starts(&calls)] {
        place(&relaxed, window, max)?;
    }
    Ok(())
}

/// The start of the window with the most calls wholly inside, and their permits.
fn fullest_window(admissions: &[Admission], window: Duration) -> (Duration, u64) {
    let mut calls = admissions.to_vec();
    calls.sort_by_key(|call| call.start);
    let permits_from = |first: usize| {
        let start = calls[first].start;
        let inside = calls[first..].iter().take_while(|call| call.start < start + window);
        let certain = inside.filter(|call| call.end < start + window);
        (start, certain.map(|call| u64::from(call.cost)).sum())
    };
    (0..calls.len()).map(permits_from).max_by_key(|(_, permits)| *permits).unwrap_or_default()
}

/// Without the calls whose interval strictly encloses another's. What is left has starts and ends in one order.
fn without_enclosing(calls: &[Admission]) -> Vec<Admission> {
    let mut kept = Vec::with_capacity(calls.len());
    let mut first_end = Duration::MAX; // of the calls that start later
    for group in calls.chunk_by(|a, b| a.start == b.start).rev() {
        kept.extend(group.iter().rev().filter(|call| call.end <= first_end));
        first_end = first_end.min(group[0].end);
    }
    kept.reverse();
    kept
}

/// Each call may end as late as any call that starts no later.
fn with_later_ends(calls: &[Admission]) -> Vec<Admission> {
    let mut latest = Duration::ZERO;
    let stretch = |call: &Admission| {
        latest = latest.max(call.end);
        Admission { end: latest, ..*call }
    };
    calls.iter().map(stretch).collect()
}

/// Each call may begin as early as any call that ends no earlier.
fn with_earlier_starts(calls: &[Admission]) -> Vec<Admission> {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| (call.end, call.start));
    let mut earliest = Duration::MAX;
    for call in calls.iter_mut().rev() {
        earliest = earliest.min(call.start);
        call.start = earliest;
    }
    calls
}

/// Places each call at the first instant with room, in the order of starts and ends, which for such calls is best.
fn place(calls: &[Admission], window: Duration, max: u32) -> Result<(), Violation> {
    // Equal costs: whole calls, as many as fit. Different ones: permit by permit.
    let equal = calls.iter().all(|call| call.cost == calls[0].cost);
    let unit = if equal { calls.first().map_or(1, |call| call.cost) } else { 1 };
    let room = max / unit;

    let mut recent: VecDeque<Duration> = VecDeque::new(); // the last `room` instants taken
    for call in calls {
        for _ in 0..call.cost / unit {
            let oldest = if recent.len() < room as usize { None } else { recent.pop_front() };
            let instant = oldest.map_or(call.start, |oldest| call.start.max(oldest + window));
            if instant > call.end {
                return Err(Violation::Late { call: *call, earliest: instant, max });
            }
            recent.push_back(instant);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
