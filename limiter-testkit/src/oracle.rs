//! The naive oracles: one for each algorithm, each by its definition and not by arithmetic that is quick.

mod bucket;
mod windows;

pub use bucket::{LeakyBucketOracle, TokenBucketOracle};
pub use windows::{FixedWindowOracle, SlidingCounterOracle};

/// What a sliding window must answer, found in the plainest way: keep every stamp, and count.
///
/// Time is in whole milliseconds and must not go back. A permit stamped `s` counts at `t` while `s + window > t`, so
/// the window is `(t - window, t]`. Window and limit come with each call, as in the limiter itself: one history
/// serves callers with different limits.
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
    taken: Vec<Taken>, // oldest first
}

/// The permits of one admitted call.
#[derive(Debug, Clone, Copy)]
struct Taken {
    stamp_ms: u64,
    cost: u32,
}

/// The oracle's answer. Waits are in the unit that the oracle's time is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the call gets its permits.
    pub allowed: bool,
    /// Permits left, after the call took its own.
    pub remaining: u32,
    /// The least wait after which this cost would fit if nobody else called: 0 if it fits now, `None` if it never does.
    pub retry_after: Option<u64>,
    /// The wait after which the window is empty if nobody calls, after the call took its permits.
    pub reset_after: u64,
}

impl Oracle {
    /// With nothing taken.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides, and records the permits of an allowed call. A denied one records nothing.
    ///
    /// # Panics
    ///
    /// `now_ms` is before a call that was recorded.
    pub fn check(&mut self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Verdict {
        let before = self.peek(now_ms, window_ms, max, cost);
        if !before.allowed || cost == 0 {
            return before;
        }
        if let Some(last) = self.taken.last() {
            assert!(last.stamp_ms <= now_ms, "time goes back: {now_ms} after {}", last.stamp_ms);
        }
        self.taken.push(Taken { stamp_ms: now_ms, cost });
        let after = self.peek(now_ms, window_ms, max, 0);
        Verdict { remaining: after.remaining, reset_after: after.reset_after, ..before }
    }

    /// The same without recording: `remaining` and `reset_after` are those before the call.
    #[must_use]
    pub fn peek(&self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Verdict {
        let used = self.used(now_ms, window_ms);
        let retry_after = self.retry_after(now_ms, window_ms, max, cost);
        Verdict {
            allowed: retry_after == Some(0),
            remaining: u32::try_from(u64::from(max).saturating_sub(used)).expect("at most `max`"),
            retry_after,
            reset_after: self.live(now_ms, window_ms).last().map_or(0, |last| last.stamp_ms + window_ms - now_ms),
        }
    }

    /// Permits that count now.
    #[must_use]
    pub fn used(&self, now_ms: u64, window_ms: u64) -> u64 {
        self.live(now_ms, window_ms).iter().map(|taken| u64::from(taken.cost)).sum()
    }

    /// Counts down, oldest first, until the cost fits.
    fn retry_after(&self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Option<u64> {
        if cost == 0 {
            return Some(0);
        }
        if cost > max {
            return None;
        }
        let mut used = self.used(now_ms, window_ms);
        let mut wait_ms = 0;
        for taken in self.live(now_ms, window_ms) {
            if used + u64::from(cost) <= u64::from(max) {
                break;
            }
            used -= u64::from(taken.cost);
            wait_ms = taken.stamp_ms + window_ms - now_ms;
        }
        Some(wait_ms)
    }

    /// What counts now, oldest first.
    fn live(&self, now_ms: u64, window_ms: u64) -> &[Taken] {
        let expired = self.taken.iter().rev().skip_while(|taken| taken.stamp_ms + window_ms > now_ms).count();
        &self.taken[expired..]
    }
}

#[cfg(test)]
mod tests;
