//! The life of a lease: it is put in force, renewed and ended, and its unused permits are returned.
//!
//! Its time starts before the script call is sent that requests it. The mirror takes all of its permits before calls may
//! use it. When it is over, the mirror keeps what was used, and the rest goes back to the store.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;
use tokio::time::timeout_at;

use super::Worker;
use super::call::Deadline;
use super::lease_demand::{Granted, Occasion};
use super::leasing::Leasing;
use crate::Error;
use crate::clock::{Moment, ceil_micros};
use crate::limit::Limit;
use crate::local::counter_hash::CounterHash;
use crate::local::leases::NewLease;
use crate::local::sent::batch::{LeaseEffects, WaitingCall, by_entry};
use crate::request::{LeaseId, OwnedRequest, Request};
use crate::store::redis::connection::managed::Attempt;
use crate::store::redis::naming::RedisKeys;
use crate::store::redis::script::command::{BatchEntry, Command, CommandBody, LeaseTerms, ReturnedPermits};
use crate::store::redis::script::reply::{BatchEntryReply, BatchReply, LeaseReply};
use crate::store::redis::worker::leasing::{HeldCall, LeaseRequest};
use crate::store::redis::worker::pending_call::{BatchQueue, BatchedCall, PendingCall};

/// A request for a renewal, by a call that found the lease nearly used up.
pub(crate) struct Renewal {
    pub(crate) request: OwnedRequest,
    pub(crate) keys: RedisKeys,
}

/// A script call that may lease permits.
#[derive(Clone, Copy)]
pub(super) struct LeaseCall<'a> {
    pub(super) request: Request<'a>,
    pub(super) keys: &'a RedisKeys,
    /// The most permits that it leases.
    pub(super) wanted: u32,
    /// The time before it was sent.
    pub(super) sent_at: Moment,
}

impl Worker {
    /// Puts the lease of a reply in force, if there is one.
    pub(super) fn put_in_force(self: &Rc<Self>, call: LeaseCall<'_>, entry: &BatchEntryReply, lease: LeaseReply) {
        let LeaseCall { request, keys, wanted, sent_at } = call;
        let Leasing { local, demands, .. } = &*self.leasing;
        let LeaseReply { permits, id: Some(id) } = lease else { return };
        // A server that leases more than was wanted is broken.
        if !(1..=wanted).contains(&permits) {
            return;
        }
        let (received_at, slot) = (self.leasing.now(), keys.first_slot());
        // The mirror has all permits before a call can use one.
        let Some(mirror_stamp) = local.mirror_lease(&Request { cost: permits, ..request }, slot) else {
            return self.return_permits(&request, keys, ReturnedPermits { permits, id });
        };
        let ends_at = sent_at.after(usable_time(request.limit));
        let mut lease = NewLease {
            key: request.key.clone(),
            limit: request.limit,
            slot,
            id,
            permits,
            ends_at,
            remaining: entry.remaining,
            reset_at: received_at.after(entry.reset_after),
            store_reset_at: entry.stamp.saturating_add(ceil_micros(entry.reset_after)),
            mirror_stamp,
            renew_below: 0,
        };
        // The lease that it replaces is ended first, so that its rate is known.
        let replaced = local.end_lease_of(request.key, request.limit);
        let unused = replaced.as_ref().map_or(0, |ended| ended.unused);
        lease.renew_below = demands.granted(&request, Granted { permits, unused, sent_at, received_at });
        if let Some(ended) = replaced {
            self.keep_unused(&request, keys, ReturnedPermits { permits: ended.unused, id: ended.id });
        }
        match local.install_lease(lease) {
            Ok(Some(ended)) => {
                self.keep_unused(&request, keys, ReturnedPermits { permits: ended.unused, id: ended.id });
            }
            Ok(None) => {}
            Err(_) => return self.return_permits(&request, keys, ReturnedPermits { permits, id }),
        }
        let end = Rc::clone(self).end_lease(OwnedRequest::from(&request), keys.clone(), id, ends_at);
        spawn_local(end);
    }

    /// Returns the effects of a script call about leases, after its lease was put in force.
    pub(super) fn lease_effects(
        &self,
        request: &Request<'_>,
        terms: LeaseTerms,
        entry: &BatchEntryReply,
        lease: LeaseReply,
    ) -> LeaseEffects {
        let is_used_up = entry.remaining == 0 && lease.id.is_some() && !self.leasing.demands.has_kept(request);
        LeaseEffects { newest: lease.id, has_returned: terms.returned.is_some(), is_used_up }
    }

    /// Keeps the unused permits of a lease that another one has replaced for the next script call.
    fn keep_unused(self: &Rc<Self>, request: &Request<'_>, keys: &RedisKeys, returned: ReturnedPermits) {
        if returned.permits > 0
            && let Err(returned) = self.leasing.demands.keep(request, returned)
        {
            self.return_permits(request, keys, returned);
        }
    }

    /// Ends a lease when its time has passed, and returns what is left of it.
    async fn end_lease(self: Rc<Self>, request: OwnedRequest, keys: RedisKeys, id: LeaseId, ends_at: Moment) {
        let Leasing { local, demands, .. } = &*self.leasing;
        self.leasing.sleep_until(ends_at).await;
        let request = request.as_request();
        let returned = match local.end_lease(&request, id) {
            Some(ended) => {
                if ended.unused > 0 {
                    demands.was_too_large(&request, ended.used);
                }
                Some(ReturnedPermits { permits: ended.unused, id }).filter(|returned| returned.permits > 0)
            }
            None => demands.take_kept(&request, id),
        };
        if let Some(returned) = returned {
            self.return_permits(&request, &keys, returned);
        }
    }

    /// Returns unused permits by a script call of its own. If that fails, they count until their stamp expires.
    fn return_permits(self: &Rc<Self>, request: &Request<'_>, keys: &RedisKeys, returned: ReturnedPermits) {
        if self.topology.connected_owner_of(keys.first_slot()).is_none() {
            return;
        }
        let (worker, request, keys) = (Rc::clone(self), OwnedRequest::from(request), keys.clone());
        spawn_local(async move {
            let deadline = Deadline::after(worker.context.deadline);
            let _ = worker.return_by_call(&request.as_request(), &keys, returned, deadline).await;
        });
    }

    /// Returns unused permits of a lease to the store.
    pub(super) async fn return_by_call(
        &self,
        request: &Request<'_>,
        keys: &RedisKeys,
        returned: ReturnedPermits,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let terms = LeaseTerms { returned: Some(returned), ..LeaseTerms::default() };
        self.exchange(request, keys, terms, deadline).await?;
        self.local.invalidate_denials(&[*request]);
        Ok(())
    }

    /// Serves requests for renewals until all senders are dropped.
    pub(super) async fn serve_renewals(self: Rc<Self>, mut renewals: UnboundedReceiver<Renewal>) {
        while let Some(renewal) = renewals.recv().await {
            spawn_local(Rc::clone(&self).renew(renewal));
        }
    }

    /// Renews a lease by a script call of its own.
    pub(super) async fn renew(self: Rc<Self>, renewal: Renewal) {
        let Renewal { request, keys } = renewal;
        let request = request.as_request();
        let is_connected = self.topology.connected_owner_of(keys.first_slot()).is_some();
        if !is_connected || self.local.is_used_up(&request) {
            return;
        }
        let (terms, lease_request) =
            self.leasing.terms(&request, CounterHash::of(&request), keys.first_slot(), Occasion::Renewal);
        if terms.is_empty() {
            // It is being renewed.
            return;
        }
        let (sent_at, sent) = (self.leasing.now(), self.local.begin_renewal(request));
        let exchanged = self.exchange(&request, &keys, terms, Deadline::after(self.context.deadline)).await;
        if let Ok((entry, lease)) = exchanged {
            let call = LeaseCall { request, keys: &keys, wanted: terms.wanted, sent_at };
            self.put_in_force(call, &entry, lease);
            let effects = self.lease_effects(&request, terms, &entry, lease);
            sent.settle(&entry, effects);
        }
        self.close_request(lease_request);
    }

    /// Makes one script call about the leases of a counter, which takes no permits for a call.
    async fn exchange(
        &self,
        request: &Request<'_>,
        keys: &RedisKeys,
        terms: LeaseTerms,
        deadline: Deadline,
    ) -> Result<(BatchEntryReply, LeaseReply), Error> {
        let entry = BatchEntry { limit: request.limit, cost: 0, calls: 1, lease: Some(terms) };
        let command = Command { keys: keys.as_slice().to_vec(), body: CommandBody::Batch(vec![entry]) };
        let (attempt, mut no_permit) = (Attempt::default(), None);
        let call = self.topology.call(&command, &attempt, &mut no_permit);
        let Ok(reply) = timeout_at(deadline.instant, call).await else {
            attempt.report_timeout();
            return Err(deadline.no_reply_error());
        };
        let mut reply = command.decode_batch(reply?)?;
        match (reply.entries.pop(), reply.leases.pop()) {
            (Some(entry), Some(lease)) => Ok((entry.inspect_err(|error| attempt.report_error(error))?, lease)),
            _ => Err(deadline.no_reply_error()),
        }
    }
}

/// The time for which a lease is used, from the sending of its script call: the time by which the store stamps ahead,
/// less a millisecond for rounding and a thousandth for clocks of different speed.
pub(crate) fn usable_time(limit: Limit) -> Duration {
    let lease_time = limit.lease_time();
    lease_time.saturating_sub(Duration::from_millis(1) + lease_time / 1000)
}

// Leases of batches: the terms of their entries, and the calls that a lease decides instead.

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
        let Some(permits) = self.local.take_leased(&request, call.counter()) else {
            let held = HeldCall { queue: Rc::clone(queue), call: Rc::clone(call) };
            return self.leasing.hold(held);
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
            let call = &calls[0];
            if let Some(terms) = &mut entries[call.entry].lease {
                let request = call.request();
                let calls = u32::try_from(calls.len()).unwrap_or(u32::MAX);
                let occasion = Occasion::Calls { calls, cost: request.cost };
                let (new_terms, lease_request) = self.leasing.terms(&request, call.counter(), call.slot(), occasion);
                *terms = new_terms;
                let first_call = Rc::clone(call);
                leases.entries.push(LeasedEntry { index: call.entry, first_call, terms: *terms, lease_request });
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
