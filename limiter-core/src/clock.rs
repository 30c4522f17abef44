//! The process's own clock: monotonic, and the one place that reads it.

use std::time::Instant;

use once_cell::sync::Lazy;

#[cfg(feature = "test-util")]
pub use manual::ManualClock;

/// An instant of one clock, in nanoseconds since that clock's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    nanos: u64,
}

impl Moment {
    /// The millisecond that has begun: what cut-offs are measured from, so that nothing expires early.
    pub(crate) fn floor_millis(self) -> u64 {
        self.nanos / 1_000_000
    }

    /// The next whole millisecond: what stamps are taken from, so that nothing counts too short.
    pub(crate) fn ceil_millis(self) -> u64 {
        self.nanos.div_ceil(1_000_000)
    }

    /// How long from now until the clock shows `millis`; nothing if it has.
    pub(crate) fn until_millis(self, millis: u64) -> std::time::Duration {
        let nanos = millis.saturating_mul(1_000_000).saturating_sub(self.nanos);
        std::time::Duration::from_nanos(nanos)
    }

    #[cfg(all(feature = "redis", feature = "test-util"))]
    pub(crate) fn micros(self) -> u64 {
        self.nanos / 1000
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    #[default]
    System,
    #[cfg(feature = "test-util")]
    Manual(ManualClock),
}

impl Clock {
    pub(crate) fn now(&self) -> Moment {
        match self {
            Self::System => Moment { nanos: u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX) },
            #[cfg(feature = "test-util")]
            Self::Manual(clock) => Moment { nanos: clock.nanos() },
        }
    }
}

static ORIGIN: Lazy<Instant> = Lazy::new(Instant::now);

#[cfg(feature = "test-util")]
mod manual {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// A clock that stands still until it is moved, for tests that must not sleep.
    ///
    /// Give it to [`Builder::clock`](crate::Builder::clock); clones show the same time. A limiter on Redis with such a
    /// clock sends its time along instead of asking the server's.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::time::Duration;
    /// use rate_limited::{Key, Limiter, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::builder().clock(clock.clone()).build()?;
    /// let (key, limit) = (Key::new("getId"), "1/10s".parse()?);
    /// assert!(limiter.check_blocking(&key, &limit)?.is_allowed());
    /// assert!(limiter.check_blocking(&key, &limit)?.is_denied());
    /// clock.advance(Duration::from_secs(10));
    /// assert!(limiter.check_blocking(&key, &limit)?.is_allowed());
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[derive(Clone, Debug)]
    pub struct ManualClock {
        nanos: Arc<AtomicU64>,
    }

    impl ManualClock {
        /// A clock at an arbitrary instant, far enough from its origin to be moved back.
        #[must_use]
        pub fn new() -> Self {
            Self { nanos: Arc::new(AtomicU64::new(1_000_000_000 * 1_000_000_000)) }
        }

        /// Moves the clock forward.
        pub fn advance(&self, by: Duration) {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            let _ = self.nanos.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(now.saturating_add(by)));
        }

        /// Moves the clock back, as a server's clock may step.
        pub fn rewind(&self, by: Duration) {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            let _ = self.nanos.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(now.saturating_sub(by)));
        }

        pub(super) fn nanos(&self) -> u64 {
            self.nanos.load(Ordering::SeqCst)
        }
    }

    impl Default for ManualClock {
        fn default() -> Self {
            Self::new()
        }
    }
}
