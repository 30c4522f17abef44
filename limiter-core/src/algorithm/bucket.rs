//! The state that both buckets share: permits are taken, and refill at `max` a window.
//!
//! The state is a debt at an instant, and the debt shrinks with time. It consists of whole permits and a fraction of
//! one, in units of a permit divided by the microseconds of the window. In these units `max` permits a window is a
//! whole rate a microsecond, so only the instants of an outcome are rounded. GCRA stores a single instant instead, the
//! theoretical arrival time. It stands for another number of permits as soon as `max` changes; a debt does not.
//!
//! The bucket is full no later than `full_at`, which the last take computes, even for a caller with a lower `max`. So
//! the state expires at that instant, in memory and in Redis.
//!
//! The clock may step back behind the last call. By up to a window, time stands still until the clock has caught up.
//! By more, the state is void.
//!
//! `bucket.lua` keeps the same state in one string and agrees with this module to the microsecond.

use crate::algorithm::AlgorithmInput;

/// A debt of permits that have not refilled yet. Instants are in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    /// The instant of the last take from a full bucket.
    since: u64,
    /// The instant of the last change, as of which the debt is stored.
    at: u64,
    permits: u64,
    /// The part of a permit, in units: a permit has as many as the window has microseconds.
    fraction: u64,
    /// The instant at which the bucket is full, at the rate of the last call that took permits.
    full_at: u64,
    /// True if more than one call changed the debt at `at`.
    instant_is_shared: bool,
}

/// The debt of a bucket at one instant.
pub(super) struct Level {
    /// The instant: now, or the last change if the clock is behind it.
    pub(super) now: u64,
    /// The debt, in [`units`].
    pub(super) debt: u128,
    full_at: u64,
    rate: u32,
}

/// The longest wait, in microseconds (71 years). Longer ones are cut off, so that no instant exceeds the integers of
/// Lua.
const MAX_WAIT_MICROS: u64 = 1 << 51;

/// Converts permits to units.
pub(super) fn units(permits: u64, input: &AlgorithmInput) -> u128 {
    u128::from(permits) * u128::from(input.kind.window * 1000)
}

impl Bucket {
    pub(super) fn level(&self, input: &AlgorithmInput) -> Level {
        let full = |now| Level { now, debt: 0, full_at: now, rate: input.max };
        if self.permits + self.fraction == 0 || self.at > input.micros + input.kind.window * 1000 {
            return full(input.micros);
        }
        let now = self.at.max(input.micros);
        if now >= self.full_at {
            return full(now);
        }
        let taken = units(self.permits, input) + u128::from(self.fraction);
        let refilled = u128::from(now - self.at) * u128::from(input.max);
        Level { now, debt: taken.saturating_sub(refilled), full_at: self.full_at, rate: input.max }
    }

    /// The debt in permits. A part of one counts as a whole.
    pub(super) fn used(&self, input: &AlgorithmInput) -> u64 {
        u64::try_from(self.level(input).debt.div_ceil(units(1, input))).unwrap_or(u64::MAX)
    }

    /// Adds the permits to the debt.
    pub(super) fn take(&mut self, input: &AlgorithmInput) {
        let level = self.level(input);
        let instant_is_shared = self.at == level.now && self.permits + self.fraction > 0;
        if level.debt == 0 {
            self.since = level.now;
        }
        self.set(&level, level.debt + units(input.cost.into(), input), input);
        self.full_at = level.now + wait(level.debt + units(input.cost.into(), input), input.max);
        self.instant_is_shared = instant_is_shared;
    }

    /// Changes the instant of permits taken at `stamp` to now.
    pub(super) fn restamp(&mut self, input: &AlgorithmInput, stamp: u64) {
        // A later take would have moved `at`, and its permits would be part of the debt.
        if self.at == stamp {
            let later = input.micros.saturating_sub(stamp);
            self.at += later;
            self.full_at += later;
        }
    }

    /// Subtracts up to `refund` units from the debt. `full_at` stays: the rate of the receipt may differ from that of
    /// the last take.
    pub(super) fn refund_units(&mut self, refund: u128, input: &AlgorithmInput) {
        let level = self.level(input);
        if level.debt > 0 && refund > 0 {
            self.set(&level, level.debt.saturating_sub(refund), input);
            self.instant_is_shared = true;
        }
    }

    /// Subtracts up to `refund` units from the debt as of the last change, which was a take. That stays the last change.
    pub(super) fn shorten_last_take(&mut self, refund: u128, input: &AlgorithmInput) {
        if self.level(input).debt > 0 {
            let debt = units(self.permits, input) + u128::from(self.fraction);
            self.store_debt(debt.saturating_sub(refund), input);
        }
    }

    /// Returns true if permits taken at `stamp` are part of the debt.
    pub(super) fn covers(&self, stamp: u64) -> bool {
        stamp >= self.since
    }

    /// Returns true if the last change is a take by a single call at `stamp`.
    pub(super) fn ends_with(&self, stamp: u64) -> bool {
        stamp == self.at && !self.instant_is_shared
    }

    pub(super) fn expires_at(&self) -> u64 {
        self.full_at.div_ceil(1000)
    }

    fn set(&mut self, level: &Level, debt: u128, input: &AlgorithmInput) {
        self.at = level.now;
        self.store_debt(debt, input);
    }

    fn store_debt(&mut self, debt: u128, input: &AlgorithmInput) {
        let permit = units(1, input);
        self.permits = u64::try_from(debt / permit).unwrap_or(u64::MAX);
        self.fraction = u64::try_from(debt % permit).unwrap_or(0);
    }
}

impl Level {
    /// Returns the instant at which the debt has shrunk to `debt`, if no call takes permits.
    pub(super) fn shrinks_to(&self, debt: u128) -> u64 {
        (self.now + wait(self.debt.saturating_sub(debt), self.rate)).min(self.full_at)
    }
}

/// Returns the microseconds in which so many units refill.
fn wait(debt: u128, max: u32) -> u64 {
    let wait = debt.div_ceil(u128::from(max.max(1)));
    u64::try_from(wait).unwrap_or(MAX_WAIT_MICROS).min(MAX_WAIT_MICROS)
}
