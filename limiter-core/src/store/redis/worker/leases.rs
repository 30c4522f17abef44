//! Leases on the worker's side: which script calls request one, and which calls a lease decides instead.
//!
//! A lease is requested in a script call that calls make anyway, or in a call of its own when the lease in force is
//! nearly used up. While a request is open, no other script call requests a lease of the same counter. Calls of
//! it that have come to the worker wait for the lease, once each; a cached denial denies others before.

use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::pending_call::{BatchQueue, BatchedCall, PendingCall};
use crate::clock::{Clock, Moment};
use crate::local::counter_hash::CounterHash;
use crate::local::sent::batch::{WaitingCall, by_entry};
use crate::local::{Local, SideEffects};
use crate::request::{OwnedRequest, Request};
use crate::store::redis::connection::topology::{CallError, Topology};
use crate::store::redis::naming::RedisKeys;
use crate::store::redis::script::command::{BatchEntry, LeaseTerms};
use crate::store::redis::script::reply::BatchReply;
use crate::sync::Seed;

pub(crate) mod demand;
mod held;
pub(crate) mod life;

use demand::{CounterTag, LeaseDemands, Occasion};
pub(super) use held::{HeldCall, ReleasedCalls};
use held::{HeldCalls, LeaseRequest};
use life::LeaseCall;

/// The leases of one worker: it requests, renews and ends them.
pub(super) struct Keeper {
    local: Arc<Local>,
    clock: Clock,
    topology: Rc<Topology>,
    /// The time for the script calls that return permits.
    deadline: Duration,
    demands: LeaseDemands,
    held: HeldCalls,
    /// The source of random marks.
    marks: Seed,
}

/// A request for a renewal, by a call that found the lease nearly used up.
pub(crate) struct Renewal {
    pub(crate) request: OwnedRequest,
    pub(crate) keys: RedisKeys,
}

/// The entries of a sent batch whose permits may be leased.
pub(super) struct BatchTerms {
    sent_at: Moment,
    entries: Vec<EntryTerms>,
}

/// An entry of a batch whose permits may be leased.
struct EntryTerms {
    index: usize,
    first_call: Rc<PendingCall>,
    terms: LeaseTerms,
    lease_request: Option<LeaseRequest>,
}

/// The result of a batch for the leases of its entries.
#[derive(Default)]
pub(super) struct BatchGrants {
    /// The effects on each entry whose permits may be leased, by its index. They are in reverse order.
    effects: Vec<(usize, SideEffects)>,
    /// They are to be sent once the batch is settled or its failure is recorded.
    pub(super) released: ReleasedCalls,
}

impl Keeper {
    pub(super) fn new(local: Arc<Local>, clock: Clock, topology: &Rc<Topology>, deadline: Duration) -> Rc<Self> {
        let (demands, held, marks) = (LeaseDemands::new(), HeldCalls::default(), Seed::default());
        Rc::new(Self { local, clock, topology: Rc::clone(topology), deadline, demands, held, marks })
    }

    /// Replies to a call by a lease that arrived while it waited, or lets it wait for the lease that a script call in
    /// flight requests. Returns false if it has to be sent. `renew` is called if the lease is nearly used up.
    pub(super) fn reply_or_hold(
        &self,
        queue: &Rc<BatchQueue>,
        call: &Rc<PendingCall>,
        renew: impl FnOnce(Renewal),
    ) -> bool {
        if !call.action.takes_leases() {
            return false;
        }
        let request = call.request();
        let Some(permits) = self.local.take_leased(&request, call.counter()) else {
            let held = HeldCall { queue: Rc::clone(queue), call: Rc::clone(call) };
            return self.hold(held);
        };
        if permits.needs_renewal {
            let request = OwnedRequest::from(&Request { cost: 0, ..request });
            renew(Renewal { request, keys: call.keys().clone() });
        }
        call.reply(Ok(permits.into_counted()));
        true
    }

    /// Sets the terms of the entries of a batch. `None` if none of its limits has leases.
    pub(super) fn terms(self: &Rc<Self>, entries: &mut [BatchEntry], calls: &[BatchedCall]) -> Option<BatchTerms> {
        if entries.iter().all(|entry| entry.lease.is_none()) {
            return None;
        }
        let mut batch = BatchTerms { sent_at: self.now(), entries: Vec::new() };
        for calls in by_entry(calls) {
            let call = &calls[0];
            if let Some(terms) = &mut entries[call.entry].lease {
                let request = call.request();
                let calls = u32::try_from(calls.len()).unwrap_or(u32::MAX);
                let occasion = Occasion::Calls { calls, cost: request.cost };
                let (new_terms, lease_request) = self.begin(&request, call.counter(), call.slot(), occasion);
                *terms = new_terms;
                let first_call = Rc::clone(call);
                batch.entries.push(EntryTerms { index: call.entry, first_call, terms: *terms, lease_request });
            }
        }
        Some(batch)
    }

    /// Puts the leases of a batch in force, if there is a usable reply, and closes its requests. The reply is `None` if
    /// none came in time. A batch that was refused has not been applied.
    pub(super) fn granted(
        self: &Rc<Self>,
        batch: Option<BatchTerms>,
        reply: Option<&Result<BatchReply, CallError>>,
    ) -> BatchGrants {
        let mut grants = BatchGrants::default();
        let Some(BatchTerms { sent_at, entries }) = batch else { return grants };
        let was_refused = matches!(reply, Some(Err(CallError::NeedsSplit(_))));
        let reply = reply.and_then(|reply| reply.as_ref().ok());
        for (position, entry_terms) in entries.into_iter().enumerate() {
            let EntryTerms { index, first_call, terms, lease_request } = entry_terms;
            let request = first_call.request();
            let entry = reply.and_then(|reply| reply.entries.get(index)?.as_ref().ok());
            let lease = reply.and_then(|reply| reply.leases.get(position));
            if let (Some(entry), Some(lease)) = (entry, lease) {
                let call = LeaseCall { request, keys: first_call.keys(), wanted: terms.wanted, sent_at };
                self.put_in_force(call, entry, *lease);
                grants.effects.push((index, self.effects(&request, terms, entry, *lease)));
            } else if let (true, Some(returned)) = (was_refused, terms.returned) {
                let _ = self.demands.keep(&request, returned);
            }
            if let Some(lease_request) = lease_request {
                grants.released.add(lease_request.close());
            }
        }
        grants.effects.reverse();
        grants
    }

    /// The time of leases.
    fn now(&self) -> Moment {
        self.clock.now_with_suspend()
    }

    /// Waits until an instant of the clock that [`now`](Self::now) reads.
    async fn sleep_until(&self, instant: Moment) {
        let wait = self.now().until(instant);
        match &self.clock {
            Clock::System => sleep(wait).await,
            #[cfg(feature = "test-util")]
            clock @ Clock::Manual(_) => drop(clock.sleep(wait).await),
        }
    }

    /// Begins a script call about a counter. Returns its terms, and its request for a lease, if it has one.
    fn begin(
        self: &Rc<Self>,
        request: &Request<'_>,
        hash: CounterHash,
        slot: u16,
        occasion: Occasion,
    ) -> (LeaseTerms, Option<LeaseRequest>) {
        let now = self.now();
        let may_lease = || {
            let is_near = self.round_trip(slot) <= request.limit.lease_time() / 2;
            is_near && self.local.may_lease(request, slot)
        };
        let (wanted, returned) = self.demands.begin(CounterTag::new(request, hash), occasion, now, may_lease);
        let lease_request = (wanted > 0).then(|| LeaseRequest::new(self, request, hash));
        // Two logs must not have the same mark, so the key is a part of it.
        let new_mark = if wanted > 0 { self.marks.hash_one((request.key, now.micros())) } else { 0 };
        // The high half of a hash is as random as the low one.
        (LeaseTerms { wanted, new_mark: u32::try_from(new_mark >> 32).unwrap_or(0), returned }, lease_request)
    }

    /// The round trip to the owner of a slot: a lease is in force for the rest of its time only. Zero if it is not
    /// connected.
    fn round_trip(&self, slot: u16) -> Duration {
        self.topology.connected_owner_of(slot).map_or(Duration::ZERO, |owner| owner.round_trip())
    }
}

impl BatchGrants {
    /// Takes the effects on an entry. The entries are settled in their order.
    pub(super) fn take_effects(&mut self, entry: usize) -> SideEffects {
        self.effects.pop_if(|(index, _)| *index == entry).map(|(_, effects)| effects).unwrap_or_default()
    }
}

#[cfg(all(test, feature = "test-util"))]
mod tests;
