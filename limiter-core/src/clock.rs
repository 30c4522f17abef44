//! The monotonic clock of this process, which counts from 1970, and the wall clock of calendars.

use std::time::{Duration, SystemTime};

use once_cell::sync::OnceCell;
use tokio::runtime::{Builder, Handle};

use crate::background::start_runtime;
use crate::sync::process::{AtHome, PerProcess};
use crate::{Error, ErrorKind};

#[cfg(feature = "test-util")]
pub use manual::ManualClock;

/// An instant of one clock, in microseconds since that clock's origin. Redis has the same resolution, so a stamp is in
/// the window in which its permit counts. The origin of the system's clock is the Unix epoch, as that of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    micros: u64,
}

impl Moment {
    /// An instant that no clock reaches.
    pub(crate) const NEVER: Self = Self { micros: u64::MAX };

    /// The clock's origin: an instant that has come.
    pub(crate) const PAST: Self = Self { micros: 0 };

    /// Returns the instant in milliseconds, rounded down. Cut-offs are measured from it, so that no permit expires
    /// early.
    #[inline]
    pub(crate) fn floor_millis(self) -> u64 {
        self.micros / 1000
    }

    /// Returns the instant in milliseconds, rounded up. Stamps are taken from it, so that no permit expires early.
    #[inline]
    pub(crate) fn ceil_millis(self) -> u64 {
        self.micros.div_ceil(1000)
    }

    #[inline]
    pub(crate) fn micros(self) -> u64 {
        self.micros
    }

    /// Returns the time from this instant until `micros`; zero if that has passed.
    #[inline]
    pub(crate) fn until_micros(self, micros: u64) -> Duration {
        Duration::from_micros(micros.saturating_sub(self.micros))
    }

    /// Returns the instant after a wait, rounded up to a microsecond.
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self { micros: self.micros.saturating_add(ceil_micros(wait)) }
    }

    pub(crate) fn until(self, later: Self) -> Duration {
        self.until_micros(later.micros)
    }
}

/// Returns a time in microseconds, rounded up. It divides no number of 128 bits, which would take long.
#[inline]
pub(crate) fn ceil_micros(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(time.subsec_nanos().div_ceil(1000)))
}

/// The source of time: the system's monotonic clock, or one that a test moves.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    #[default]
    System,
    #[cfg(feature = "test-util")]
    Manual(ManualClock),
}

impl Clock {
    /// Returns the current instant, rounded down to a microsecond.
    #[inline]
    pub(crate) fn now(&self) -> Moment {
        let micros = match self {
            Self::System => system::micros(),
            #[cfg(feature = "test-util")]
            Self::Manual(clock) => clock.nanos() / 1000,
        };
        Moment { micros }
    }

    /// Returns the time of the wall clock, which may step, in microseconds since 1970. Only periods of the calendar are by
    /// it.
    pub(crate) fn wall_micros(&self) -> u64 {
        match self {
            Self::System => unix_micros(SystemTime::now()),
            #[cfg(feature = "test-util")]
            Self::Manual(clock) => clock.nanos() / 1000,
        }
    }

    /// Returns the current instant of a clock that goes on while the machine is suspended, rounded down to a
    /// microsecond. Its origin is not that of [`now`](Clock::now).
    ///
    /// On systems other than Linux and Android, it is the monotonic clock. Some systems stop that clock during a suspension.
    pub(crate) fn now_with_suspend(&self) -> Moment {
        match self {
            Self::System => Moment { micros: system::micros_with_suspend() },
            #[cfg(feature = "test-util")]
            Self::Manual(_) => self.now(),
        }
    }

    /// Waits, on any runtime or none.
    ///
    /// # Errors
    /// The timer thread could not be started, or the process was forked after the first poll.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    pub(crate) async fn sleep(&self, wait: Duration) -> Result<(), Error> {
        self.sleep_until(self.now().after(wait)).await
    }

    /// Waits until an instant: see [`sleep`](Clock::sleep).
    pub(crate) async fn sleep_until(&self, moment: Moment) -> Result<(), Error> {
        match self {
            Self::System => {
                // The sleep and its drop lock the timers, which the timer thread does as well.
                let sleep = {
                    let _timers = timers()?.enter();
                    AtHome::new(Box::pin(tokio::time::sleep(self.now().until(moment))))
                };
                sleep.await?;
            }
            #[cfg(feature = "test-util")]
            Self::Manual(clock) => {
                AtHome::new(Box::pin(clock.reaches(moment.micros.saturating_mul(1000)))).await?;
            }
        }
        Ok(())
    }
}

/// Returns the runtime of the timer thread, which does nothing else. The first wait starts it: the caller may have no
/// runtime, or one without timers.
fn timers() -> Result<&'static Handle, Error> {
    static TIMERS: PerProcess<OnceCell<Handle>> = PerProcess::new();
    TIMERS.here().get_or_try_init(|| {
        start_runtime("rate-limited-time", Builder::new_current_thread().enable_time()).map_err(|error| {
            Error::with_source(ErrorKind::Unavailable, "the thread for waits cannot be started", error)
        })
    })
}

/// The clocks of Linux. An `Instant` would be as exact, but the arithmetic of two of them takes longer than the reading.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::time::SystemTime;

    use once_cell::sync::Lazy;
    use rustix::time::{ClockId, clock_gettime};

    /// The wall clock's time less that of the monotonic clock, modulo 2^64. A later step of the wall clock changes no
    /// instant.
    static ORIGIN: Lazy<u64> =
        Lazy::new(|| super::unix_micros(SystemTime::now()).wrapping_sub(read(ClockId::Monotonic)));

    /// Returns the time of the monotonic clock in microseconds since 1970.
    #[inline]
    pub(super) fn micros() -> u64 {
        // Before the reading: the first one must not be earlier than the origin.
        let origin = *ORIGIN;
        read(ClockId::Monotonic).wrapping_add(origin)
    }

    /// Returns the time since the machine was started.
    pub(super) fn micros_with_suspend() -> u64 {
        read(ClockId::Boottime)
    }

    #[inline]
    fn read(clock: ClockId) -> u64 {
        let time = clock_gettime(clock);
        // Neither of the two is ever negative.
        time.tv_sec.cast_unsigned() * 1_000_000 + u64::from(u32::try_from(time.tv_nsec).unwrap_or(0) / 1000)
    }
}

/// The monotonic clock of any system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::time::{Instant, SystemTime};

    use once_cell::sync::Lazy;

    /// The first reading of the system's clock in this process.
    struct Start {
        instant: Instant,
        /// The wall clock's time then, in microseconds since 1970. A later step of the wall clock changes no instant.
        unix_micros: u64,
    }

    static START: Lazy<Start> =
        Lazy::new(|| Start { instant: Instant::now(), unix_micros: super::unix_micros(SystemTime::now()) });

    /// Returns the time in microseconds since 1970.
    #[inline]
    pub(super) fn micros() -> u64 {
        let Start { instant, unix_micros } = *START;
        let since = instant.elapsed();
        unix_micros + since.as_secs() * 1_000_000 + u64::from(since.subsec_micros())
    }

    pub(super) fn micros_with_suspend() -> u64 {
        micros()
    }
}

/// Returns a wall clock's time in microseconds since 1970, or 0 for one that is of no use: before 1970 or after 2255.
fn unix_micros(time: SystemTime) -> u64 {
    const END: u64 = 1 << 53;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).ok().filter(|micros| *micros < END).unwrap_or(0)
}

#[cfg(feature = "test-util")]
mod manual {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use tokio::sync::Notify;

    /// A clock that stands still until it is moved, for tests that must not sleep.
    ///
    /// Pass it to [`Builder::clock`](crate::Builder::clock); clones show the same time. A limiter on Redis with such a
    /// clock sends the time with each call instead of reading the server's clock.
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
    ///
    /// # Paused time of tokio
    /// No limiter uses tokio's clock, because it works on any runtime or none. `tokio::time::pause` and `advance`
    /// change nothing for it:
    ///
    /// - Windows, waits, and the delay of [`Builder::slow`](crate::Builder::slow) are of the limiter's own clock: this
    ///   one if it is set. Otherwise it is the system's, or that of Redis for its windows.
    /// - The deadlines of a Redis store, its pauses and its reconnects are always real time.
    ///
    /// In a test with paused time, a limiter with a manual clock works as in any other. Move both clocks:
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::time::Duration;
    /// use rate_limited::{Key, Limiter, ManualClock};
    ///
    /// #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// async fn main() -> Result<(), rate_limited::Error> {
    ///     let clock = ManualClock::new();
    ///     let limiter = Limiter::builder().clock(clock.clone()).build()?;
    ///     let (key, limit, window) = (Key::new("getId"), "1/10s".parse()?, Duration::from_secs(10));
    ///     assert!(limiter.check(&key, &limit).await?.is_allowed());
    ///
    ///     tokio::time::advance(window).await;
    ///     assert!(limiter.check(&key, &limit).await?.is_denied());
    ///     clock.advance(window);
    ///     assert!(limiter.check(&key, &limit).await?.is_allowed());
    ///
    ///     let (waiting, moving) = (limiter.wait(&key, &limit, window), async { clock.advance(window) });
    ///     assert!(tokio::join!(waiting, moving).0?.is_allowed());
    ///     Ok(())
    /// }
    /// ```
    ///
    /// A call that takes real time does not go together with paused time: a wait by the system's clock, a slow limiter
    /// or a Redis store. While it is pending, the runtime is idle, and tokio then advances its own clock to the next
    /// timer. So a timeout around the call is over at once:
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::time::{Duration, Instant};
    /// use rate_limited::{Key, Limiter};
    ///
    /// #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// async fn main() -> Result<(), rate_limited::Error> {
    ///     let (limiter, key, limit) = (Limiter::memory(), Key::new("getId"), "1/h".parse()?);
    ///     assert!(limiter.check(&key, &limit).await?.is_allowed());
    ///     let (started_at, hour) = (Instant::now(), Duration::from_secs(3_600));
    ///     let waiting = limiter.wait(&key, &limit, 2 * hour);
    ///     assert!(tokio::time::timeout(Duration::from_secs(600), waiting).await.is_err());
    ///     assert!(started_at.elapsed() < Duration::from_secs(60));
    ///     Ok(())
    /// }
    /// ```
    #[derive(Clone, Debug)]
    pub struct ManualClock {
        nanos: Arc<AtomicU64>,
        moved: Arc<Notify>,
    }

    impl ManualClock {
        /// Creates a clock at an arbitrary instant, far enough from its origin to be moved back.
        #[must_use]
        pub fn new() -> Self {
            Self { nanos: Arc::new(AtomicU64::new(1_000_000_000 * 1_000_000_000)), moved: Arc::default() }
        }

        /// Returns the time since the clock's origin. Fixed windows start at multiples of their length from there.
        #[must_use]
        pub fn now(&self) -> Duration {
            Duration::from_nanos(self.nanos())
        }

        /// Moves the clock forward, and wakes the calls that wait for it.
        pub fn advance(&self, by: Duration) {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            let _ = self.nanos.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(now.saturating_add(by)));
            self.moved.notify_waiters();
        }

        /// Moves the clock back, as a server's clock may step.
        pub fn rewind(&self, by: Duration) {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            let _ = self.nanos.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(now.saturating_sub(by)));
        }

        pub(super) async fn reaches(&self, nanos: u64) {
            loop {
                let mut moved = pin!(self.moved.notified());
                // Enabled before the check, so that no move is missed.
                moved.as_mut().enable();
                if self.nanos() >= nanos {
                    return;
                }
                moved.await;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_clock_counts_from_1970() {
        let (now, wall) = (Clock::System.now().micros(), unix_micros(SystemTime::now()));
        // The wall clock may be set while the tests run.
        assert!(now.abs_diff(wall) < 3_600_000_000, "{now} {wall}");
    }

    #[test]
    fn a_wall_clock_that_is_of_no_use_counts_from_0() {
        let (epoch, second) = (SystemTime::UNIX_EPOCH, Duration::from_secs(1));
        let end = Duration::from_micros(1 << 53);
        let times = [epoch - second, epoch, epoch + second, epoch + end - second, epoch + end];
        assert_eq!(times.map(unix_micros), [0, 0, 1_000_000, (1 << 53) - 1_000_000, 0]);
    }

    #[test]
    fn a_time_is_rounded_up_to_a_microsecond() {
        let table = [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_nanos(1_000), 1),
            (Duration::new(2, 999_999_001), 3_000_000),
            (Duration::MAX, u64::MAX),
        ];
        for (time, micros) in table {
            assert_eq!(ceil_micros(time), micros, "{time:?}");
        }
    }
}
