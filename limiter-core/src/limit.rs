//! Limits: the number of permits in any window, with an algorithm and a layout, or in each period of the calendar, or the
//! number of calls at once.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

#[cfg(feature = "calendar")]
use limiter_syntax::Period;
use limiter_syntax::{MAX_CONCURRENT, MAX_WINDOW_MILLIS};

#[cfg(feature = "calendar")]
use crate::calendar::Anchor;
use crate::calendar::Calendar;
use crate::error::NamedValue;
use crate::{Error, ErrorKind};

mod inherited;
mod packed;
mod parse;

use packed::CountPlace;
pub(crate) use packed::{PACKED_BOUND, PackedBuckets};
pub(crate) use parse::WindowName;

/// A limit of at most [`max`](Limit::max) permits in any [`window`](Limit::window), or in each period of the
/// calendar, or of at most `max` calls [at once](Limit::concurrent).
///
/// A limit is an argument of each decision and is not stored. A changed `max` takes effect with the next call and keeps
/// the history. A changed window or algorithm starts a new history.
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
    place: CountPlace,
    /// Present if the algorithm is [`Algorithm::Calendar`].
    calendar: Option<Calendar>,
}

/// The window that a limit of calls at once has inside. It is not zero, so that nothing divides by zero. It is long, so
/// that a counter that meets such a limit all the same denies calls after `max`.
const CONCURRENT_WINDOW: NonZeroU64 = match NonZeroU64::new(MAX_WINDOW_MILLIS) {
    Some(millis) => millis,
    None => NonZeroU64::MIN,
};

/// The algorithm that counts a limit's permits.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// A sliding window log: exactly at most `max` permits in any window.
    #[default]
    SlidingWindow,
    /// Windows that begin at multiples of their length: at most `max` permits in each, and up to twice as many around
    /// an edge.
    FixedWindow,
    /// Two fixed windows, weighted by the elapsed part of the newer: a fixed window with softer edges, in as little
    /// space.
    SlidingCounter,
    /// A bucket of `burst` permits that is refilled by `max` permits a window: up to `burst + max` permits in a window.
    TokenBucket,
    /// A queue that passes one permit at a time, evenly spaced, and holds up to `burst` waiting permits.
    ///
    /// With [`Limiter::wait`](crate::Limiter::wait) a call gets its turn at once. Without waiting a call is allowed
    /// only if no other is ahead of it.
    LeakyBucket,
    /// No window, but slots: at most `max` calls at once. A call has its slot until it ends.
    ///
    /// Only [`Limit::concurrent`] has it. An `algorithm = "concurrent"` of a rule or an attribute is an error: write the
    /// limit as `50 concurrent`.
    Concurrent,
    /// Periods of the calendar, such as months of a time zone: at most `max` permits in each, and up to twice as many
    /// around an edge.
    ///
    /// Only `Limit::calendar` has it, and texts such as `1000/month@Europe/Berlin`, by the feature `calendar`.
    Calendar,
}

impl Algorithm {
    /// Returns whether limits of this algorithm have a burst.
    pub(crate) const fn has_burst(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }

    /// An example of a limit that counts so, as a text.
    pub(crate) const fn text_of_whole(self) -> &'static str {
        if matches!(self, Self::Calendar) { "1000/month@UTC" } else { "50 concurrent" }
    }
}

/// Writes the name that attributes and files have, such as `token_bucket`.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl NamedValue for Algorithm {
    const OPTION: &'static str = "algorithm";
    // A setting cannot name `Concurrent` or `Calendar`: the text of a limit does.
    const VALUES: &'static [Self] =
        &[Self::SlidingWindow, Self::FixedWindow, Self::SlidingCounter, Self::TokenBucket, Self::LeakyBucket];

    fn name(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
            Self::FixedWindow => "fixed_window",
            Self::SlidingCounter => "sliding_counter",
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
            Self::Concurrent => "concurrent",
            Self::Calendar => "calendar",
        }
    }
}

/// A limit, or the error of an invalid one with the nearest valid limit.
pub type LimitOrNearest = Result<Limit, (Error, Limit)>;

impl Limit {
    /// The longest window: 366 days.
    pub const MAX_WINDOW: Duration = Duration::from_millis(MAX_WINDOW_MILLIS);

    /// The limit that a decision about no request carries.
    pub(crate) const WIDEST: Self = match Self::checked(u32::MAX, MAX_WINDOW_MILLIS) {
        Some(limit) => limit,
        None => unreachable!(),
    };

    /// Creates a limit of at most `max` permits in any `window`. `max` is 1 to `u32::MAX`, and `window` is more than
    /// zero and at most 366 days.
    ///
    /// Windows are whole milliseconds. A fraction is rounded up, so that the limit never allows more than was
    /// specified.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] when either is out of its range.
    pub fn new(max: u32, window: Duration) -> Result<Self, Error> {
        let millis = window.as_nanos().div_ceil(1_000_000);
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        Self::checked(max, millis).ok_or_else(|| {
            let problem = match (max, millis) {
                (0, _) => "`max` must be at least 1, got 0: write the number of permits in a window".to_owned(),
                (_, 0) => "`window` must be more than zero, got 0 s: write a duration such as 10 s".to_owned(),
                _ => format!("`window` must be at most 366 days, got {window:?}: write a shorter duration"),
            };
            Error::new(ErrorKind::InvalidLimit, problem)
        })
    }

    pub(crate) const fn checked(max: u32, window_millis: u64) -> Option<Self> {
        match (NonZeroU32::new(max), NonZeroU64::new(window_millis)) {
            (Some(max), Some(window)) if window.get() <= MAX_WINDOW_MILLIS => Some(Self {
                max,
                window_millis: window,
                algorithm: Algorithm::SlidingWindow,
                burst: None,
                place: CountPlace::COMPACT,
                calendar: None,
            }),
            _ => None,
        }
    }

    /// Creates a limit of at most `max` calls at once, 1 to 65 535, over all processes that share the store.
    ///
    /// A call has a slot from its decision to its end. There is no window: [`window`](Limit::window) is zero.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Algorithm, Limit};
    ///
    /// let limit = Limit::concurrent(50)?;
    /// assert_eq!(limit, "50 concurrent".parse()?);
    /// assert_eq!((limit.max(), limit.algorithm()), (50, Algorithm::Concurrent));
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] when `max` is out of its range.
    pub fn concurrent(max: u32) -> Result<Self, Error> {
        Self::checked_concurrent(max).ok_or_else(|| {
            let problem = match max {
                0 => "`concurrent` must be at least 1, got 0: write the number of calls at once".to_owned(),
                _ => format!("`concurrent` must be at most {MAX_CONCURRENT}, got {max}: write fewer calls at once"),
            };
            Error::new(ErrorKind::InvalidLimit, problem)
        })
    }

    pub(crate) const fn checked_concurrent(max: u32) -> Option<Self> {
        match NonZeroU32::new(max) {
            Some(max) if max.get() <= MAX_CONCURRENT => Some(Self {
                max,
                window_millis: CONCURRENT_WINDOW,
                algorithm: Algorithm::Concurrent,
                burst: None,
                place: CountPlace::COMPACT,
                calendar: None,
            }),
            _ => None,
        }
    }

    /// Creates a limit of at most `max` permits in each period of the calendar, 1 to `u32::MAX`. The periods are those of
    /// UTC until [`zone`](Limit::zone) sets another one.
    ///
    /// Between two edges there are at most `max` permits, and around an edge up to twice as many.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Limit, Period};
    ///
    /// let limit = Limit::calendar(1000, Period::Month)?.zone("Europe/Berlin")?.anchor(5)?;
    /// assert_eq!(limit, "1000/month:5@Europe/Berlin".parse()?);
    /// assert_eq!(limit.to_string(), "1000/month:5@Europe/Berlin");
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] for a `max` of 0.
    #[cfg(feature = "calendar")]
    pub fn calendar(max: u32, period: Period) -> Result<Self, Error> {
        let no_permits = || {
            let problem = "`max` must be at least 1, got 0: write the number of permits in a period";
            Error::new(ErrorKind::InvalidLimit, problem)
        };
        NonZeroU32::new(max).map(|max| Self::of_calendar(max, Calendar::new(period))).ok_or_else(no_permits)
    }

    #[cfg(feature = "calendar")]
    pub(crate) const fn of_calendar(max: NonZeroU32, calendar: Calendar) -> Self {
        let window_millis = match NonZeroU64::new(calendar.period().max_millis()) {
            Some(millis) => millis,
            None => CONCURRENT_WINDOW,
        };
        Self {
            max,
            window_millis,
            algorithm: Algorithm::Calendar,
            burst: None,
            place: CountPlace::COMPACT,
            calendar: Some(calendar),
        }
    }

    /// Returns the limit of the periods that are at most so long, of UTC. `None` if there are none.
    #[cfg(feature = "calendar")]
    pub(crate) fn of_longest_period(max: u32, millis: u64) -> Option<Self> {
        let period = Period::ALL.iter().copied().find(|period| period.max_millis() == millis)?;
        Some(Self::of_calendar(NonZeroU32::new(max)?, Calendar::new(period)))
    }

    #[cfg(not(feature = "calendar"))]
    pub(crate) fn of_longest_period(_: u32, _: u64) -> Option<Self> {
        None
    }

    /// Returns the limit with the periods of another time zone, by its name in the IANA database.
    ///
    /// A counter knows neither zone nor anchor: a change of either takes effect at the end of the period that a key is
    /// in. A zone that end users may change at will belongs into no limit, since each change may end a period early.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] for a name that is none, or for a limit that is not of the
    /// [calendar](Limit::calendar).
    #[cfg(feature = "calendar")]
    pub fn zone(self, zone: &str) -> Result<Self, Error> {
        self.with_calendar("zone", |calendar| calendar.in_zone(zone))
    }

    /// Returns the limit with periods that begin elsewhere: on a day of the month, 31 being the last day of a shorter one,
    /// on a weekday such as `"sunday"`, or on a date such as `"04-06"` for a quarter or a year.
    ///
    /// The defaults are the first day, Monday, and the first of January.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] for an anchor that its period does not have, or for a limit that is not of the
    /// [calendar](Limit::calendar). Hours and days have none.
    #[cfg(feature = "calendar")]
    pub fn anchor<'a>(self, anchor: impl Into<Anchor<'a>>) -> Result<Self, Error> {
        let anchor = anchor.into();
        self.with_calendar("anchor", |calendar| calendar.anchored_at(anchor))
    }

    #[cfg(feature = "calendar")]
    fn with_calendar(
        self,
        option: &str,
        change: impl FnOnce(Calendar) -> Result<Calendar, String>,
    ) -> Result<Self, Error> {
        let problem = match self.calendar.map(change) {
            Some(Ok(calendar)) => return Ok(Self { calendar: Some(calendar), ..self }),
            Some(Err(problem)) => problem,
            None => format!("`{option}` must be left out for `{self}`, got one: write a limit such as `1000/month`"),
        };
        Err(Error::new(ErrorKind::InvalidLimit, problem))
    }

    /// The calendar of its periods, if it has one.
    pub(crate) const fn calendar_periods(&self) -> Option<Calendar> {
        self.calendar
    }

    /// Returns whether its text alone determines how it counts, so that no algorithm of a rule applies.
    pub(crate) const fn is_whole(&self) -> bool {
        matches!(self.algorithm, Algorithm::Concurrent | Algorithm::Calendar)
    }

    /// The limit of calls at once that is nearest to an invalid one.
    pub(crate) fn nearest_concurrent(max: u32) -> Self {
        let nearest = Self::nearest(max.min(MAX_CONCURRENT), Limit::MAX_WINDOW);
        Self { algorithm: Algorithm::Concurrent, ..nearest }
    }

    /// The valid limit that is nearest to an invalid one. The denial of an invalid limit carries it.
    pub(crate) fn nearest(max: u32, window: Duration) -> Self {
        let millis = u64::try_from(window.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_WINDOW_MILLIS);
        Self {
            max: NonZeroU32::new(max).unwrap_or(NonZeroU32::MIN),
            window_millis: NonZeroU64::new(millis).unwrap_or(NonZeroU64::MIN),
            algorithm: Algorithm::SlidingWindow,
            burst: None,
            place: CountPlace::COMPACT,
            calendar: None,
        }
    }

    /// The number of permits in any window, or of calls at once.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max.get()
    }

    /// The time for which a permit counts after it was taken, in whole milliseconds. It is the longest length of a period
    /// of the calendar, with the hours by which a clock may be set back. It is zero for [calls at once](Limit::concurrent),
    /// which have no window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        if self.is_concurrent() { Duration::ZERO } else { Duration::from_millis(self.window_millis.get()) }
    }

    /// Returns whether it limits calls at once: see [`concurrent`](Limit::concurrent).
    #[must_use]
    pub const fn is_concurrent(&self) -> bool {
        matches!(self.algorithm, Algorithm::Concurrent)
    }

    /// Returns the limit with another algorithm, and with that algorithm's default burst and layout.
    ///
    /// A limit of [calls at once](Limit::concurrent) or of the calendar stays as it is. [`Algorithm::Concurrent`] and
    /// [`Algorithm::Calendar`] change no other limit.
    #[must_use]
    pub const fn with_algorithm(self, algorithm: Algorithm) -> Self {
        if self.is_whole() || matches!(algorithm, Algorithm::Concurrent | Algorithm::Calendar) {
            return self;
        }
        let place = match (algorithm, self.place.layout()) {
            (Algorithm::SlidingWindow, _) => self.place,
            (_, Layout::Compact) if algorithm.may_be_packed() => self.place,
            _ => CountPlace::COMPACT,
        };
        Self { algorithm, burst: None, place, ..self }
    }

    /// Returns the limit with a `burst` of 1 to `u32::MAX` permits at once, for the bucket algorithms. Default: `max`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] for a burst of 0, or for an algorithm without a burst.
    pub fn with_burst(self, burst: u32) -> Result<Self, Error> {
        let problem = match (NonZeroU32::new(burst), self.algorithm) {
            (None, _) => "`burst` must be at least 1, got 0: leave it out for the default of `max`".to_owned(),
            (burst, Algorithm::TokenBucket | Algorithm::LeakyBucket) => return Ok(Self { burst, ..self }),
            (_, algorithm @ (Algorithm::Concurrent | Algorithm::Calendar)) => {
                format!("`burst` must be left out for `{algorithm:?}`, got {burst}: remove it, or raise `max`")
            }
            (_, algorithm) => format!(
                "`burst` must be left out for `{algorithm:?}`, got {burst}: write `Algorithm::TokenBucket` or \
                 `Algorithm::LeakyBucket`, or remove it"
            ),
        };
        Err(Error::new(ErrorKind::InvalidLimit, problem))
    }

    /// Returns the limit with another layout of its counter in Redis, for the sliding window. Default:
    /// [`Compact`](Layout::Compact).
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
    /// [`ErrorKind::InvalidLimit`] for [`Layout::Zset`] with any other algorithm.
    pub fn with_layout(self, layout: Layout) -> Result<Self, Error> {
        match (layout, self.algorithm) {
            (Layout::Compact, _) if self.layout() == Layout::Compact => Ok(self),
            (Layout::Compact, _) => Ok(Self { place: CountPlace::COMPACT, ..self }),
            (Layout::Zset, Algorithm::SlidingWindow) => Ok(Self { place: CountPlace::ZSET, ..self }),
            (_, algorithm) => Err(Error::new(ErrorKind::InvalidLimit, layout_problem(algorithm))),
        }
    }

    /// The layout of its counter in Redis.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.place.layout()
    }

    /// The algorithm that counts its permits.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The permits that may be taken at once: `max`, or the value of [`with_burst`](Limit::with_burst).
    #[must_use]
    pub const fn burst(&self) -> u32 {
        match self.burst {
            Some(burst) => burst.get(),
            None => self.max.get(),
        }
    }

    /// The burst that was set. `None` for the default.
    pub(crate) const fn own_burst(&self) -> Option<u32> {
        match self.burst {
            Some(burst) => Some(burst.get()),
            None => None,
        }
    }

    /// The window in milliseconds. Never zero: see [`CONCURRENT_WINDOW`].
    pub(crate) const fn window_millis(&self) -> u64 {
        self.window_millis.get()
    }

    /// The highest cost that a call can ever be allowed.
    pub(crate) const fn max_cost(&self) -> u32 {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => self.burst(),
            _ => self.max.get(),
        }
    }

    /// The share of one of several instances. Together the shares stay within the limit, if it has a permit for each
    /// instance; each share has at least one.
    pub(crate) fn share_of(self, instances: NonZeroU32) -> Self {
        let share = |permits: NonZeroU32| NonZeroU32::new(permits.get() / instances).unwrap_or(NonZeroU32::MIN);
        Self { max: share(self.max), burst: self.burst.map(share), ..self }
    }

    /// The longest time for which a permit may count, in milliseconds.
    pub(crate) fn memory_millis(&self) -> u64 {
        let window = self.window_millis();
        let refill_millis = |permits: u64| {
            let millis = (u128::from(permits) * u128::from(window)).div_ceil(self.max().into());
            u64::try_from(millis).unwrap_or(u64::MAX).max(window)
        };
        match self.algorithm {
            Algorithm::SlidingWindow | Algorithm::FixedWindow | Algorithm::Concurrent => window,
            // A period may be half as long again once, after a change of zone or anchor.
            Algorithm::SlidingCounter | Algorithm::Calendar => 2 * window,
            // A charge may overdraw a bucket by its burst.
            Algorithm::TokenBucket => refill_millis(2 * u64::from(self.burst())),
            Algorithm::LeakyBucket => refill_millis(2 * u64::from(self.burst()) + 1),
        }
    }
}

/// Returns the message for a sorted set with an algorithm that does not support it.
fn layout_problem(algorithm: Algorithm) -> String {
    if let Algorithm::Concurrent | Algorithm::Calendar = algorithm {
        return format!("`layout` must be `Layout::Compact` for `{algorithm:?}`, got `Layout::Zset`: remove it");
    }
    format!(
        "`layout` must be `Layout::Compact` for `{algorithm:?}`, got `Layout::Zset`: write `Algorithm::SlidingWindow`, \
         or remove it"
    )
}

// The layouts of a sliding window in Redis.

/// The layout of a sliding window's log in Redis: this crate's own, or one that other programs share.
///
/// The layout does not change decisions. In memory and in the standby limiter all layouts are the same.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One small string a key. See [the algorithms' page](https://docs.rs/rate-limited) for its size.
    #[default]
    Compact,
    /// A sorted set with an entry for each permit, as in the Spring library redis-current-limiter. It shares one quota
    /// with services that use this library, for example during a migration.
    ///
    /// - The Redis key is `CurrentLimiter:` and the [`Key`](crate::Key) as written. `Key::new("getId")` corresponds to
    ///   `@CurrentLimiting("getId")`. In texts `%`, `@` and `+` stay escaped, and parts are delimited and escaped as
    ///   usual. A key longer than 200 bytes, with all of its escapes, becomes a digest. The limiter's prefix is not
    ///   used.
    /// - The window is not part of the name, because the library does not put it there. All programs must use the same
    ///   window for a name. Several windows for one name share one history, which is correct if every decision is about
    ///   all of them.
    /// - An entry counts while its stamp is younger than a window, and no more than a window ahead, by the clock of
    ///   Redis. Allowed calls remove all other entries, by the longest window of their decision. So hosts whose clocks
    ///   differ by more than the window have practically no limit.
    /// - A permit takes about 120 bytes in Redis while it counts, so 1 000 000 permits take 120 MB. A decision that
    ///   takes more than 10 000 permits of one key would block Redis, and gets a [final](crate::Denied::is_final)
    ///   denial.
    /// - A refund removes exactly the entries that the call added.
    Zset,
}

impl NamedValue for Layout {
    const OPTION: &'static str = "layout";
    const VALUES: &'static [Self] = &[Self::Compact, Self::Zset];

    fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Zset => "zset",
        }
    }
}

#[cfg(test)]
mod tests;
