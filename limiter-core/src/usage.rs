//! The use of limits: after a charge or a settlement, and for a page about a key.

use std::fmt;
use std::time::Duration;

use crate::request::{ChargeReply, CountedReply, Request};
use crate::{Limit, Source};

/// The use of a limit after a [charge](crate::Limiter::charge): the permits that are left, or that count beyond it.
///
/// Of several limits it describes the one with the most permits beyond it, or else with the least permits left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    limit: Limit,
    source: Source,
    charge: ChargeReply,
}

impl Usage {
    /// The use after a charge of these requests. There is at least one.
    pub(crate) fn new(requests: &[Request<'_>], counted: &CountedReply) -> Self {
        Self::of_requests(requests, counted, |_| true)
    }

    /// The use after a charge of the requests that `is_meant` selects by their positions.
    pub(crate) fn of_requests(
        requests: &[Request<'_>],
        counted: &CountedReply,
        is_meant: impl Fn(usize) -> bool,
    ) -> Self {
        let charged = || requests.iter().zip(counted.charges()).enumerate();
        let charges = || charged().filter(|(index, _)| is_meant(*index)).map(|(_, charge)| charge);
        let tightest = |(_, charge): &(&Request<'_>, &ChargeReply)| (u32::MAX - charge.overdrawn, charge.remaining);
        let (limit, charge) = charges()
            .min_by_key(tightest)
            .map_or((Limit::WIDEST, ChargeReply::default()), |(request, charge)| (request.limit, *charge));
        let uncounted = charges().map(|(_, charge)| charge.uncounted).max().unwrap_or(0);
        Self { limit, source: counted.source, charge: ChargeReply { uncounted, ..charge } }
    }

    /// The use after a charge of one counter of the store in memory.
    pub(crate) fn of_one(limit: Limit, charge: ChargeReply) -> Self {
        Self { limit, source: Source::Store, charge }
    }

    /// The use after a charge that is counted nowhere.
    pub(crate) fn of_uncounted(limit: Limit, source: Source, cost: u32, remaining: u32) -> Self {
        let charge = ChargeReply { uncounted: cost, remaining, ..ChargeReply::default() };
        Self { limit, source, charge }
    }

    /// The use after a charge that is counted nowhere, under a rule of this limit: [`Source::Mode`].
    pub(crate) fn uncounted_by_mode(limit: Limit, cost: u32, remaining: u32) -> Self {
        Self::of_uncounted(limit, Source::Mode, cost, remaining)
    }

    /// The permits that are left, 0 while more count than the limit allows.
    ///
    /// A [leaky bucket](crate::Algorithm::LeakyBucket) has none left until all permits before have passed.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.charge.remaining
    }

    /// The permits that count beyond the limit: above `max` of a window, above `burst` of a token bucket, and above
    /// `burst + 1` of a leaky bucket.
    ///
    /// While there are any, calls are denied. `retry_after` of a denial is exact as always.
    #[must_use]
    pub fn overdrawn(&self) -> u32 {
        self.charge.overdrawn
    }

    /// The time until all permits are free, if no call takes any.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.charge.reset_after
    }

    /// The limit that this describes.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// The counter of the charge: [`Source::Store`], [`Source::Standby`] if the store failed, or [`Source::Mode`] if a rule
    /// that is off or denies all calls counts nothing.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// The permits of the charge that no counter has room for. 0 unless a counter is at one of its bounds.
    ///
    /// - A counter holds 4 294 967 295 permits.
    /// - A bucket holds as many permits beyond its limit as its `burst`. Otherwise one large charge would deny calls for
    ///   years.
    /// - [`Layout::Zset`](crate::Layout::Zset) takes at most 10 000 permits in a call.
    /// - A rule that is [off](crate::Mode::Off), or that [denies](crate::Mode::Deny) all calls, counts none.
    #[must_use]
    pub fn uncounted(&self) -> u32 {
        self.charge.uncounted
    }
}

/// The use of one limit of a rule for a key: see [`Named::usage`](crate::Named::usage).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUsage {
    limit: Limit,
    remaining: u32,
    overdrawn: u32,
    reset_after: Duration,
    source: Source,
}

impl LimitUsage {
    /// The use of the limits of these requests.
    pub(crate) fn of_requests<'r>(
        requests: &'r [Request<'_>],
        counted: &'r CountedReply,
    ) -> impl Iterator<Item = Self> + 'r {
        requests.iter().zip(counted.charges()).map(|(request, charge)| {
            let ChargeReply { remaining, overdrawn, reset_after, .. } = *charge;
            Self { limit: request.limit, remaining, overdrawn, reset_after, source: counted.source }
        })
    }

    /// The use of a limit of calls at once, of which so many run.
    pub(crate) fn of_slots(limit: Limit, in_use: u32) -> Self {
        let (remaining, overdrawn) = (limit.max().saturating_sub(in_use), in_use.saturating_sub(limit.max()));
        Self { limit, remaining, overdrawn, reset_after: Duration::ZERO, source: Source::Store }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// The permits that count now, with those beyond the limit. Of calls at once it is the number that run.
    #[must_use]
    pub fn used(&self) -> u32 {
        let within = self.limit.max_cost().saturating_sub(self.remaining);
        within.saturating_add(self.overdrawn)
    }

    /// The permits that are left.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// The permits that count beyond the limit, after a [charge](crate::Limiter::charge) or under a smaller plan than
    /// before.
    #[must_use]
    pub fn overdrawn(&self) -> u32 {
        self.overdrawn
    }

    /// The time until all permits are free, if no call takes any. Of a period of the calendar it is the time until its end.
    /// Calls at once have no such time, and zero here.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }

    /// The counter that was read: [`Source::Store`], or [`Source::Standby`] if the store failed.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }
}

/// Writes the use in one line: `100000/d: 900 used, 99100 left`, or `100/d: 120 used, 20 beyond the limit`.
impl fmt::Display for LimitUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, used) = (self.limit, self.used());
        match self.overdrawn {
            0 => write!(f, "{limit}: {used} used, {} left", self.remaining),
            overdrawn => write!(f, "{limit}: {used} used, {overdrawn} beyond the limit"),
        }
    }
}

impl fmt::Display for Usage {
    /// Writes the use in one line: `7 of 100 left`, or `12 beyond 100`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.overdrawn() {
            0 => write!(f, "{} of {} left", self.remaining(), self.limit.max_cost()),
            overdrawn => write!(f, "{overdrawn} beyond {}", self.limit.max_cost()),
        }
    }
}
