//! The demand for leases: when a script call requests one, and of how many permits.
//!
//! A lease is for [`LEASE_MICROS`] and its renewal at the process's own rate, which the previous lease has shown. A size
//! at most doubles from lease to lease, and is halved if permits were left at the end.
//!
//! A counter is busy from the first sign of it until a lease of it was hardly used.

use std::cell::RefCell;

use crate::Key;
use crate::algorithm::CounterKind;
use crate::clock::Moment;
use crate::local::counter_hash::CounterHash;
use crate::local::leases::LeaseId;
use crate::request::Request;
use crate::store::redis::script::command::ReturnedPermits;

/// The demand for each counter, in a fixed number of places. If several counters share a place, it has the latest.
pub(crate) struct LeaseDemands {
    /// Empty before the first call.
    places: RefCell<Vec<Option<Demand>>>,
}

/// A counter, with the hash that selects its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterTag<'k> {
    hash: CounterHash,
    key: &'k Key,
    kind: CounterKind,
}

/// The demand of this process for permits of one counter.
#[derive(Clone, Debug)]
struct Demand {
    key: Key,
    kind: CounterKind,
    /// The times of the last script call about it, and of the one before.
    called_at: Moment,
    called_before_at: Option<Moment>,
    /// Script calls request a lease.
    is_busy: bool,
    /// Permits of the next lease, unless calls need more.
    size: u32,
    /// Permits that one of the last calls took.
    cost: u32,
    /// Permits a microsecond.
    rate: f64,
    /// Permits of the last lease, without those that were left at its end, and the time at which it arrived.
    granted: u32,
    granted_at: Moment,
    /// True while a request for a lease is open.
    is_requested: bool,
    /// Unused permits that the next script call returns.
    returned: Option<ReturnedPermits>,
}

/// The reason for a script call about a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A number of calls wait for it, each of a cost.
    Calls { calls: u32, cost: u32 },
    /// The lease in force is nearly used up.
    Renewal,
}

/// A new lease, as far as it matters for the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) permits: u32,
    /// Permits of the lease that it replaces, which were not used.
    pub(crate) unused: u32,
    pub(crate) sent_at: Moment,
    pub(crate) received_at: Moment,
}

const PLACES: usize = 4096;
/// A lease is for this time at the process's own rate, and for the time of its renewal.
const LEASE_MICROS: f64 = 6_000.0;
/// The size of the first lease of a counter.
const FIRST_SIZE: u32 = 64;
const MIN_SIZE: u32 = 8;
/// A lease is for this number of calls at least.
const MIN_CALLS: u32 = 8;
/// The most permits of one lease.
const MAX_SIZE: u32 = 1 << 30;
/// Three script calls within this time show that a counter is busy.
const BUSY_MICROS: u64 = 5_000;
/// A lease with fewer used permits at its end was not worth the script call that returns the others.
const MIN_USED: u32 = 3;
/// The number of waiting calls that shows that a counter is busy.
const BUSY_CALLS: u32 = 4;
/// A lease is renewed when its permits last for two round trips and this time.
const RENEWAL_SLACK_MICROS: f64 = 200.0;

impl LeaseDemands {
    pub(crate) fn new() -> Self {
        Self { places: RefCell::default() }
    }

    /// Returns the tag of a request's counter.
    pub(crate) fn counter<'k>(&self, request: &Request<'k>) -> CounterTag<'k> {
        CounterTag::new(request, CounterHash::of(request))
    }

    /// Returns the permits to request in a script call about a counter, and those to return with it. `may_lease` returns
    /// whether a lease could be used now. It is called only if one is wanted.
    ///
    /// If permits are requested, [`completed`](Self::completed) has to follow.
    pub(crate) fn begin(
        &self,
        counter: CounterTag<'_>,
        occasion: Occasion,
        now: Moment,
        may_lease: impl FnOnce() -> bool,
    ) -> (u32, Option<ReturnedPermits>) {
        let mut places = self.places.borrow_mut();
        places.resize(PLACES, None);
        let place = &mut places[counter.place()];
        let Some(demand) = place.as_mut().filter(|demand| demand.is_of(counter)) else {
            let is_replaceable = |demand: &mut Demand| !demand.is_requested && demand.returned.is_none();
            if place.as_mut().is_none_or(is_replaceable) {
                *place = Some(Demand::new(counter, now));
            }
            return (0, None);
        };
        let is_third = demand.called_before_at.is_some_and(|before| before.until(now).as_micros() < BUSY_MICROS.into());
        demand.is_busy |= match occasion {
            Occasion::Calls { calls, .. } => calls >= BUSY_CALLS || is_third,
            Occasion::Renewal => true,
        };
        if let Occasion::Calls { cost, .. } = occasion {
            demand.cost = cost;
        }
        (demand.called_before_at, demand.called_at) = (Some(demand.called_at), now);
        let wanted = if demand.is_busy && !demand.is_requested && may_lease() { demand.wanted() } else { 0 };
        demand.is_requested |= wanted > 0;
        (wanted, demand.returned.take())
    }

    /// Returns whether a request for a lease is open.
    pub(crate) fn is_requested(&self, counter: CounterTag<'_>) -> bool {
        let mut is_requested = false;
        self.change(counter, |demand| is_requested = demand.is_requested);
        is_requested
    }

    /// Records that the request for a lease is closed, with a lease or without.
    pub(crate) fn completed(&self, counter: CounterTag<'_>) {
        self.change(counter, |demand| demand.is_requested = false);
    }

    /// Records a lease, and computes the size of the next one. Returns the number of permits below which it is renewed.
    pub(crate) fn granted(&self, request: &Request<'_>, granted: Granted) -> u32 {
        let Granted { permits, unused, sent_at, received_at } = granted;
        let mut renew_below = 1;
        self.change(self.counter(request), |demand| {
            let micros =
                |from: Moment| f64::from(u32::try_from(from.until(received_at).as_micros()).unwrap_or(u32::MAX));
            let lead = 2.0 * micros(sent_at) + RENEWAL_SLACK_MICROS;
            if demand.granted > 0 {
                let rate = f64::from(demand.granted.saturating_sub(unused)) / micros(demand.granted_at).max(1.0);
                demand.rate = if rate > demand.rate { rate } else { 0.7 * demand.rate + 0.3 * rate };
                let size = whole(demand.rate * (LEASE_MICROS + lead));
                demand.size = size.clamp(demand.size / 2, demand.size.saturating_mul(2)).clamp(MIN_SIZE, MAX_SIZE);
            }
            (demand.granted, demand.granted_at) = (permits, received_at);
            renew_below = whole(demand.rate * lead).clamp(1, permits / 2 + 1);
        });
        renew_below
    }

    /// Records that permits of a lease were left at its end, of which so many were used: the next one is smaller.
    pub(crate) fn was_too_large(&self, request: &Request<'_>, used: u32) {
        self.change(self.counter(request), |demand| {
            demand.size = (demand.size / 2).max(MIN_SIZE);
            demand.granted = used;
            demand.is_busy &= used >= MIN_USED;
        });
    }

    /// Keeps unused permits for the next script call about the counter. Gives them back if it has to be made at once.
    pub(crate) fn keep(&self, request: &Request<'_>, returned: ReturnedPermits) -> Result<(), ReturnedPermits> {
        let mut kept = Err(returned);
        self.change(self.counter(request), |demand| {
            if demand.returned.is_none() {
                demand.returned = Some(returned);
                kept = Ok(());
            }
        });
        kept
    }

    /// Returns whether unused permits are kept for the next script call about the counter.
    pub(crate) fn has_kept(&self, request: &Request<'_>) -> bool {
        let mut has_kept = false;
        self.change(self.counter(request), |demand| has_kept = demand.returned.is_some());
        has_kept
    }

    /// Takes the unused permits of a lease, if no script call has returned them.
    pub(crate) fn take_kept(&self, request: &Request<'_>, id: LeaseId) -> Option<ReturnedPermits> {
        let mut taken = None;
        self.change(self.counter(request), |demand| taken = demand.returned.take_if(|returned| returned.id == id));
        taken
    }

    fn change(&self, counter: CounterTag<'_>, change: impl FnOnce(&mut Demand)) {
        let mut places = self.places.borrow_mut();
        let demand = places.get_mut(counter.place()).and_then(Option::as_mut);
        if let Some(demand) = demand.filter(|demand| demand.is_of(counter)) {
            change(demand);
        }
    }
}

impl<'k> CounterTag<'k> {
    pub(crate) fn new(request: &Request<'k>, hash: CounterHash) -> Self {
        Self { hash, key: request.key, kind: request.limit.into() }
    }

    pub(crate) fn hash(self) -> CounterHash {
        self.hash
    }

    /// Returns whether it is the counter of a request.
    pub(crate) fn is_of(self, request: &Request<'_>) -> bool {
        self.kind == request.limit.into() && self.key == request.key
    }

    /// The index of its place.
    fn place(self) -> usize {
        self.hash.place_of_demand(PLACES)
    }
}

impl Demand {
    fn new(counter: CounterTag<'_>, now: Moment) -> Self {
        Self {
            key: counter.key.clone(),
            kind: counter.kind,
            called_at: now,
            called_before_at: None,
            is_busy: false,
            size: FIRST_SIZE,
            cost: 0,
            rate: 0.0,
            granted: 0,
            granted_at: now,
            is_requested: false,
            returned: None,
        }
    }

    fn is_of(&self, counter: CounterTag<'_>) -> bool {
        self.kind == counter.kind && self.key == *counter.key
    }

    /// Returns the permits to request as a lease.
    fn wanted(&self) -> u32 {
        self.size.max(self.cost.saturating_mul(MIN_CALLS)).min(MAX_SIZE)
    }
}

/// A number of permits, rounded down. It is never negative, and at most [`MAX_SIZE`].
fn whole(permits: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number is in the range of the type"
    )]
    let whole = permits.clamp(0.0, f64::from(MAX_SIZE)) as u32;
    whole
}

#[cfg(test)]
mod tests;
