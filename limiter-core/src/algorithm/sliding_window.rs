//! The exact sliding window: at most `max` permits in any half-open window `(t - window, t]`.
//!
//! A *run log* keeps, for each run of calls, when it was and the running total of permits up to it: 8 bytes a run
//! instead of an entry a call. What is used is the last total minus the total before the first live run; the first
//! live run, and the run with which enough permits come back, are found by binary search.
//!
//! Calls of one millisecond share a run. A log with [`CAPACITY`] live runs lets a call join the newest run only inside
//! the same cell of a fixed grid of `window / CAPACITY`, and the run's stamp moves up. So the log is exact up to
//! `CAPACITY` distinct instants a window; beyond that a permit comes back less than `window / CAPACITY` late, never
//! early, and there are never more than about twice `CAPACITY` runs. (Joining whenever the newest run is merely
//! *young* would not do: near the limit it would never close, and the limit would admit half of what it allows.)
//!
//! Stamps round up and cut-offs round down: rounding may deny a little late, never admit too much. The last stamp may
//! be ahead of the clock, by rounding or because the clock stepped back: by up to a window, time stands still at that
//! stamp until the clock has caught up; further ahead, the log is void.
//!
//! A refund takes permits from the first run that is not before the receipt's stamp, and what that run lacks from the
//! oldest runs. Merging and a clock that is behind only move stamps up, so that run is the permits' own or an older one:
//! what is left counts at least as long as it would if the call had not been made. Beyond that, a receipt is good only
//! while its stamp lies between the log's base and its newest run, and is less than a window older than that run; a
//! refund that removes such a proof moves the base up instead. So no receipt takes permits that were counted after its
//! own were over.
//!
//! `sliding_window.lua` keeps the same log in one string and agrees with this module to the millisecond.

use crate::algorithm::{AlgorithmInput, Outcome};
use runs::{Run, Runs};

mod runs;

/// Live runs from which on calls share cells of the grid.
pub(super) const CAPACITY: usize = 128;

/// What was taken, as runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// The instant that offsets count from.
    base: u64,
    /// The running total before the first run.
    before: u32,
    runs: Runs,
}

/// What a log says at one instant.
struct View {
    /// Index of the first run that counts.
    live: usize,
    /// The running total before it.
    before: u32,
    used: u32,
    /// The newest stamp, or now if nothing counts.
    stamp: u64,
}

impl Log {
    /// Decides, and takes the permits if they fit.
    pub(super) fn decide(&mut self, ask: &AlgorithmInput) -> Outcome {
        let view = self.view(ask);
        let outcome = self.evaluate(&view, ask);
        if !outcome.allowed || ask.cost == 0 {
            return outcome;
        }
        let stamp = self.take(&view, ask);
        Outcome { remaining: outcome.remaining - ask.cost, reset_at: stamp + ask.span.window, ..outcome }
    }

    /// Decides about what most calls to a busy key come to, in a few steps: the newest run is of this millisecond, the
    /// oldest still counts, and there is room. Nothing if it is not so.
    #[inline(always)]
    pub(super) fn join(&mut self, ask: &AlgorithmInput) -> Option<Outcome> {
        let (unit, window) = (unit(ask.span.window), ask.span.window);
        let (base, before) = (self.base, self.before);
        let (last, first) = self.runs.ends()?;
        let stamp_of = |offset: u32| base + u64::from(offset) * unit;
        let (first, stamp) = (stamp_of(first), stamp_of(last.offset));
        // With the newest run of now, nothing is ahead of the clock.
        if stamp != ask.ceil || first + window <= ask.floor || ask.cost == 0 {
            return None;
        }
        let used = last.total.wrapping_sub(before);
        let remaining = ask.max.saturating_sub(used).saturating_sub(ask.pending).checked_sub(ask.cost)?;
        last.total = last.total.wrapping_add(ask.cost);
        let (retry_at, reset_at) = (Some(ask.floor), stamp + window);
        Some(Outcome { allowed: true, remaining, retry_at, reset_at, delay: 0 })
    }

    /// What [`decide`](Log::decide) would say, taking nothing: `remaining` is what is left before the call.
    pub(super) fn peek(&self, ask: &AlgorithmInput) -> Outcome {
        self.evaluate(&self.view(ask), ask)
    }

    /// Takes the permits whether they fit or not: somebody else has admitted them.
    pub(super) fn record(&mut self, ask: &AlgorithmInput) {
        let mut view = self.view(ask);
        let excess = ask.cost.saturating_sub(u32::MAX - view.used);
        if excess > 0 {
            // The count saturates. The newest permits count longest, so the oldest make room for them.
            self.drop_dead(&view);
            self.take_off_oldest(excess);
            view = self.view(ask);
        }
        self.take(&view, ask);
    }

    /// Gives back permits that were taken at `stamp`, while they are live: see the module's documentation.
    ///
    /// Permits taken before the log began, as before a reset, or after it ends, as before the clock stepped back, are not
    /// in it.
    pub(super) fn refund(&mut self, ask: &AlgorithmInput, stamp: u64) {
        let Some(view) = self.holding(ask, stamp) else { return };
        self.drop_dead(&view);
        let unit = unit(ask.span.window);
        let own = self.first(0, |run| self.stamp(run, unit) >= stamp);
        let before = if own == 0 { self.before } else { self.runs.at(own - 1).total };
        let held = self.runs.at(own).total.wrapping_sub(before);
        let back = ask.cost.min(held);
        // The newest run, and runs that are over, prove how far time has come. With one of them gone, the base proves it.
        if view.live > 0 || (back == held && own + 1 == self.runs.len()) {
            self.exclude(ask.floor.max(view.stamp).saturating_sub(ask.span.window), unit);
        }
        self.runs.lower_from(own, back);
        if back == held {
            self.runs.remove(own);
        }
        self.take_off_oldest((ask.cost - back).min(view.used - back));
    }

    /// What the log says, if permits taken at `stamp` are in it and live.
    fn holding(&self, ask: &AlgorithmInput, stamp: u64) -> Option<View> {
        let view = self.view(ask);
        let is_within = (self.base..=view.stamp).contains(&stamp);
        // By the newest stamp, too: those who took theirs then may have had the room of what was over.
        let time = ask.floor.max(view.stamp);
        (view.used > 0 && is_within && stamp + ask.span.window > time).then_some(view)
    }

    /// Moves the base after stamps up to `over`, as far as the oldest run allows, so that no receipt from then is good.
    fn exclude(&mut self, over: u64, unit: u64) {
        let units = (over + 1).saturating_sub(self.base).div_ceil(unit);
        let oldest = self.runs.oldest().map_or(0, |run| run.offset);
        self.rebase(u32::try_from(units).unwrap_or(u32::MAX).min(oldest), unit);
    }

    /// Removes permits from the oldest runs. All runs must be live and hold that many.
    fn take_off_oldest(&mut self, back: u32) {
        while self.runs.oldest().is_some_and(|run| run.total.wrapping_sub(self.before) <= back) {
            self.runs.drop_oldest(1);
        }
        self.before = self.before.wrapping_add(back);
    }

    /// From when on nothing in the log counts.
    pub(super) fn expires_at(&self, window: u64) -> u64 {
        self.runs.newest().map_or(0, |run| self.stamp(run, unit(window)) + window)
    }

    #[inline(always)]
    fn view(&self, ask: &AlgorithmInput) -> View {
        let nothing = View { live: self.runs.len(), before: 0, used: 0, stamp: ask.ceil };
        let Some(last) = self.runs.newest() else { return nothing };
        let unit = unit(ask.span.window);
        let stamp = self.stamp(last, unit);
        let time = time(stamp, unit, ask);
        if stamp > ask.ceil + ask.span.window || stamp + ask.span.window <= time {
            return nothing;
        }
        let counts = |run| self.stamp(run, unit) + ask.span.window > time;
        // Mostly the oldest still does: what is dead is dropped by whoever takes.
        let live = if self.runs.oldest().is_some_and(counts) { 0 } else { self.first(0, counts) };
        let before = if live == 0 { self.before } else { self.runs.at(live - 1).total };
        View { live, before, used: last.total.wrapping_sub(before), stamp }
    }

    #[inline(always)]
    fn evaluate(&self, view: &View, ask: &AlgorithmInput) -> Outcome {
        let remaining = ask.max.saturating_sub(view.used).saturating_sub(ask.pending);
        let reset_at = if view.used == 0 { ask.floor } else { view.stamp + ask.span.window };
        // In u64: with what is used, or pending, the sum may pass u32::MAX.
        let needed = u64::from(ask.pending) + u64::from(ask.cost);
        let (allowed, retry_at) = if ask.cost == 0 || ask.cost <= remaining {
            (true, Some(ask.floor))
        } else if needed > u64::from(ask.max) {
            (false, None)
        } else {
            let missing = u64::from(view.used) + needed - u64::from(ask.max);
            let enough = self.first(view.live, |run| u64::from(run.total.wrapping_sub(view.before)) >= missing);
            (false, Some(self.stamp(self.runs.at(enough), unit(ask.span.window)) + ask.span.window))
        };
        Outcome { allowed, remaining, retry_at, reset_at, delay: 0 }
    }

    /// Appends the permits and gives their stamp.
    #[inline(always)]
    fn take(&mut self, view: &View, ask: &AlgorithmInput) -> u64 {
        let unit = unit(ask.span.window);
        self.drop_dead(view);
        let Some(last) = self.runs.newest() else {
            self.base = ask.ceil;
            self.before = 0;
            self.runs.push(Run { offset: 0, total: ask.cost });
            return ask.ceil;
        };
        // By a shift: a unit is a power of two.
        let mut offset = (ask.ceil.saturating_sub(self.base) + (unit - 1)) >> unit.trailing_zeros();
        if offset > u64::from(u32::MAX) {
            let by = self.runs.oldest().map_or(0, |run| run.offset);
            self.rebase(by, unit);
            offset -= u64::from(by);
        }
        let last = self.runs.newest().unwrap_or(last);
        // In range: after a rebase the live runs span at most two windows, far less than 2^32 units.
        let offset = u32::try_from(offset).unwrap_or(u32::MAX).max(last.offset);
        let run = Run { offset, total: last.total.wrapping_add(ask.cost) };
        if offset == last.offset {
            self.runs.replace_newest(run);
            return self.stamp(run, unit);
        }
        let (stamp, newest) = (self.stamp(run, unit), self.stamp(last, unit));
        let cell = ask.span.window.div_ceil(CAPACITY as u64);
        if self.runs.len() >= CAPACITY && stamp / cell == newest / cell {
            self.runs.replace_newest(run);
        } else {
            self.runs.push(run);
        }
        stamp
    }

    /// Binary search: the first run from `low` on for which `found` holds, as it does for all after it. The last run
    /// must be one of them.
    fn first(&self, mut low: usize, found: impl Fn(Run) -> bool) -> usize {
        let mut high = self.runs.len() - 1;
        while low < high {
            let middle = usize::midpoint(low, high);
            if found(self.runs.at(middle)) { high = middle } else { low = middle + 1 }
        }
        low
    }

    fn drop_dead(&mut self, view: &View) {
        if view.live > 0 {
            self.runs.drop_oldest(view.live);
        }
        self.before = view.before;
    }

    /// Moves the base, to the oldest run at most.
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

/// The instant that cut-offs are measured from: now, or as far as the last stamp proves that time had come.
#[inline]
fn time(stamp: u64, unit: u64, ask: &AlgorithmInput) -> u64 {
    let proven = stamp.saturating_sub(unit);
    // A stamp further ahead than a window proves nothing: the log is void.
    if proven > ask.ceil + ask.span.window { ask.floor } else { proven.max(ask.floor) }
}

/// Milliseconds a step of the offsets: 1 up to 12 days, and as many as let four windows fit into 32 bits above.
#[inline]
fn unit(window: u64) -> u64 {
    if window <= 1 << 30 { 1 } else { window.div_ceil(1 << 30).next_power_of_two() }
}

#[cfg(test)]
mod tests;
