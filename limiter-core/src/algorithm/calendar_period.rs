//! Periods of the calendar: at most `max` permits in each.
//!
//! The first take fixes where its period ends, and that period counts until then, whatever edges later callers have. So a
//! changed zone or anchor takes effect at that end. The next period begins no earlier: if that leaves less than half of
//! it, it lasts to the next edge. By "the later start wins" callers whose zones differ would take `max` at each start.
//!
//! Periods are of the wall clock, stamps of the store's clock, which may be another one. If the wall clock steps back
//! before the period, by at most its length, the period goes on. If it steps back further, the counter is void.
//!
//! `calendar.lua` keeps the same state in one string and agrees with this module to the millisecond.

use std::time::Duration;

use crate::algorithm::{AlgorithmInput, Outcome};
use crate::calendar::Calendar;
use crate::clock::ceil_micros;

/// The periods of a limit, and the time that decides in which of them it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CalendarTime {
    pub(crate) calendar: Calendar,
    /// The wall clock in microseconds since 1970.
    pub(crate) micros: u64,
}

/// The permits taken in one period. Instants are in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeriodCounter {
    /// The bounds of the period, by the wall clock. The end is 0 before the first take.
    start: u64,
    end: u64,
    /// The instant of its first take, by the store's clock.
    since: u64,
    /// The instant until which it is kept, by the store's clock.
    expires_at: u64,
    count: u32,
}

/// The present period.
struct PeriodView {
    start: u64,
    end: u64,
    used: u32,
}

impl PeriodCounter {
    pub(super) fn peek(&self, input: &AlgorithmInput) -> Outcome {
        let PeriodView { end, used, .. } = self.view(input);
        let remaining = input.max.saturating_sub(used).saturating_sub(input.pending);
        let until_end = input.calendar.map_or(0, |time| end.saturating_mul(1000).saturating_sub(time.micros));
        let ends_at = input.micros.saturating_add(until_end);
        let needed = u64::from(input.pending) + u64::from(input.cost);
        let (allowed, retry_at) = if input.cost <= remaining || input.cost == 0 {
            (true, Some(input.micros))
        } else {
            (false, (needed <= u64::from(input.max)).then_some(ends_at))
        };
        Outcome { allowed, remaining, retry_at, reset_at: if used == 0 { input.micros } else { ends_at }, delay: 0 }
    }

    /// The permits that count now.
    pub(super) fn used(&self, input: &AlgorithmInput) -> u32 {
        self.view(input).used
    }

    pub(super) fn record(&mut self, input: &AlgorithmInput) {
        let PeriodView { start, end, used } = self.view(input);
        if used == 0 {
            self.since = input.floor;
        }
        self.count = used.saturating_add(input.cost);
        self.set_period(input, start, end);
    }

    /// Sets the end of the present period, rounded up, after a call of this cost. If the end is later by more than half
    /// of a period, the call has begun the next one: a store whose clock is ahead counts it alone.
    pub(super) fn end_after(&mut self, input: &AlgorithmInput, time: Duration) {
        let PeriodView { start, end: own_end, used } = self.view(input);
        let Some(now) = input.calendar.filter(|_| used > 0) else { return };
        let end = now.micros.saturating_add(ceil_micros(time)).div_ceil(1000);
        if end > own_end + (own_end - start) / 2 {
            (self.count, self.since) = (input.cost.min(used), input.floor);
            self.set_period(input, own_end, end);
        } else {
            // The store's start is not known. The period is at least as long as the own one.
            self.set_period(input, start.min(end.saturating_sub(own_end - start)), end);
        }
    }

    /// The start of the present period, in milliseconds of the wall clock.
    pub(super) fn period_start(&self, input: &AlgorithmInput) -> u64 {
        self.view(input).start
    }

    fn set_period(&mut self, input: &AlgorithmInput, start: u64, end: u64) {
        (self.start, self.end) = (start, end);
        let now = input.calendar.map_or(0, |time| time.micros / 1000);
        // For one period more: the next one begins no earlier than it ends.
        self.expires_at = (input.floor + (end + (end - start))).saturating_sub(now);
    }

    /// Returns permits taken at `stamp`, if that was in the present period.
    pub(super) fn refund(&mut self, input: &AlgorithmInput, stamp: u64) {
        let PeriodView { end, used, .. } = self.view(input);
        if used > 0 && end == self.end && stamp >= self.since {
            self.count = used.saturating_sub(input.cost);
        }
    }

    /// The first millisecond at which neither a permit counts nor the end of the period matters; 0 if none was taken.
    pub(super) fn expires_at(&self) -> u64 {
        self.expires_at
    }

    /// Returns the present period and the permits taken in it.
    fn view(&self, input: &AlgorithmInput) -> PeriodView {
        let own = PeriodView { start: self.start, end: self.end, used: self.count };
        // No limit comes without its calendar. It would be denied after `max`.
        let Some(CalendarTime { calendar, micros }) = input.calendar else { return own };
        let (now, length) = (micros / 1000, self.end - self.start);
        if self.end > 0 && now < self.end && self.start.saturating_sub(now) <= length {
            return own;
        }
        let edges = calendar.edges_at(now);
        // Of an older period, and of one that is void, nothing is known.
        let last_end = if self.end <= now && now < self.end + length { self.end } else { 0 };
        if edges.start >= last_end {
            return PeriodView { start: edges.start, end: edges.end, used: 0 };
        }
        let is_short = 2 * (edges.end - last_end) < edges.end - edges.start;
        PeriodView { start: last_end, end: if is_short { edges.after } else { edges.end }, used: 0 }
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests;
