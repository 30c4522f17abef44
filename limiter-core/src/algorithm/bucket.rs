//! What the two buckets have in common: permits that were taken, and flow back at `max` a window.
//!
//! The state is a debt at an instant, which shrinks by itself. It is kept in whole permits and a fraction in
//! microseconds of the window, so `max` permits a window is a whole number of units a microsecond, and nothing is
//! ever rounded but the instants that answers name. (GCRA keeps the same as one instant, the theoretical arrival time,
//! which means another number of permits as soon as `max` changes. A debt means the same whatever `max` is.)
//!
//! What was taken is back at the latest when the call that took last was told that it would be, also for a caller
//! whose `max` is lower: so a state is dead at an instant of its own, and expires then, in memory and in Redis.
//!
//! The clock may be behind the last call, because it stepped back: by up to a window, time stands still until it has
//! caught up; further ahead, the state is void.
//!
//! `bucket.lua` keeps the same in one string and agrees with this module to the microsecond.

use crate::algorithm::AlgorithmInput;

/// Permits that have not come back. Instants in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    /// When something was taken while nothing was missing.
    since: u64,
    /// When something was taken last: what the debt is as of.
    at: u64,
    permits: u64,
    /// Of a permit, in microseconds of the window.
    fraction: u64,
    /// When all is back, at the rate of the call that took last.
    full_at: u64,
    /// More than one call took at `at`.
    crowded: bool,
}

/// What a bucket says at one instant.
pub(super) struct Level {
    /// The instant: now, or when something was taken last if the clock is behind that.
    pub(super) now: u64,
    /// Units that are missing; a permit has [`units`] of them.
    pub(super) debt: u128,
    full_at: u64,
    rate: u32,
}

/// The longest wait that is told apart: 71 years, so that no instant passes what a script can count to.
const FAR: u64 = 1 << 51;

/// Units in so many permits.
pub(super) fn units(permits: u64, ask: &AlgorithmInput) -> u128 {
    u128::from(permits) * u128::from(ask.span.window * 1000)
}

impl Bucket {
    pub(super) fn level(&self, ask: &AlgorithmInput) -> Level {
        let nothing = |now| Level { now, debt: 0, full_at: now, rate: ask.max };
        if self.permits + self.fraction == 0 || self.at > ask.micros + ask.span.window * 1000 {
            return nothing(ask.micros);
        }
        let now = self.at.max(ask.micros);
        if now >= self.full_at {
            return nothing(now);
        }
        let taken = units(self.permits, ask) + u128::from(self.fraction);
        let back = u128::from(now - self.at) * u128::from(ask.max);
        Level { now, debt: taken.saturating_sub(back), full_at: self.full_at, rate: ask.max }
    }

    /// Takes the permits on top of what is missing.
    pub(super) fn take(&mut self, ask: &AlgorithmInput) {
        let level = self.level(ask);
        let crowded = self.at == level.now && self.permits + self.fraction > 0;
        if level.debt == 0 {
            self.since = level.now;
        }
        self.set(&level, level.debt + units(ask.cost.into(), ask), ask);
        self.full_at = level.now + wait(level.debt + units(ask.cost.into(), ask), ask.max);
        self.crowded = crowded;
    }

    /// What was taken at `stamp` is as if it had been taken now.
    pub(super) fn renew(&mut self, ask: &AlgorithmInput, stamp: u64) {
        // Had somebody taken since, that would be part of the debt as of then.
        if self.at == stamp {
            let later = ask.micros.saturating_sub(stamp);
            self.at += later;
            self.full_at += later;
        }
    }

    /// Gives back up to so many units. When all is back stays a promise of the call that took last: the receipt's rate
    /// may be another.
    pub(super) fn put_back(&mut self, back: u128, ask: &AlgorithmInput) {
        let level = self.level(ask);
        if level.debt > 0 && back > 0 {
            self.set(&level, level.debt.saturating_sub(back), ask);
            self.crowded = true;
        }
    }

    /// Whether what was taken at `stamp` is part of the debt.
    pub(super) fn covers(&self, stamp: u64) -> bool {
        stamp >= self.since
    }

    /// Whether one call took at `stamp`, and none since.
    pub(super) fn ends_with(&self, stamp: u64) -> bool {
        stamp == self.at && !self.crowded
    }

    pub(super) fn expires_at(&self) -> u64 {
        self.full_at.div_ceil(1000)
    }

    fn set(&mut self, level: &Level, debt: u128, ask: &AlgorithmInput) {
        let permit = units(1, ask);
        self.at = level.now;
        self.permits = u64::try_from(debt / permit).unwrap_or(u64::MAX);
        self.fraction = u64::try_from(debt % permit).unwrap_or(0);
    }
}

impl Level {
    /// When no more than `debt` is missing, if nobody calls.
    pub(super) fn shrinks_to(&self, debt: u128) -> u64 {
        (self.now + wait(self.debt.saturating_sub(debt), self.rate)).min(self.full_at)
    }
}

/// Microseconds that so many units take to come back.
fn wait(debt: u128, max: u32) -> u64 {
    let wait = debt.div_ceil(u128::from(max.max(1)));
    u64::try_from(wait).unwrap_or(FAR).min(FAR)
}
