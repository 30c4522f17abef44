//! Leases of batches: the terms of their entries, and the calls that a lease decides instead.

use std::rc::Rc;

use tokio::task::spawn_local;

use super::Worker;
use super::batch_queue::BatchQueue;
use super::held_calls::HeldCall;
use super::lease_demand::Occasion;
use super::lease_lifecycle::{LeaseCall, Renewal};
use super::leasing::LeaseRequest;
use super::pending_call::{BatchedCall, PendingCall, by_entry};
use super::reconcile::LeaseEffects;
use crate::clock::Moment;
use crate::request::{OwnedRequest, Request};
use crate::store::redis::script::command::{BatchEntry, LeaseTerms};
use crate::store::redis::script::reply::BatchReply;

/// The entries of a sent batch whose permits may be leased.
pub(super) struct BatchLeases {
    sent_at: Moment,
    entries: Vec<LeasedEntry>,
}

/// An entry of a batch whose permits may be leased.
struct LeasedEntry {
    index: usize,
    first_call: Rc<PendingCall>,
    terms: LeaseTerms,
    lease_request: Option<LeaseRequest>,
}

impl Worker {
    /// Replies to a call by a lease that arrived while it waited, or lets it wait for the lease that a script call in
    /// flight requests. Returns false if it has to be sent.
    pub(super) fn take_leased(self: &Rc<Self>, queue: &Rc<BatchQueue>, call: &Rc<PendingCall>) -> bool {
        let request = call.request();
        let Some(permits) = self.leasing.local.leases.take(&request, false) else {
            let held = HeldCall { queue: Rc::clone(queue), call: Rc::clone(call) };
            return self.leasing.hold(&request, held);
        };
        if permits.needs_renewal {
            let request = OwnedRequest::from(&Request { cost: 0, ..request });
            spawn_local(Rc::clone(self).renew(Renewal { request, keys: call.keys().clone() }));
        }
        call.reply(Ok(permits.into_counted()));
        true
    }

    /// Sets the terms of the entries of a batch. `None` if none of its limits has leases.
    pub(super) fn begin_leases(&self, entries: &mut [BatchEntry], calls: &[BatchedCall]) -> Option<BatchLeases> {
        if entries.iter().all(|entry| entry.lease.is_none()) {
            return None;
        }
        let mut leases = BatchLeases { sent_at: self.leasing.now(), entries: Vec::new() };
        for calls in by_entry(calls) {
            let BatchedCall { entry: index, call } = &calls[0];
            if let Some(terms) = &mut entries[*index].lease {
                let request = call.request();
                let calls = u32::try_from(calls.len()).unwrap_or(u32::MAX);
                let occasion = Occasion::Calls { calls, cost: request.cost };
                let (new_terms, lease_request) = self.leasing.terms(&request, call.keys().first_slot(), occasion);
                *terms = new_terms;
                let first_call = Rc::clone(call);
                leases.entries.push(LeasedEntry { index: *index, first_call, terms: *terms, lease_request });
            }
        }
        Some(leases)
    }

    /// Puts the leases of a batch in force, if there is a usable reply. Returns the effects on each entry whose permits may
    /// be leased: by the index of the entry, in their order. A batch that was refused has not been applied.
    pub(super) fn end_leases(
        self: &Rc<Self>,
        leases: Option<BatchLeases>,
        reply: Option<&BatchReply>,
        was_refused: bool,
    ) -> Vec<(usize, LeaseEffects)> {
        let mut all_effects = Vec::new();
        let Some(BatchLeases { sent_at, entries }) = leases else { return all_effects };
        for (position, leased_entry) in entries.into_iter().enumerate() {
            let LeasedEntry { index, first_call, terms, lease_request } = leased_entry;
            let request = first_call.request();
            let entry = reply.and_then(|reply| reply.entries.get(index)?.as_ref().ok());
            let lease = reply.and_then(|reply| reply.leases.get(position));
            if let (Some(entry), Some(lease)) = (entry, lease) {
                let call = LeaseCall { request, keys: first_call.keys(), wanted: terms.wanted, sent_at };
                self.put_in_force(call, entry, *lease);
                all_effects.push((index, self.lease_effects(&request, terms, entry, *lease)));
            } else if let (true, Some(returned)) = (was_refused, terms.returned) {
                let _ = self.leasing.demands.keep(&request, returned);
            }
            self.close_request(lease_request);
        }
        all_effects
    }

    /// Closes a request for a lease, if there is one. The calls that waited for the lease are put back into their queue.
    pub(super) fn close_request(self: &Rc<Self>, lease_request: Option<LeaseRequest>) {
        let released = lease_request.map(LeaseRequest::close).unwrap_or_default();
        let Some(HeldCall { queue, call }) = released.first() else { return };
        // The server may have left the cluster meanwhile.
        let owner = self.topology.connected_owner_of(call.keys().first_slot());
        let queue = owner.map_or_else(|| Rc::clone(queue), |connection| self.queue_of(&connection));
        released.iter().rev().for_each(|held| queue.push_front(Rc::clone(&held.call)));
        self.send_batches(&queue);
    }
}
