//! The limits that may be leased, and for how long.

use std::time::Duration;

#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Algorithm, Layout, Limit};

impl Limit {
    /// The smallest `max` of a limit that may be leased. Of fewer permits a lease would take too large a part.
    const MIN_LEASED_MAX: u32 = 10_000;
    /// The shortest window of a limit that may be leased. In a shorter one a lease would be over before it is of use.
    const MIN_LEASED_WINDOW_MILLIS: u64 = 640;
    /// The number of lease times in a window. A lease of a shorter window in milliseconds would have no time at all.
    const LEASE_TIMES_PER_WINDOW: u64 = 64;

    /// Lets this process lease each sliding window of 64 ms or more in the compact layout, however small its limit.
    ///
    /// Tests with short windows find more errors. A lease of a small limit is correct too: the bounds only keep leases to
    /// where they are of use.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn lease_any() {
        IS_ANY_LIMIT_LEASED.store(true, Ordering::Relaxed);
    }

    /// Returns whether a process may take permits of the limit ahead.
    pub(crate) fn may_be_leased(&self) -> bool {
        self.may_be_leased_below_bounds(is_any_limit_leased())
    }

    /// Returns whether the limit may be leased, if limits below the bounds on `max` and window may be or may not be.
    fn may_be_leased_below_bounds(&self, is_any_limit_leased: bool) -> bool {
        matches!((self.algorithm(), self.layout()), (Algorithm::SlidingWindow, Layout::Compact))
            && (self.max() >= Self::MIN_LEASED_MAX && self.window_millis() >= Self::MIN_LEASED_WINDOW_MILLIS
                || is_any_limit_leased && self.window_millis() >= Self::LEASE_TIMES_PER_WINDOW)
    }

    /// The longest time for which a lease of the limit may be used. All processes compute it alike, as the scripts do.
    pub(crate) fn lease_time(&self) -> Duration {
        Duration::from_millis((self.window_millis() / Self::LEASE_TIMES_PER_WINDOW).min(50))
    }
}

/// True if limits below the bounds of `may_be_leased` are leased too.
#[cfg(feature = "test-util")]
static IS_ANY_LIMIT_LEASED: AtomicBool = AtomicBool::new(false);

#[cfg(feature = "test-util")]
fn is_any_limit_leased() -> bool {
    IS_ANY_LIMIT_LEASED.load(Ordering::Relaxed)
}

#[cfg(not(feature = "test-util"))]
const fn is_any_limit_leased() -> bool {
    false
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_large_sliding_window_in_the_compact_layout_may_be_leased() {
        let limit = |max, millis| Limit::new(max, Duration::from_millis(millis)).expect("valid");
        let smallest = limit(10_000, 640);
        assert!(smallest.may_be_leased() && Limit::WIDEST.may_be_leased());
        assert!(!limit(9_999, 640).may_be_leased() && !limit(10_000, 639).may_be_leased());
        assert!(!smallest.with_layout(Layout::Zset).expect("valid").may_be_leased());
        assert!(!Limit::concurrent(10_000).expect("valid").may_be_leased_below_bounds(true));
        for algorithm in
            [Algorithm::FixedWindow, Algorithm::SlidingCounter, Algorithm::TokenBucket, Algorithm::LeakyBucket]
        {
            assert!(!smallest.with_algorithm(algorithm).may_be_leased(), "{algorithm:?}");
        }
    }

    /// A lease of a shorter window ended as it began, so the script left it out of its reply, and the call failed.
    #[test]
    fn no_window_without_a_lease_time_may_be_leased() {
        let limit = |max, millis| Limit::new(max, Duration::from_millis(millis)).expect("valid");
        let shortest = limit(1, 64);
        assert!(shortest.may_be_leased_below_bounds(true) && !shortest.may_be_leased_below_bounds(false));
        for (max, millis) in [(1, 1), (1, 63), (10_000, 63)] {
            assert!(!limit(max, millis).may_be_leased_below_bounds(true), "{max} permits in {millis} ms");
        }
        assert!(!shortest.with_layout(Layout::Zset).expect("valid").may_be_leased_below_bounds(true));
    }
}
