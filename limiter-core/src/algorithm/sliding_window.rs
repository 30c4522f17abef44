//! The exact sliding window: at most `max` permits in any half-open window `(t - window, t]`.
//!
//! A *run log* stores the stamp of each run of calls, and the running total of permits up to it. A run takes 8 bytes,
//! whatever the number of its calls. The permits used are the last total minus the total before the first live run.
//! Binary search finds the first live run, and the run whose expiry frees enough permits.
//!
//! Calls of one millisecond share a run. In a log with [`CAPACITY`] live runs, calls in one cell of a fixed grid share
//! a run too, and its stamp moves up. A cell is as long as `window / CAPACITY`, rounded up. So the log is exact up to
//! `CAPACITY` distinct instants a window. Beyond that a permit expires less than `window / CAPACITY` late, never early,
//! and the log has at most about twice `CAPACITY` runs. A rule that merges into any *recent* run would fail. Near the
//! limit that run would never close, and only half of the permits would be granted.
//!
//! Stamps round up and cut-offs round down: rounding may deny a little late, but never admits too much. The last stamp
//! may be ahead of the clock, by rounding or because the clock stepped back. By up to a window, time stands still at
//! that stamp until the clock has caught up. By more, the log is void.
//!
//! A refund takes permits from the first run that is not before the receipt's stamp, and the rest from the oldest runs.
//! Merging and a clock that is behind only move stamps up. So that run is the receipt's own or an older one. The
//! remaining permits count at least as long as if the call had not been made. A receipt is valid only while its stamp
//! lies between the log's base and the newest run, less than a window before the latter. A refund that removes the
//! newest run, or expired ones, moves the base up to keep that proof. So no receipt removes permits that were taken
//! after its own had expired.
//!
//! `sliding_window.lua` keeps the same log in one string and agrees with this module to the millisecond.

use crate::algorithm::{AlgorithmInput, CounterKind, Outcome};
use runs::{Run, Runs};

mod runs;

/// The number of live runs from which calls of one grid cell share a run.
pub(super) const CAPACITY: usize = 128;

/// The most units of a window.
const MAX_UNITS: u64 = 1 << 24;

/// The permits taken, as runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// The instant from which offsets are measured.
    base: u64,
    /// The running total before the first run.
    before: u32,
    runs: Runs,
}

/// The live part of a log at one instant.
struct View {
    /// The index of the first live run.
    live: usize,
    /// The running total before it.
    before: u32,
    used: u32,
    /// The newest stamp, or now if no run is live.
    stamp: u64,
}

impl Log {
    /// Decides, and takes the permits if they fit.
    pub(super) fn decide(&mut self, input: &AlgorithmInput) -> Outcome {
        let view = self.view(input);
        let outcome = self.evaluate(&view, input);
        if !outcome.allowed || input.cost == 0 {
            return outcome;
        }
        let stamp = self.take(&view, input);
        Outcome { remaining: outcome.remaining - input.cost, reset_at: stamp + input.kind.window, ..outcome }
    }

    /// Makes the decision in the common case: the newest run is live and not ahead of the clock, and the permits fit. `None`
    /// in every other case, and then nothing has changed.
    #[inline(always)]
    pub(super) fn decide_fast_path(&mut self, input: &AlgorithmInput) -> Option<Outcome> {
        let AlgorithmInput { floor, ceil, kind: CounterKind { window, .. }, cost, .. } = *input;
        let available = input.max.saturating_sub(input.pending);
        if window > MAX_UNITS {
            let (remaining, reset_at) = self.take_in_units(floor, ceil, window, available, cost)?;
            return Some(Outcome { allowed: true, remaining, retry_at: Some(floor), reset_at, delay: 0 });
        }
        let (base, before) = (self.base, self.before);
        let (newest, first) = self.runs.ends()?;
        let (first, stamp) = (base + u64::from(first), base + u64::from(newest.offset));
        if stamp > ceil || stamp + window <= floor || cost == 0 {
            return None;
        }
        let remaining = if first + window <= floor {
            self.take_after_expiry(floor, ceil, window, available, cost)?
        } else {
            let remaining = available.saturating_sub(newest.total.wrapping_sub(before)).checked_sub(cost)?;
            let total = newest.total.wrapping_add(cost);
            if stamp == ceil {
                newest.total = total;
            } else {
                self.push_at_now(total, ceil, window)?;
            }
            remaining
        };
        Some(Outcome { allowed: true, remaining, retry_at: Some(floor), reset_at: ceil + window, delay: 0 })
    }

    /// Takes permits in the common case of a window with units of several milliseconds: also no run has expired, and the newest
    /// one may be ahead of the clock by less than a unit. Returns the number of permits left, and when all are free.
    #[inline(never)]
    fn take_in_units(&mut self, floor: u64, ceil: u64, window: u64, available: u32, cost: u32) -> Option<(u32, u64)> {
        let (base, before, unit) = (self.base, self.before, unit(window));
        let shift = unit.trailing_zeros();
        let (newest, first) = self.runs.ends()?;
        let (first, stamp) = (base + (u64::from(first) << shift), base + (u64::from(newest.offset) << shift));
        // As `proven_time`: the first run is live, so the newest is not a window ahead.
        let time = floor.max(stamp.saturating_sub(unit));
        if stamp >= ceil + unit || first + window <= time || cost == 0 {
            return None;
        }
        let offset = u32::try_from((ceil.saturating_sub(base) + (unit - 1)) >> shift).ok()?.max(newest.offset);
        let remaining = available.saturating_sub(newest.total.wrapping_sub(before)).checked_sub(cost)?;
        let run = Run { offset, total: newest.total.wrapping_add(cost) };
        if offset == newest.offset {
            *newest = run;
        } else {
            self.add_run(run, unit, window);
        }
        Some((remaining, self.stamp(run, unit) + window))
    }

    /// Takes permits on the fast path after the oldest run has expired, and returns the number of permits left. A
    /// reference to the input, here or above, would keep that of all calls out of registers.
    #[inline(never)]
    fn take_after_expiry(&mut self, floor: u64, ceil: u64, window: u64, available: u32, cost: u32) -> Option<u32> {
        let newest = self.runs.newest()?;
        let (expired, before) = self.runs.expired(|run| self.stamp(run, 1) + window <= floor)?;
        let remaining = available.saturating_sub(newest.total.wrapping_sub(before)).checked_sub(cost)?;
        let run = Run { offset: u32::try_from(ceil - self.base).ok()?, total: newest.total.wrapping_add(cost) };
        // Expired runs do not count for the capacity.
        self.runs.drop_oldest(expired);
        self.before = before;
        if run.offset == newest.offset {
            self.runs.replace_newest(run);
        } else {
            self.add_run(run, 1, window);
        }
        Some(remaining)
    }

    /// Adds a run of now, which must be after the newest. `None` if the base must be moved up first.
    #[inline(never)]
    fn push_at_now(&mut self, total: u32, ceil: u64, window: u64) -> Option<()> {
        let offset = u32::try_from(ceil - self.base).ok()?;
        self.add_run(Run { offset, total }, 1, window);
        Some(())
    }

    /// Appends a run, which must be after the newest. In a log at its capacity it may be merged into that run.
    #[inline(always)]
    fn add_run(&mut self, run: Run, unit: u64, window: u64) {
        if self.runs.len() < CAPACITY {
            self.runs.push(run);
        } else {
            self.add_run_at_capacity(run, unit, window);
        }
    }

    #[inline(never)]
    fn add_run_at_capacity(&mut self, run: Run, unit: u64, window: u64) {
        let cell = window.div_ceil(CAPACITY as u64);
        let newest = self.runs.newest().unwrap_or_default();
        // The numbers of both cells would take two divisions.
        if self.stamp(newest, unit) % cell + u64::from(run.offset - newest.offset) * unit < cell {
            self.runs.replace_newest(run);
        } else {
            self.runs.push(run);
        }
    }

    /// Returns the outcome that [`decide`](Log::decide) would have, and takes nothing. Its `remaining` is the number of
    /// permits before the call.
    pub(super) fn peek(&self, input: &AlgorithmInput) -> Outcome {
        self.evaluate(&self.view(input), input)
    }

    /// The permits that count now.
    pub(super) fn used(&self, input: &AlgorithmInput) -> u32 {
        self.view(input).used
    }

    /// Takes permits that another store has admitted, even beyond the limit.
    pub(super) fn record(&mut self, input: &AlgorithmInput) {
        let mut view = self.view(input);
        let excess = input.cost.saturating_sub(u32::MAX - view.used);
        if excess > 0 {
            // The total saturates. The newest permits expire last, so the oldest are removed.
            self.drop_expired(&view);
            self.remove_oldest(excess);
            view = self.view(input);
        }
        self.take(&view, input);
    }

    /// Returns permits taken at `stamp`, while they are live: see the module's documentation.
    ///
    /// A stamp before the base, as after a reset, or after the newest run, as after the clock stepped back, is not of
    /// this log.
    pub(super) fn refund(&mut self, input: &AlgorithmInput, stamp: u64) {
        let Some(view) = self.view_with_stamp(input, stamp) else { return };
        self.drop_expired(&view);
        let unit = unit(input.kind.window);
        let own = self.first_run(0, |run| self.stamp(run, unit) >= stamp);
        let before = if own == 0 { self.before } else { self.runs.get(own - 1).total };
        let in_run = self.runs.get(own).total.wrapping_sub(before);
        let from_run = input.cost.min(in_run);
        // The newest run and expired runs prove how far time has come. If one of them is removed, the base proves it.
        if view.live > 0 || (from_run == in_run && own + 1 == self.runs.len()) {
            self.raise_base(input.floor.max(view.stamp).saturating_sub(input.kind.window), unit);
        }
        self.runs.subtract_from(own, from_run);
        if from_run == in_run {
            self.runs.remove(own);
        }
        self.remove_oldest((input.cost - from_run).min(view.used - from_run));
    }

    /// Returns the view of now, if permits taken at `stamp` are in the log and live.
    fn view_with_stamp(&self, input: &AlgorithmInput, stamp: u64) -> Option<View> {
        let view = self.view(input);
        let is_within = (self.base..=view.stamp).contains(&stamp);
        // Also compare with the newest stamp: permits that expired by then may already have been granted again.
        let time = input.floor.max(view.stamp);
        (view.used > 0 && is_within && stamp + input.kind.window > time).then_some(view)
    }

    /// Moves the base past `expired`, at most to the oldest run, so that receipts up to that stamp are invalid.
    fn raise_base(&mut self, expired: u64, unit: u64) {
        let units = (expired + 1).saturating_sub(self.base).div_ceil(unit);
        let oldest = self.runs.oldest().map_or(0, |run| run.offset);
        self.rebase(u32::try_from(units).unwrap_or(u32::MAX).min(oldest), unit);
    }

    /// Removes permits from the oldest runs. All runs must be live and together have that many.
    fn remove_oldest(&mut self, permits: u32) {
        while self.runs.oldest().is_some_and(|run| run.total.wrapping_sub(self.before) <= permits) {
            self.runs.drop_oldest(1);
        }
        self.before = self.before.wrapping_add(permits);
    }

    /// Returns the first millisecond at which no permit of the log counts.
    pub(super) fn expires_at(&self, window: u64) -> u64 {
        self.runs.newest().map_or(0, |run| self.stamp(run, unit(window)) + window)
    }

    #[inline(always)]
    fn view(&self, input: &AlgorithmInput) -> View {
        let empty = View { live: self.runs.len(), before: 0, used: 0, stamp: input.ceil };
        let Some(last) = self.runs.newest() else { return empty };
        let unit = unit(input.kind.window);
        let stamp = self.stamp(last, unit);
        let time = proven_time(stamp, unit, input);
        if stamp > input.ceil + input.kind.window || stamp + input.kind.window <= time {
            return empty;
        }
        let is_live = |run| self.stamp(run, unit) + input.kind.window > time;
        // In most cases the oldest run is live: a take drops expired runs.
        let live = if self.runs.oldest().is_some_and(is_live) { 0 } else { self.first_run(0, is_live) };
        let before = if live == 0 { self.before } else { self.runs.get(live - 1).total };
        View { live, before, used: last.total.wrapping_sub(before), stamp }
    }

    #[inline(always)]
    fn evaluate(&self, view: &View, input: &AlgorithmInput) -> Outcome {
        let remaining = input.max.saturating_sub(view.used).saturating_sub(input.pending);
        let reset_at = if view.used == 0 { input.floor } else { view.stamp + input.kind.window };
        // In u64, because the sum with the used or the pending permits may exceed u32::MAX.
        let needed = u64::from(input.pending) + u64::from(input.cost);
        let (allowed, retry_at) = if input.cost == 0 || input.cost <= remaining {
            (true, Some(input.floor))
        } else if needed > u64::from(input.max) {
            (false, None)
        } else {
            let missing = u64::from(view.used) + needed - u64::from(input.max);
            let freeing = self.first_run(view.live, |run| u64::from(run.total.wrapping_sub(view.before)) >= missing);
            (false, Some(self.stamp(self.runs.get(freeing), unit(input.kind.window)) + input.kind.window))
        };
        Outcome { allowed, remaining, retry_at, reset_at, delay: 0 }
    }

    /// Appends the permits and returns their stamp.
    #[inline(always)]
    fn take(&mut self, view: &View, input: &AlgorithmInput) -> u64 {
        let unit = unit(input.kind.window);
        self.drop_expired(view);
        let Some(last) = self.runs.newest() else {
            self.base = input.ceil;
            self.before = 0;
            self.runs.push(Run { offset: 0, total: input.cost });
            return input.ceil;
        };
        // A shift divides: a unit is a power of two.
        let mut offset = (input.ceil.saturating_sub(self.base) + (unit - 1)) >> unit.trailing_zeros();
        if offset > u64::from(u32::MAX) {
            // No receipt of a stamp before the new base is valid.
            let expired = (offset * unit + 1).saturating_sub(input.kind.window) >> unit.trailing_zeros();
            let oldest = self.runs.oldest().map_or(0, |run| run.offset);
            let by = u32::try_from(expired).unwrap_or(u32::MAX).min(oldest);
            self.rebase(by, unit);
            offset -= u64::from(by);
        }
        let last = self.runs.newest().unwrap_or(last);
        // After a rebase the live runs span at most two windows, far fewer than 2^32 units.
        let offset = u32::try_from(offset).unwrap_or(u32::MAX).max(last.offset);
        let run = Run { offset, total: last.total.wrapping_add(input.cost) };
        if offset == last.offset {
            self.runs.replace_newest(run);
            return self.stamp(run, unit);
        }
        self.add_run(run, unit, input.kind.window);
        self.stamp(run, unit)
    }

    /// Returns the first run from `low` on for which `found` holds, by binary search. It must hold for all later runs,
    /// and for the last one.
    fn first_run(&self, mut low: usize, found: impl Fn(Run) -> bool) -> usize {
        let mut high = self.runs.len() - 1;
        while low < high {
            let middle = usize::midpoint(low, high);
            if found(self.runs.get(middle)) { high = middle } else { low = middle + 1 }
        }
        low
    }

    fn drop_expired(&mut self, view: &View) {
        if view.live > 0 {
            self.runs.drop_oldest(view.live);
        }
        self.before = view.before;
    }

    /// Moves the base up, at most to the oldest run.
    #[cold]
    fn rebase(&mut self, by: u32, unit: u64) {
        self.runs.rebase(by);
        self.base += u64::from(by) * unit;
    }

    #[inline]
    fn stamp(&self, run: Run, unit: u64) -> u64 {
        self.base + u64::from(run.offset) * unit
    }
}

/// Returns the instant from which cut-offs are measured: now, or the time that the last stamp proves if that is later.
#[inline]
fn proven_time(stamp: u64, unit: u64, input: &AlgorithmInput) -> u64 {
    let proven = stamp.saturating_sub(unit);
    // A stamp more than a window ahead proves nothing: the log is void.
    if proven > input.ceil + input.kind.window { input.floor } else { proven.max(input.floor) }
}

/// Returns the unit of offsets in milliseconds: 1 for windows up to 4.66 hours, and for longer ones the smallest power of
/// two with which a window has at most 2^24 units. So the scripts can store a gap between two runs in 3 bytes.
#[inline]
fn unit(window: u64) -> u64 {
    if window <= MAX_UNITS { 1 } else { window.div_ceil(MAX_UNITS).next_power_of_two() }
}

#[cfg(test)]
mod tests;
