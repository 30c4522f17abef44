//! The state that each process keeps beside the shared store.
//!
//! A take goes through it in one order, which types state. [`Local::try_decide`] decides without the store or returns a
//! [`StoreTicket`], which the call to the store consumes. [`Local::begin`] precedes the script call: see [`sent`]. A
//! [`Sent`](sent::Sent) is settled by the reply or has failed.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::overflow::Overflows;
use crate::request::{Request, StoreReply, sharing};

pub(crate) mod counter_hash;
pub(crate) mod denial_cache;
pub(crate) mod recent_failures;
#[cfg_attr(not(any(test, feature = "redis")), expect(dead_code, reason = "only the Redis store grants leases"))]
pub(crate) mod leases;
pub(crate) mod standby;
#[cfg(any(test, feature = "redis"))]
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only the Redis store takes all of these steps"))]
pub(crate) mod sent;

use counter_hash::CounterHash;
use denial_cache::DenialCache;
use leases::{LeasedPermits, Leases};
#[cfg(any(test, feature = "redis"))]
use recent_failures::Slots;
use standby::{Standby, StandbyConfig};

/// The standby limiter, the denial cache and the leases of this process. Calls read them, and the worker updates them.
///
/// A child of `fork` has a state of its own, as it has a worker of its own.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) standby: Standby,
    pub(crate) denials: DenialCache,
    pub(crate) leases: Leases,
}

/// The result of a decision without the store.
pub(crate) enum LocalDecision {
    /// A lease has granted the permits.
    Leased(LeasedPermits),
    /// A cached denial still holds.
    Denied(StoreReply),
    /// The store has to decide.
    Ask(StoreTicket),
}

/// The right of a call to one decision of the store: no lease and no cached denial decides it, or none may.
///
/// It has the hash of the call's counter, so a call computes that once.
#[must_use = "the store decides by it"]
#[derive(Debug)]
pub(crate) struct StoreTicket {
    #[cfg_attr(not(any(test, feature = "redis")), expect(dead_code, reason = "only the Redis store has tables by it"))]
    counter: CounterHash,
}

impl StoreTicket {
    /// A ticket for requests that are not looked up: of a call that may wait, or that takes no permits.
    pub(crate) fn without_look_up(requests: &[Request<'_>]) -> Self {
        Self { counter: CounterHash::of_first(requests) }
    }

    /// Returns the hash of the first counter, for the call to the store.
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn into_counter(self) -> CounterHash {
        self.counter
    }
}

impl Local {
    /// Decides by a lease, if the call may take one, or by a cached denial.
    pub(crate) fn try_decide(&self, requests: &[Request<'_>], leases: bool, needs_receipt: bool) -> LocalDecision {
        let Some(request) = sharing::lone(requests) else {
            return LocalDecision::Ask(StoreTicket::without_look_up(requests));
        };
        // Hashed at the first look-up: a thread that calls one busy key needs none.
        let hash = OnceCell::new();
        let counter = || *hash.get_or_init(|| CounterHash::of(request));
        if leases
            && requests.len() == 1
            && request.limit.may_be_leased()
            && let Some(permits) = self.leases.take_from(request, counter, needs_receipt)
        {
            return LocalDecision::Leased(permits);
        }
        match self.denials.get_lone(request, counter) {
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
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn server_failed(&self, slots: &Slots) {
        for ended in self.leases.end_slots(slots) {
            self.standby.settle_lease(&ended);
        }
        self.standby.server_failed(slots);
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
    pub(crate) fn new_local(&self) -> Arc<Local> {
        self.local_with(self.new_standby())
    }

    /// Returns the state of a child of `fork`.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only the Redis store restarts its worker"))]
    pub(crate) fn new_local_in_child(&self) -> Arc<Local> {
        self.overflows.keys().restart();
        self.local_with(self.new_standby().for_child())
    }

    /// Creates a standby limiter that has recorded nothing.
    fn new_standby(&self) -> Standby {
        Standby::with_overflows(&self.standby, self.clock.clone(), Arc::clone(&self.overflows))
    }

    /// Creates a state of this standby limiter, with an empty denial cache and no leases.
    fn local_with(&self, standby: Standby) -> Arc<Local> {
        let denials = DenialCache::new(self.remember_denials, self.clock.clone());
        let leases = Leases::new(self.clock.clone());
        Arc::new(Local { standby, denials, leases })
    }
}

#[cfg(all(test, feature = "test-util", not(limiter_loom)))]
mod tests;
