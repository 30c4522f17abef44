//! References for the counters of aligned windows. They keep every stamp, count, and try one millisecond after another.

use super::{Charged, MAX_PERMITS, Verdict, counted_part};

/// The reference for a fixed window. Permits count until the next multiple of the window.
///
/// Time is in whole milliseconds, and the window must be the same for every call. When time steps back before the last
/// window in which permits were taken, it counts as that window's start, if that is at most one window ahead. If it is
/// further ahead, the history is void.
#[derive(Debug, Clone, Default)]
pub struct FixedWindowOracle {
    log: CallLog,
}

/// The reference for a sliding counter. Permits of the current window count in full. Those of the window before it
/// count in proportion to the part of it that the sliding window still covers.
///
/// Time is in whole milliseconds, and the window must be the same for every call. When time steps back before the last
/// window in which permits were taken, it counts as that window's start, if that is at most one window ahead. If it is
/// further ahead, the history is void.
#[derive(Debug, Clone, Default)]
pub struct SlidingCounterOracle {
    log: CallLog,
}

/// The calls that took permits, oldest first.
#[derive(Debug, Clone, Default)]
struct CallLog {
    /// The stamps and costs.
    calls: Vec<(u64, u32)>,
    /// The first stamp after the count was last zero.
    first: u64,
}

impl FixedWindowOracle {
    /// Creates an oracle without a history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides a call, and records the permits of an allowed one.
    pub fn check(&mut self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Verdict {
        self.log.check(now_ms, window_ms, 1, (max, cost), Self::used(window_ms))
    }

    /// Takes permits whether they fit or not: as many as make 2^32 - 1 with those that count.
    pub fn charge(&mut self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Charged {
        self.log.charge(now_ms, window_ms, 1, (max, cost), Self::used(window_ms))
    }

    fn used(window_ms: u64) -> impl Fn(&CallLog, u64) -> u64 {
        move |log, now| log.permits_in_window(now / window_ms, window_ms)
    }

    /// Refunds a call made at `stamp_ms`, if its permits still count.
    pub fn refund(&mut self, now_ms: u64, window_ms: u64, stamp_ms: u64, cost: u32) {
        self.log.refund(now_ms, window_ms, 1, (stamp_ms, cost));
    }
}

impl SlidingCounterOracle {
    /// Creates an oracle without a history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides a call, and records the permits of an allowed one.
    pub fn check(&mut self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Verdict {
        self.log.check(now_ms, window_ms, 2, (max, cost), Self::used(window_ms))
    }

    /// Takes permits whether they fit or not: as many as make 2^32 - 1 with those that count.
    pub fn charge(&mut self, now_ms: u64, window_ms: u64, max: u32, cost: u32) -> Charged {
        self.log.charge(now_ms, window_ms, 2, (max, cost), Self::used(window_ms))
    }

    fn used(window_ms: u64) -> impl Fn(&CallLog, u64) -> u64 {
        move |log, now| {
            let window = now / window_ms;
            let before = window.checked_sub(1).map_or(0, |before| log.permits_in_window(before, window_ms));
            let covered = window_ms - now % window_ms;
            log.permits_in_window(window, window_ms) + (before * covered).div_ceil(window_ms)
        }
    }

    /// Refunds a call made at `stamp_ms` in the window of that instant, if its permits still count.
    pub fn refund(&mut self, now_ms: u64, window_ms: u64, stamp_ms: u64, cost: u32) {
        self.log.refund(now_ms, window_ms, 2, (stamp_ms, cost));
    }
}

impl CallLog {
    fn permits_in_window(&self, window: u64, window_ms: u64) -> u64 {
        self.calls.iter().filter(|(stamp, _)| stamp / window_ms == window).map(|(_, cost)| u64::from(*cost)).sum()
    }

    /// Decides a call by `used`, and records an allowed one. Permits count in `windows` windows, beginning with their
    /// own.
    fn check(
        &mut self,
        now_ms: u64,
        window_ms: u64,
        windows: u64,
        (max, cost): (u32, u32),
        used: impl Fn(&Self, u64) -> u64,
    ) -> Verdict {
        let used = |log: &Self, at: u64| log.used_at(at, window_ms, &used);
        let fits = |at| cost == 0 || used(self, at) + u64::from(cost) <= u64::from(max);
        let longest = (windows + 2) * window_ms;
        let retry_after = (0..=longest).find(|wait| fits(now_ms + wait));
        if retry_after == Some(0) {
            self.take(now_ms, window_ms, windows, cost);
        }
        let left = u64::from(max).saturating_sub(used(self, now_ms));
        Verdict {
            allowed: retry_after == Some(0),
            remaining: u32::try_from(left).expect("at most `max`"),
            retry_after,
            reset_after: (0..=longest).find(|wait| used(self, now_ms + wait) == 0).expect("no permit counts that long"),
        }
    }

    /// Takes as many permits as there is room for, whether they fit or not.
    fn charge(
        &mut self,
        now_ms: u64,
        window_ms: u64,
        windows: u64,
        (max, cost): (u32, u32),
        used: impl Fn(&Self, u64) -> u64,
    ) -> Charged {
        let used = |log: &Self, at: u64| log.used_at(at, window_ms, &used);
        let (counted, uncounted) = counted_part(cost, used(self, now_ms), MAX_PERMITS);
        self.take(now_ms, window_ms, windows, counted);
        let longest = (windows + 2) * window_ms;
        let reset_after = (0..=longest).find(|wait| used(self, now_ms + wait) == 0);
        Charged::new(uncounted, used(self, now_ms), max.into(), reset_after.expect("no permit counts that long"))
    }

    /// Returns the permits that count at a time, by `used`.
    fn used_at(&self, at: u64, window_ms: u64, used: impl Fn(&Self, u64) -> u64) -> u64 {
        self.instant(at, window_ms).map_or(0, |at| used(self, at))
    }

    fn take(&mut self, now_ms: u64, window_ms: u64, windows: u64, cost: u32) {
        if cost == 0 {
            return;
        }
        self.remove_expired(now_ms, window_ms, windows);
        let stamp = self.instant(now_ms, window_ms).unwrap_or(now_ms);
        if self.calls.is_empty() {
            self.first = stamp;
        }
        self.calls.push((stamp, cost));
    }

    fn refund(&mut self, now_ms: u64, window_ms: u64, windows: u64, (stamp, cost): (u64, u32)) {
        self.remove_expired(now_ms, window_ms, windows);
        if stamp < self.first {
            return;
        }
        let mut to_refund = cost;
        for (_, cost) in self.calls.iter_mut().filter(|(taken, _)| taken / window_ms == stamp / window_ms) {
            let part = to_refund.min(*cost);
            (*cost, to_refund) = (*cost - part, to_refund - part);
        }
        self.calls.retain(|(_, cost)| *cost > 0);
    }

    /// Returns the instant that a time counts as, or `None` if the history is void.
    fn instant(&self, now_ms: u64, window_ms: u64) -> Option<u64> {
        let begun = self.calls.last().map_or(0, |(stamp, _)| stamp - stamp % window_ms);
        (begun <= now_ms + window_ms).then(|| now_ms.max(begun))
    }

    fn remove_expired(&mut self, now_ms: u64, window_ms: u64, windows: u64) {
        let now = self.instant(now_ms, window_ms);
        let counts = |stamp: u64| now.is_some_and(|now| stamp / window_ms + windows > now / window_ms);
        self.calls.retain(|(stamp, _)| counts(*stamp));
    }
}
