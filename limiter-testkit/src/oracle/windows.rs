//! What the counters of aligned windows must answer: keep every stamp, count, and look at one millisecond after another.

use super::Verdict;

/// A fixed window: what counts is what was taken since the last multiple of the window.
///
/// Time is in whole milliseconds and must not go back. The window must be the same for every call.
#[derive(Debug, Clone, Default)]
pub struct FixedWindowOracle {
    taken: Taken,
}

/// A sliding counter: what was taken in this window counts, and what was taken in the one before as far as the window
/// that ends now still covers it.
///
/// Time is in whole milliseconds and must not go back. The window must be the same for every call.
#[derive(Debug, Clone, Default)]
pub struct SlidingCounterOracle {
    taken: Taken,
}

/// Stamps and costs, oldest first.
#[derive(Debug, Clone, Default)]
struct Taken(Vec<(u64, u32)>);

impl FixedWindowOracle {
    /// With nothing taken.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides, and records the permits of an allowed call.
    pub fn check(&mut self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Verdict {
        let used = |taken: &Taken, now: u64| taken.of_window(now / window_ms, window_ms);
        self.taken.check(now_ms, 2 * window_ms, (max, cost), used)
    }

    /// Forgets permits of a call at `stamp_ms`, as if it had not been made.
    pub fn forget(&mut self, stamp_ms: u64, cost: u32) {
        self.taken.forget(stamp_ms, cost);
    }
}

impl SlidingCounterOracle {
    /// With nothing taken.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides, and records the permits of an allowed call.
    pub fn check(&mut self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Verdict {
        let used = |taken: &Taken, now: u64| {
            let window = now / window_ms;
            let before = window.checked_sub(1).map_or(0, |before| taken.of_window(before, window_ms));
            let covered = window_ms - now % window_ms;
            taken.of_window(window, window_ms) + (before * covered).div_ceil(window_ms)
        };
        self.taken.check(now_ms, 3 * window_ms, (max, cost), used)
    }

    /// Forgets permits of a call at `stamp_ms`, as if it had not been made.
    pub fn forget(&mut self, stamp_ms: u64, cost: u32) {
        self.taken.forget(stamp_ms, cost);
    }
}

impl Taken {
    fn of_window(&self, window: u64, window_ms: u64) -> u64 {
        self.0.iter().filter(|(stamp, _)| stamp / window_ms == window).map(|(_, cost)| u64::from(*cost)).sum()
    }

    /// Decides by what counts as used at an instant, and records. Nothing counts for longer than `memory_ms`.
    fn check(
        &mut self,
        now_ms: u64,
        memory_ms: u64,
        (max, cost): (u32, u32),
        used: impl Fn(&Self, u64) -> u64,
    ) -> Verdict {
        self.0.retain(|(stamp, _)| stamp + memory_ms > now_ms);
        let fits = |at| cost == 0 || used(self, at) + u64::from(cost) <= u64::from(max);
        let retry_after = (0..=memory_ms).find(|wait| fits(now_ms + wait));
        if retry_after == Some(0) && cost > 0 {
            self.0.push((now_ms, cost));
        }
        let left = u64::from(max).saturating_sub(used(self, now_ms));
        Verdict {
            allowed: retry_after == Some(0),
            remaining: u32::try_from(left).expect("at most `max`"),
            retry_after,
            reset_after: (0..=memory_ms).find(|wait| used(self, now_ms + wait) == 0).expect("it is over by then"),
        }
    }

    fn forget(&mut self, stamp_ms: u64, cost: u32) {
        if let Some(place) = self.0.iter().position(|taken| *taken == (stamp_ms, cost)) {
            self.0.remove(place);
        }
    }
}
