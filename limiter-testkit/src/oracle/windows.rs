//! What the counters of aligned windows must answer: keep every stamp, count, and look at one millisecond after another.

use super::Verdict;

/// A fixed window: what counts is what was taken since the last multiple of the window.
///
/// Time is in whole milliseconds, the window must be the same for every call. When time steps back before the last window
/// that something was taken in, it stands still at that window's beginning, as long as that is at most a window ahead;
/// further ahead, the history is void.
#[derive(Debug, Clone, Default)]
pub struct FixedWindowOracle {
    taken: Taken,
}

/// A sliding counter: what was taken in this window counts, and what was taken in the one before as far as the window
/// that ends now still covers it.
///
/// Time is in whole milliseconds, the window must be the same for every call. When time steps back before the last window
/// that something was taken in, it stands still at that window's beginning, as long as that is at most a window ahead;
/// further ahead, the history is void.
#[derive(Debug, Clone, Default)]
pub struct SlidingCounterOracle {
    taken: Taken,
}

/// What was taken, oldest first.
#[derive(Debug, Clone, Default)]
struct Taken {
    /// Stamps and costs.
    calls: Vec<(u64, u32)>,
    /// The first stamp since nothing counted.
    since: u64,
}

impl FixedWindowOracle {
    /// With nothing taken.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides, and records the permits of an allowed call.
    pub fn check(&mut self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Verdict {
        let used = |taken: &Taken, now: u64| taken.of_window(now / window_ms, window_ms);
        self.taken.check(now_ms, window_ms, 1, (max, cost), used)
    }

    /// Gives back what a call at `stamp_ms` took, if that counts still.
    pub fn refund(&mut self, now_ms: u64, window_ms: u64, stamp_ms: u64, cost: u32) {
        self.taken.refund(now_ms, window_ms, 1, (stamp_ms, cost));
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
        self.taken.check(now_ms, window_ms, 2, (max, cost), used)
    }

    /// Gives back what a call at `stamp_ms` took, to the window of that instant, if that counts still.
    pub fn refund(&mut self, now_ms: u64, window_ms: u64, stamp_ms: u64, cost: u32) {
        self.taken.refund(now_ms, window_ms, 2, (stamp_ms, cost));
    }
}

impl Taken {
    fn of_window(&self, window: u64, window_ms: u64) -> u64 {
        self.calls.iter().filter(|(stamp, _)| stamp / window_ms == window).map(|(_, cost)| u64::from(*cost)).sum()
    }

    /// Decides by what counts as used at an instant, and records. Permits count in their own window, and in so many
    /// `windows` in all.
    fn check(
        &mut self,
        now_ms: u64,
        window_ms: u64,
        windows: u64,
        (max, cost): (u32, u32),
        used: impl Fn(&Self, u64) -> u64,
    ) -> Verdict {
        let used = |taken: &Self, at: u64| taken.instant(at, window_ms).map_or(0, |at| used(taken, at));
        let fits = |at| cost == 0 || used(self, at) + u64::from(cost) <= u64::from(max);
        let longest = (windows + 2) * window_ms;
        let retry_after = (0..=longest).find(|wait| fits(now_ms + wait));
        if retry_after == Some(0) && cost > 0 {
            self.forget_what_is_over(now_ms, window_ms, windows);
            let stamp = self.instant(now_ms, window_ms).unwrap_or(now_ms);
            if self.calls.is_empty() {
                self.since = stamp;
            }
            self.calls.push((stamp, cost));
        }
        let left = u64::from(max).saturating_sub(used(self, now_ms));
        Verdict {
            allowed: retry_after == Some(0),
            remaining: u32::try_from(left).expect("at most `max`"),
            retry_after,
            reset_after: (0..=longest).find(|wait| used(self, now_ms + wait) == 0).expect("it is over by then"),
        }
    }

    fn refund(&mut self, now_ms: u64, window_ms: u64, windows: u64, (stamp, cost): (u64, u32)) {
        self.forget_what_is_over(now_ms, window_ms, windows);
        if stamp < self.since {
            return;
        }
        let mut back = cost;
        for (_, cost) in self.calls.iter_mut().filter(|(taken, _)| taken / window_ms == stamp / window_ms) {
            let part = back.min(*cost);
            (*cost, back) = (*cost - part, back - part);
        }
        self.calls.retain(|(_, cost)| *cost > 0);
    }

    /// The instant that a time counts as; `None` where what was taken is void.
    fn instant(&self, now_ms: u64, window_ms: u64) -> Option<u64> {
        let begun = self.calls.last().map_or(0, |(stamp, _)| stamp - stamp % window_ms);
        (begun <= now_ms + window_ms).then(|| now_ms.max(begun))
    }

    fn forget_what_is_over(&mut self, now_ms: u64, window_ms: u64, windows: u64) {
        let now = self.instant(now_ms, window_ms);
        let counts = |stamp: u64| now.is_some_and(|now| stamp / window_ms + windows > now / window_ms);
        self.calls.retain(|(stamp, _)| counts(*stamp));
    }
}
