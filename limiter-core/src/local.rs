//! The state that each process keeps beside the shared store.
//!
//! A take goes through it in one order, which types state:
//!
//! 1. On its caller's thread, [`Local::try_decide`] decides by a lease, and else by a cached denial. A lease is first: the
//!    reply that leases the last permits also caches the denial of the next call.
//! 2. Otherwise it returns a [`StoreTicket`], which the call to the store consumes.
//! 3. On the worker's thread, [`Local::take_leased`] tries a lease once more, and the call may wait for one that is in
//!    flight.
//! 4. [`Local::begin`] precedes the script call: see [`sent`]. A [`Sent`](sent::Sent) is settled by the reply or has
//!    failed.

use std::sync::Arc;
use std::time::Duration;

use crate::Source;
use crate::clock::{Clock, Moment};
use crate::overflow::Overflows;
use crate::request::settlement::{self, CounterChange};
use crate::request::sharing::in_memory;
use crate::request::{CallOptions, CountedReply, DecisionReply, PerRequest, RefundInfo, Request, StoreReply, sharing};

pub(crate) mod counter_hash;
pub(crate) mod denial_cache;
mod recent_failures;
pub(crate) mod leases;
pub(crate) mod standby;
pub(crate) mod sent;

use counter_hash::CounterHash;
use denial_cache::DenialCache;
use leases::Leases;
pub(crate) use leases::SideEffects;
pub(crate) use leases::{GrantToken, LocalGrant};
use recent_failures::Slots;
use standby::{Standby, StandbyConfig};

/// The standby limiter, the denial cache and the leases of this process. Calls read them, and the worker updates them.
#[derive(Debug)]
pub(crate) struct Local {
    standby: Standby,
    denials: DenialCache,
    leases: Leases,
}

/// The result of a decision without the store.
pub(crate) enum LocalDecision {
    /// A lease has granted the permits.
    Granted(LocalGrant),
    /// A cached denial still holds.
    Denied(StoreReply),
    /// The store has to decide.
    Ask(StoreTicket),
}

/// The part that a call brings to its decision by the store: the hash of its first counter, which its look-up has computed.
///
/// A look-up that decides nothing returns it. Calls without a look-up make one.
#[must_use = "the store decides by it"]
#[derive(Debug)]
pub(crate) struct StoreTicket {
    counter: CounterHash,
}

impl StoreTicket {
    /// A ticket for requests that are not looked up: several, those of a call that may wait, and those that take no
    /// permits.
    pub(crate) fn without_look_up(requests: &[Request<'_>]) -> Self {
        Self { counter: CounterHash::of_first(requests) }
    }

    /// Returns the hash of the first counter, for the call to the store.
    pub(crate) fn into_counter(self) -> CounterHash {
        self.counter
    }
}

impl Local {
    /// Decides by a lease, if the call may take one, or by a cached denial.
    pub(crate) fn try_decide(
        &self,
        requests: &[Request<'_>],
        options: &CallOptions,
        needs_receipt: bool,
    ) -> LocalDecision {
        let Some(request) = sharing::lone(requests) else {
            return LocalDecision::Ask(StoreTicket::without_look_up(requests));
        };
        // Hashed at the first look-up: a thread that calls one busy key needs none.
        let mut hash = None;
        let mut counter = || *hash.get_or_insert_with(|| CounterHash::of(request));
        if options.leases
            && requests.len() == 1
            && !request.role.is_postpaid()
            && request.may_be_leased()
            && let Some(grant) = self.leases.take_from(request, &mut counter, needs_receipt)
        {
            return LocalDecision::Granted(grant);
        }
        match self.denials.get_lone(request, &mut counter) {
            Some(denial) => LocalDecision::Denied(denial),
            None => LocalDecision::Ask(StoreTicket { counter: counter() }),
        }
    }

    /// Records that the store failed calls at the same moment. The standby limiter is then consulted for their keys.
    ///
    /// Each failure of a call is recorded here, before its caller gets a reply. The caller may use the standby limiter at
    /// once.
    pub(crate) fn fail<'r>(&self, requests: impl IntoIterator<Item = Request<'r>>) {
        self.standby.calls_failed(requests);
    }

    /// Ends the leases of these slots, and then records that their server failed and may have lost their counters.
    ///
    /// The standby limiter is consulted from the record on. By then no permit of a lease is used any more, and its mirror
    /// counts those that were.
    pub(crate) fn server_failed(&self, slots: &Slots) {
        for ended in self.leases.end_slots(slots) {
            ended.settle(&self.standby);
        }
        self.standby.server_failed(slots);
    }

    /// The time since the last failure of a server of this slot; `None` if this process knows of none.
    pub(crate) fn time_since_server_failure(&self, slot: u16, now: Moment) -> Option<Duration> {
        let failed_at = self.standby.last_server_failure(slot)?;
        Some(Duration::from_millis(now.floor_millis().saturating_sub(failed_at)))
    }
}

// Calls that have failed, by the failure policy.

impl Local {
    /// Gives back the permits that the standby limiter has reserved for a failed call, which does not get them.
    pub(crate) fn release(&self, requests: &[Request<'_>], reservation: &DecisionReply) {
        self.standby.refund(requests, reservation.reply.stamp);
    }

    /// Records the permits of a failed call that is allowed without a decision.
    pub(crate) fn record(&self, requests: &[Request<'_>]) {
        self.standby.record(requests);
    }

    /// Decides a failed call by the standby limiter, which may have reserved its permits while it was sent.
    pub(crate) fn decide_by_standby(
        &self,
        requests: &[Request<'_>],
        options: &CallOptions,
        reservation: Option<DecisionReply>,
    ) -> DecisionReply {
        match reservation {
            Some(reservation) if self.standby.has_whole_limits() => return reservation,
            // The whole limit may have been checked for it.
            Some(reservation) => self.release(requests, &reservation),
            None => {}
        }
        if !options.wants_reports {
            return self.standby.decide(requests, options.max_wait).into();
        }
        let mut per_request = PerRequest::default();
        let reply = self.standby.decide_each(requests, &mut per_request);
        DecisionReply::with_reports(reply, per_request)
    }

    /// Counts a failed charge in the standby limiter.
    pub(crate) fn charge_by_standby(&self, requests: &[Request<'_>]) -> CountedReply {
        CountedReply::from_standby(self.standby.change(&settlement::charges(requests, in_memory), 0))
    }

    /// Gives back what changes return of permits that the standby limiter has granted. The reply is the standby limiter's.
    /// What they charge is not charged here.
    pub(crate) fn return_to_standby(&self, changes: &[CounterChange<'_>], info: &RefundInfo) -> CountedReply {
        let uncharged = changes.iter().map(|change| (Request { cost: 0, ..change.charged }, change));
        let returned: Vec<_> = uncharged.map(|(charged, change)| CounterChange { charged, ..*change }).collect();
        let reply = self.standby.change(&returned, info.mirror_stamp);
        self.denials.invalidate(&settlement::charged(changes));
        CountedReply::from_standby(reply)
    }

    /// Charges permits to the lease of their counter. `None` if there is none in force with as many.
    pub(crate) fn charge_lease(&self, requests: &[Request<'_>]) -> Option<LocalGrant> {
        let [request] = requests else { return None };
        self.leases.charge(request)
    }

    /// Decides a failed peek by the standby limiter.
    pub(crate) fn peek_by_standby(&self, requests: &[Request<'_>], options: &CallOptions) -> CountedReply {
        CountedReply::from_standby(match options.wants_reports {
            true => self.peek_with_reports(requests),
            false => self.standby.peek(requests).into(),
        })
    }

    /// The reply of the standby limiter to a peek about several requests, with a report of each.
    #[cold]
    fn peek_with_reports(&self, requests: &[Request<'_>]) -> DecisionReply {
        let mut per_request = PerRequest::default();
        let reply = self.standby.peek_each(requests, &mut per_request);
        DecisionReply::with_reports(reply, per_request)
    }
}

// Refunds and resets.

impl Local {
    /// Removes the cached denials of these counters, because permits were given back, or may have been.
    pub(crate) fn invalidate_denials(&self, requests: &[Request<'_>]) {
        self.denials.invalidate(requests);
    }

    /// Refunds permits, unless the store has to. Returns false if it has to.
    pub(crate) fn refund(&self, requests: &[Request<'_>], info: &RefundInfo) -> bool {
        match info.source {
            Source::Lease => self.put_back(requests, info),
            Source::Store => false,
            Source::Standby => {
                self.refund_by_standby(requests, info);
                true
            }
            // Nothing was granted.
            Source::Policy | Source::DeniedUntil | Source::Mode => true,
        }
    }

    /// Refunds permits that the standby limiter has granted.
    fn refund_by_standby(&self, requests: &[Request<'_>], info: &RefundInfo) {
        self.standby.refund_part(requests, info.mirror_stamp, info.max_permits);
    }

    /// Resets a counter in the mirror. Its lease was ended before, and what was left of that is refunded.
    pub(crate) fn reset(&self, request: &Request<'_>) {
        self.standby.reset(request);
    }
}

/// The parts, for tests of the worker and models of threads.
#[cfg(test)]
impl Local {
    pub(crate) fn standby(&self) -> &Standby {
        &self.standby
    }

    pub(crate) fn denials(&self) -> &DenialCache {
        &self.denials
    }

    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }
}

/// The options of each [`Local`] of a limiter.
#[derive(Debug)]
pub(crate) struct LocalOptions {
    pub(crate) standby: StandbyConfig,
    pub(crate) remember_denials: Duration,
    pub(crate) clock: Clock,
    pub(crate) overflows: Arc<Overflows>,
}

impl LocalOptions {
    /// Creates a state with nothing recorded, an empty denial cache and no leases.
    pub(crate) fn new_local(&self) -> Arc<Local> {
        let standby = Standby::with_overflows(&self.standby, self.clock.clone(), Arc::clone(&self.overflows));
        let denials = DenialCache::new(self.remember_denials, self.clock.clone());
        let leases = Leases::new(self.clock.clone());
        Arc::new(Local { standby, denials, leases })
    }
}

#[cfg(all(test, feature = "test-util", not(limiter_loom)))]
mod tests;
