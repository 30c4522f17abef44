//! The naive oracles: one for each algorithm, each by its definition and not by arithmetic that is quick.

mod bucket;
mod windows;

pub use bucket::{LeakyBucketOracle, TokenBucketOracle};
pub use windows::{FixedWindowOracle, SlidingCounterOracle};

/// What a sliding window must answer, found in the plainest way: keep every stamp, and count.
///
/// Time is in whole milliseconds. A permit stamped `s` counts at `t` while `s + window > t`, so the window is
/// `(t - window, t]`. Window and limit come with each call, as in the limiter itself: one history serves callers with
/// different limits.
///
/// Time may step back. As long as the last stamp is at most a window ahead, what counts is what counted a millisecond
/// before that stamp, and new permits get the same stamp; further ahead, the history is void.
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
    /// The first stamp since nothing counted.
    since_ms: u64,
    /// The latest instant at which permits were taken or given back: what was over then stays over.
    seen_ms: u64,
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
    pub fn check(&mut self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Verdict {
        let before = self.peek(now_ms, window_ms, max, cost);
        if !before.allowed || cost == 0 {
            return before;
        }
        let Some(instant_ms) = self.instant(now_ms, window_ms) else {
            *self = Self::default();
            return self.check(now_ms, window_ms, max, cost);
        };
        let stamp_ms = self.taken.last().map_or(now_ms, |last| now_ms.max(last.stamp_ms));
        if self.live(now_ms, window_ms).is_empty() {
            self.since_ms = stamp_ms;
        }
        self.seen_ms = instant_ms;
        self.taken.push(Taken { stamp_ms, cost });
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

    /// Gives back what a call at `stamp_ms` took, as if it had not been made: if those permits count, and counted when
    /// others last took or gave back theirs.
    ///
    /// They are the first that are not before `stamp_ms`. If those are fewer than `cost`, because the clock stepped back,
    /// the rest is of the oldest.
    pub fn refund(&mut self, now_ms: u64, window_ms: u64, stamp_ms: u64, cost: u32) {
        let Some(instant_ms) = self.instant(now_ms, window_ms) else { return };
        let live = self.live(now_ms, window_ms).len();
        let Some(last_ms) = self.taken.last().map(|last| last.stamp_ms).filter(|_| live > 0) else { return };
        let is_within = self.since_ms <= stamp_ms && stamp_ms <= last_ms;
        if !is_within || stamp_ms + window_ms <= now_ms.max(last_ms).max(self.seen_ms) {
            return;
        }
        self.seen_ms = instant_ms;
        self.taken.drain(..self.taken.len() - live);
        let own_ms = self.taken.iter().map(|taken| taken.stamp_ms).find(|taken_ms| *taken_ms >= stamp_ms);
        let mut back = cost;
        for own_only in [true, false] {
            for taken in self.taken.iter_mut().filter(|taken| !own_only || Some(taken.stamp_ms) == own_ms) {
                let part = back.min(taken.cost);
                (taken.cost, back) = (taken.cost - part, back - part);
            }
        }
        self.taken.retain(|taken| taken.cost > 0);
    }

    /// The same where each permit is known by the instant of its call, as in a sorted set: takes only permits of exactly
    /// `stamp_ms`, and so none after a reset.
    pub fn refund_own(&mut self, now_ms: u64, window_ms: u64, stamp_ms: u64, cost: u32) {
        if stamp_ms + window_ms <= now_ms {
            return;
        }
        let mut back = cost;
        for taken in self.taken.iter_mut().filter(|taken| taken.stamp_ms == stamp_ms) {
            let part = back.min(taken.cost);
            (taken.cost, back) = (taken.cost - part, back - part);
        }
        self.taken.retain(|taken| taken.cost > 0);
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

    /// The instant that a time counts as; `None` where what was taken is void.
    fn instant(&self, now_ms: u64, window_ms: u64) -> Option<u64> {
        let last = self.taken.last().map_or(0, |last| last.stamp_ms);
        let proven = if self.taken.is_empty() { 0 } else { self.seen_ms.max(last.saturating_sub(1)) };
        (last <= now_ms + window_ms).then(|| now_ms.max(proven))
    }

    /// What counts now, oldest first.
    fn live(&self, now_ms: u64, window_ms: u64) -> &[Taken] {
        let Some(now_ms) = self.instant(now_ms, window_ms) else { return &[] };
        let expired = self.taken.iter().rev().skip_while(|taken| taken.stamp_ms + window_ms > now_ms).count();
        &self.taken[expired..]
    }
}

#[cfg(test)]
mod tests;
