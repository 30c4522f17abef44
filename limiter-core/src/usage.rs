//! The use of a limit after a charge or a settlement.

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

impl fmt::Display for Usage {
    /// Writes the use in one line: `7 of 100 left`, or `12 beyond 100`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.overdrawn() {
            0 => write!(f, "{} of {} left", self.remaining(), self.limit.max_cost()),
            overdrawn => write!(f, "{overdrawn} beyond {}", self.limit.max_cost()),
        }
    }
}
