//! Naive reference implementations, one for each algorithm. Each follows the definition and not an efficient formula.

mod bucket;
mod windows;

pub use bucket::{LeakyBucketOracle, TokenBucketOracle};
pub use windows::{FixedWindowOracle, SlidingCounterOracle};

/// The reference for a sliding window. It keeps every stamp and counts.
///
/// Time is in whole milliseconds. A permit stamped `s` counts at `t` while `s + window > t`, so the window is `(t -
/// window, t]`. Window and limit are parameters of each call, as in the limiter itself: one history serves callers with
/// different limits.
///
/// Time may step back. While the last stamp is at most one window ahead, time counts as one millisecond before that
/// stamp, and new permits get the same stamp. If it is further ahead, the history is void.
///
/// ```
/// use limiter_testkit::Oracle;
///
/// let mut oracle = Oracle::new();
/// assert!(oracle.check(0, 10_000, 2, 1).allowed);
/// assert!(oracle.check(4_000, 10_000, 2, 1).allowed);
/// let denied = oracle.check(5_000, 10_000, 2, 1);
/// assert_eq!(denied.retry_after, Some(5_000));
/// assert_eq!(denied.reset_after, 9_000);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    taken: Vec<TakenPermits>, // oldest first
    /// The first stamp after the count was last zero.
    first_ms: u64,
    /// The latest instant at which permits were taken or refunded. Permits that had expired then stay expired.
    latest_change_ms: u64,
}

/// The permits of one admitted call.
#[derive(Debug, Clone, Copy)]
struct TakenPermits {
    stamp_ms: u64,
    cost: u32,
}

/// The expected decision. Waits are in the oracle's unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// True if the call gets its permits.
    pub allowed: bool,
    /// The permits left after the call took its own.
    pub remaining: u32,
    /// The least wait after which this cost fits if no other call is made: 0 if it fits now, `None` if it never does.
    pub retry_after: Option<u64>,
    /// The wait after which the window is empty if no other call is made.
    pub reset_after: u64,
}

/// The expected use of a limit after a charge, which takes permits whether they fit or not. A wait is in the oracle's unit of
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charged {
    /// The permits that the counter had no room for.
    pub uncounted: u32,
    /// The permits left.
    pub remaining: u32,
    /// The permits beyond the limit.
    pub overdrawn: u32,
    /// The wait after which all permits are free if no other call is made.
    pub reset_after: u64,
}

impl Charged {
    /// The use of a counter with so many permits of a limit of `capacity`, after a charge of which some were not counted.
    fn new(uncounted: u64, used: u64, capacity: u64, reset_after: u64) -> Self {
        let [uncounted, remaining, overdrawn] =
            [uncounted, capacity.saturating_sub(used), used.saturating_sub(capacity)]
                .map(|permits| u32::try_from(permits).expect("a counter holds at most the largest number"));
        Self { uncounted, remaining, overdrawn, reset_after }
    }
}

/// Returns how many permits of a charge a counter counts that holds at most `most`, of which `used` are in use, and how many
/// it does not.
fn counted_part(cost: u32, used: u64, most: u64) -> (u32, u64) {
    let counted = u64::from(cost).min(most.saturating_sub(used));
    (u32::try_from(counted).expect("at most the cost"), u64::from(cost) - counted)
}

/// The most permits that count in a window.
const MAX_PERMITS: u64 = u32::MAX as u64;

impl Oracle {
    /// Creates an oracle without a history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides a call, and records the permits of an allowed one. A denied call records nothing.
    pub fn check(&mut self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Verdict {
        let before = self.peek(now_ms, window_ms, max, cost);
        if !before.allowed || cost == 0 {
            return before;
        }
        self.take(now_ms, window_ms, cost);
        let after = self.peek(now_ms, window_ms, max, 0);
        Verdict { remaining: after.remaining, reset_after: after.reset_after, ..before }
    }

    /// Takes permits whether they fit or not: as many as make 2^32 - 1 with those that count, and at most `most`.
    pub fn charge(&mut self, now_ms: u64, window_ms: u64, max: u32, (cost, most): (u32, u32)) -> Charged {
        let used = self.used(now_ms, window_ms);
        let (counted, uncounted) = counted_part(cost, used, MAX_PERMITS.min(used + u64::from(most)));
        if counted > 0 {
            self.take(now_ms, window_ms, counted);
        }
        let reset_after = self.peek(now_ms, window_ms, max, 0).reset_after;
        Charged::new(uncounted, self.used(now_ms, window_ms), max.into(), reset_after)
    }

    fn take(&mut self, now_ms: u64, window_ms: u64, cost: u32) {
        let Some(instant_ms) = self.instant(now_ms, window_ms) else {
            *self = Self::default();
            return self.take(now_ms, window_ms, cost);
        };
        let stamp_ms = self.taken.last().map_or(now_ms, |last| now_ms.max(last.stamp_ms));
        if self.counting(now_ms, window_ms).is_empty() {
            self.first_ms = stamp_ms;
        }
        self.latest_change_ms = instant_ms;
        self.taken.push(TakenPermits { stamp_ms, cost });
    }

    /// Decides a call without recording it. `remaining` and `reset_after` are those before the call.
    #[must_use]
    pub fn peek(&self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Verdict {
        let used = self.used(now_ms, window_ms);
        let retry_after = self.retry_after(now_ms, window_ms, max, cost);
        Verdict {
            allowed: retry_after == Some(0),
            remaining: u32::try_from(u64::from(max).saturating_sub(used)).expect("at most `max`"),
            retry_after,
            reset_after: self.counting(now_ms, window_ms).last().map_or(0, |last| last.stamp_ms + window_ms - now_ms),
        }
    }

    /// Refunds a call made at `stamp_ms`. The permits must count now, and must have counted at the last take or refund.
    ///
    /// The permits of the first stamp from `stamp_ms` on are refunded. If they are fewer than `cost`, because the clock
    /// stepped back, the oldest permits make up the rest.
    pub fn refund(&mut self, now_ms: u64, window_ms: u64, stamp_ms: u64, cost: u32) {
        let Some(instant_ms) = self.instant(now_ms, window_ms) else { return };
        let counting = self.counting(now_ms, window_ms).len();
        let Some(last_ms) = self.taken.last().map(|last| last.stamp_ms).filter(|_| counting > 0) else { return };
        let is_within = self.first_ms <= stamp_ms && stamp_ms <= last_ms;
        if !is_within || stamp_ms + window_ms <= now_ms.max(last_ms).max(self.latest_change_ms) {
            return;
        }
        self.latest_change_ms = instant_ms;
        self.taken.drain(..self.taken.len() - counting);
        let own_ms = self.taken.iter().map(|taken| taken.stamp_ms).find(|taken_ms| *taken_ms >= stamp_ms);
        let mut to_refund = cost;
        for own_only in [true, false] {
            for taken in self.taken.iter_mut().filter(|taken| !own_only || Some(taken.stamp_ms) == own_ms) {
                let part = to_refund.min(taken.cost);
                (taken.cost, to_refund) = (taken.cost - part, to_refund - part);
            }
        }
        self.taken.retain(|taken| taken.cost > 0);
    }

    /// Refunds a call whose permits are identified by its exact stamp, as in a sorted set. Permits taken after a reset
    /// are never refunded in their place.
    pub fn refund_own(&mut self, now_ms: u64, window_ms: u64, stamp_ms: u64, cost: u32) {
        if stamp_ms + window_ms <= now_ms {
            return;
        }
        let mut to_refund = cost;
        for taken in self.taken.iter_mut().filter(|taken| taken.stamp_ms == stamp_ms) {
            let part = to_refund.min(taken.cost);
            (taken.cost, to_refund) = (taken.cost - part, to_refund - part);
        }
        self.taken.retain(|taken| taken.cost > 0);
    }

    /// Returns the permits that count now.
    #[must_use]
    pub fn used(&self, now_ms: u64, window_ms: u64) -> u64 {
        self.counting(now_ms, window_ms).iter().map(|taken| u64::from(taken.cost)).sum()
    }

    /// Removes permits, oldest first, until the cost fits, and returns the wait for that.
    fn retry_after(&self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Option<u64> {
        if cost == 0 {
            return Some(0);
        }
        if cost > max {
            return None;
        }
        let mut used = self.used(now_ms, window_ms);
        let mut wait_ms = 0;
        for taken in self.counting(now_ms, window_ms) {
            if used + u64::from(cost) <= u64::from(max) {
                break;
            }
            used -= u64::from(taken.cost);
            wait_ms = taken.stamp_ms + window_ms - now_ms;
        }
        Some(wait_ms)
    }

    /// Returns the instant that a time counts as, or `None` if the history is void.
    fn instant(&self, now_ms: u64, window_ms: u64) -> Option<u64> {
        let last = self.taken.last().map_or(0, |last| last.stamp_ms);
        let proven = if self.taken.is_empty() { 0 } else { self.latest_change_ms.max(last.saturating_sub(1)) };
        (last <= now_ms + window_ms).then(|| now_ms.max(proven))
    }

    /// Returns the permits that count now, oldest first.
    fn counting(&self, now_ms: u64, window_ms: u64) -> &[TakenPermits] {
        let Some(now_ms) = self.instant(now_ms, window_ms) else { return &[] };
        let expired = self.taken.iter().rev().skip_while(|taken| taken.stamp_ms + window_ms > now_ms).count();
        &self.taken[expired..]
    }
}

#[cfg(test)]
mod tests;
