//! How much is allowed: at most so many permits in any window.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use crate::{Error, ErrorKind};

mod layout;
mod parse;

pub use layout::Layout;

/// At most [`max`](Limit::max) permits in any [`window`](Limit::window).
///
/// A limit is an argument of each decision and never stored: a changed `max` takes effect on the next call and keeps
/// the history; a changed window or algorithm starts a new one.
///
/// ```
/// use std::time::Duration;
/// # use limiter_core as rate_limited;
/// use rate_limited::Limit;
///
/// let limit = Limit::new(5, Duration::from_secs(10))?;
/// assert_eq!(limit, "5/10s".parse()?);
/// assert_eq!(limit.to_string(), "5/10s");
/// # Ok::<(), rate_limited::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    max: NonZeroU32,
    window_millis: NonZeroU64,
    algorithm: Algorithm,
    burst: Option<NonZeroU32>,
    layout: Layout,
}

/// How a limit counts.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Exact: at most `max` permits in any window.
    #[default]
    SlidingWindow,
    /// At most `max` permits in each window of the calendar of windows: up to twice as many around an edge.
    FixedWindow,
    /// Two fixed windows, weighted by how far the newer has come: a fixed window with softer edges, in as little space.
    SlidingCounter,
    /// A bucket of `burst` permits that fills at `max` a window: up to `burst + max` in a window.
    TokenBucket,
    /// A queue that lets one permit through at a time, evenly spaced, and holds up to `burst` that wait: with
    /// [`Limiter::wait`](crate::Limiter::wait) a call is given its turn at once. Without waiting it is allowed only when
    /// nobody is ahead of it.
    LeakyBucket,
}

impl Limit {
    /// The longest window: 366 days.
    pub const MAX_WINDOW: Duration = Duration::from_secs(366 * 24 * 60 * 60);

    /// What a decision about nothing names.
    pub(crate) const WIDEST: Self = match Self::checked(u32::MAX, Self::MAX_WINDOW_MILLIS) {
        Some(limit) => limit,
        None => unreachable!(),
    };

    const MAX_WINDOW_MILLIS: u64 = 366 * 24 * 60 * 60 * 1000;

    /// At most `max` permits (1 to `u32::MAX`) in any `window` (more than nothing, up to 366 days).
    ///
    /// Windows are counted in whole milliseconds; a fraction is rounded up, so that it never admits more.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] when either is out of its range.
    pub fn new(max: u32, window: Duration) -> Result<Self, Error> {
        let millis = window.as_nanos().div_ceil(1_000_000);
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        Self::checked(max, millis).ok_or_else(|| {
            let problem = match (max, millis) {
                (0, _) => "a limit allows at least 1 permit".to_owned(),
                (_, 0) => "a window is longer than nothing".to_owned(),
                _ => format!("a window is at most 366 days, this one is {window:?}"),
            };
            Error::new(ErrorKind::InvalidLimit, problem)
        })
    }

    pub(crate) const fn checked(max: u32, window_millis: u64) -> Option<Self> {
        match (NonZeroU32::new(max), NonZeroU64::new(window_millis)) {
            (Some(max), Some(window)) if window.get() <= Self::MAX_WINDOW_MILLIS => Some(Self {
                max,
                window_millis: window,
                algorithm: Algorithm::SlidingWindow,
                burst: None,
                layout: Layout::Compact,
            }),
            _ => None,
        }
    }

    /// The nearest limit there is: what a denial names when the limit asked for cannot be.
    pub(crate) fn nearest(max: u32, window: Duration) -> Self {
        let millis = u64::try_from(window.as_millis()).unwrap_or(u64::MAX).clamp(1, Self::MAX_WINDOW_MILLIS);
        Self {
            max: NonZeroU32::new(max).unwrap_or(NonZeroU32::MIN),
            window_millis: NonZeroU64::new(millis).unwrap_or(NonZeroU64::MIN),
            algorithm: Algorithm::SlidingWindow,
            burst: None,
            layout: Layout::Compact,
        }
    }

    /// How many permits any window holds.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max.get()
    }

    /// How long a permit counts after it was taken; whole milliseconds.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_millis(self.window_millis.get())
    }

    /// The same limit counted by another algorithm, with that algorithm's own burst and layout.
    #[must_use]
    pub const fn with_algorithm(self, algorithm: Algorithm) -> Self {
        let layout = match algorithm {
            Algorithm::SlidingWindow => self.layout,
            _ => Layout::Compact,
        };
        Self { algorithm, burst: None, layout, ..self }
    }

    /// The same limit with room for `burst` permits at once, 1 to `u32::MAX`: for the bucket algorithms. Default: `max`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] for a burst of nothing, or for an algorithm that knows no burst.
    pub fn with_burst(self, burst: u32) -> Result<Self, Error> {
        let wrong = |problem: &str| Error::new(ErrorKind::InvalidLimit, problem);
        match (NonZeroU32::new(burst), self.algorithm) {
            (None, _) => Err(wrong("a burst is at least 1 permit")),
            (burst, Algorithm::TokenBucket | Algorithm::LeakyBucket) => Ok(Self { burst, ..self }),
            _ => Err(wrong("only a token bucket and a leaky bucket have a burst")),
        }
    }

    /// The same limit with its count kept in another way in Redis: for the sliding window. Default: compact.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Layout, Limit};
    ///
    /// let shared_with_spring = "5/10s".parse::<Limit>()?.with_layout(Layout::Zset)?;
    /// assert_eq!(shared_with_spring.layout(), Layout::Zset);
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] for a sorted set with any other algorithm.
    pub fn with_layout(self, layout: Layout) -> Result<Self, Error> {
        match (layout, self.algorithm) {
            (Layout::Compact, _) | (Layout::Zset, Algorithm::SlidingWindow) => Ok(Self { layout, ..self }),
            _ => Err(Error::new(ErrorKind::InvalidLimit, "only a sliding window can be kept in a sorted set")),
        }
    }

    /// How Redis keeps its count.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// How it is counted.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// What may be taken at once: `max`, or what [`with_burst`](Limit::with_burst) set.
    #[must_use]
    pub const fn burst(&self) -> u32 {
        match self.burst {
            Some(burst) => burst.get(),
            None => self.max.get(),
        }
    }

    pub(crate) const fn window_millis(&self) -> u64 {
        self.window_millis.get()
    }

    /// The most that one call can ever take.
    pub(crate) const fn most_at_once(&self) -> u32 {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => self.burst(),
            _ => self.max.get(),
        }
    }

    /// What one of several instances may hand out, so that all of them together stay within the limit as far as it has
    /// a permit for each.
    pub(crate) fn share_of(self, instances: NonZeroU32) -> Self {
        let share = |permits: NonZeroU32| NonZeroU32::new(permits.get() / instances).unwrap_or(NonZeroU32::MIN);
        Self { max: share(self.max), burst: self.burst.map(share), ..self }
    }

    /// Milliseconds for which a permit may count, at most.
    pub(crate) fn memory_millis(&self) -> u64 {
        let window = self.window_millis();
        let filling = |permits: u64| {
            let millis = (u128::from(permits) * u128::from(window)).div_ceil(self.max().into());
            u64::try_from(millis).unwrap_or(u64::MAX).max(window)
        };
        match self.algorithm {
            Algorithm::SlidingWindow | Algorithm::FixedWindow => window,
            Algorithm::SlidingCounter => 2 * window,
            Algorithm::TokenBucket => filling(self.burst().into()),
            Algorithm::LeakyBucket => filling(u64::from(self.burst()) + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_a_window_up_to_whole_milliseconds() {
        let limit = Limit::new(1, Duration::from_nanos(1)).expect("valid");
        assert_eq!(limit.window(), Duration::from_millis(1));
        let limit = Limit::new(1, Duration::from_micros(1500)).expect("valid");
        assert_eq!(limit.window(), Duration::from_millis(2));
        assert!(Limit::new(1, Duration::ZERO).is_err());
        assert!(Limit::new(1, Limit::MAX_WINDOW + Duration::from_nanos(1)).is_err());
        assert!(Limit::new(1, Duration::MAX).is_err());
    }

    #[test]
    fn only_a_sliding_window_has_another_layout() {
        let limit: Limit = "5/10s".parse().expect("valid");
        let zset = limit.with_layout(Layout::Zset).expect("valid");
        assert_ne!(zset, limit);
        assert_eq!(zset.with_layout(Layout::Compact).expect("valid"), limit);
        assert_eq!(zset.with_algorithm(Algorithm::SlidingWindow), zset);
        assert_eq!((format!("{limit:?}"), format!("{zset:?}")), ("Limit(5/10s)".into(), "Limit(5/10s, Zset)".into()));
        for algorithm in
            [Algorithm::FixedWindow, Algorithm::SlidingCounter, Algorithm::TokenBucket, Algorithm::LeakyBucket]
        {
            let other = zset.with_algorithm(algorithm);
            assert_eq!(other, limit.with_algorithm(algorithm));
            assert_eq!(other.with_layout(Layout::Zset).expect_err("not this one").kind(), ErrorKind::InvalidLimit);
            assert_eq!(other.with_layout(Layout::Compact).expect("as it is"), other);
        }
    }
}
