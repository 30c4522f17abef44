//! Leases on the worker's side: the terms of a script call, and the use of its reply.
//!
//! A lease is requested in a script call that calls make anyway, or in a call of its own when the lease in force is
//! nearly used up. Its time starts before that call is sent. The mirror takes all of its permits before calls may use
//! it. When it is over, the mirror keeps what was used, and the rest goes back to the store.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout_at};

use super::Worker;
use super::batch::by_entry;
use super::batch_queue::BatchQueue;
use super::call::Deadline;
use super::lease_demand::{Granted, LeaseDemands, Occasion};
use super::pending_call::{BatchedCall, PendingCall};
use crate::Error;
use crate::clock::{Clock, Moment};
use crate::limit::Limit;
use crate::local::LocalState;
use crate::local::leases::{EndedLease, NewLease};
use crate::request::{LeaseId, OwnedRequest, Request, SlottedRequests};
use crate::store::redis::connection::script_call::ScriptCall;
use crate::store::redis::script::command::{BatchEntry, KeyNames, LeaseTerms, ReturnedPermits};
use crate::store::redis::script::redis_key::RedisKeys;
use crate::store::redis::script::reply::{BatchEntryReply, BatchReply, LeaseReply};
use crate::sync::Seed;

/// A request for a renewal, by a call that found the lease nearly used up.
pub(crate) struct Renewal {
    pub(crate) request: OwnedRequest,
    pub(crate) keys: RedisKeys,
}

pub(super) struct Leasing {
    local: LocalState,
    clock: Clock,
    demands: LeaseDemands,
    /// The source of random marks.
    marks: Seed,
    /// Calls that wait for the lease of their counter, in the order of arrival.
    held: RefCell<Vec<HeldCall>>,
}

/// A call that waits for a lease, which a script call in flight requests.
struct HeldCall {
    queue: Rc<BatchQueue>,
    call: Rc<PendingCall>,
}

/// A script call that may lease permits.
#[derive(Clone, Copy)]
struct LeaseCall<'a> {
    request: Request<'a>,
    keys: &'a RedisKeys,
    terms: LeaseTerms,
    /// The time before it was sent.
    sent_at: Moment,
}

impl Leasing {
    pub(super) fn new(local: LocalState, clock: Clock) -> Self {
        Self { local, clock, demands: LeaseDemands::new(), marks: Seed::default(), held: RefCell::default() }
    }

    /// The time of leases.
    pub(super) fn now(&self) -> Moment {
        self.clock.now_with_suspend()
    }

    /// Returns the terms of a script call about a counter. [`complete_terms`](Worker::complete_terms)
    /// has to follow.
    pub(super) fn terms(&self, request: &Request<'_>, slot: u16, occasion: Occasion) -> LeaseTerms {
        let now = self.now();
        let may_lease = || {
            let requests = SlottedRequests { requests: &[*request], slots: &[slot] };
            !self.local.standby.is_consulted(requests) && self.local.leases.is_available(request)
        };
        let (wanted, returned) = self.demands.begin(request, occasion, now, may_lease);
        // Two logs must not have the same mark, so the key is a part of it.
        let new_mark = if wanted > 0 { self.marks.hash_one((request.key, now.micros())) } else { 0 };
        // The high half of a hash is as random as the low one.
        LeaseTerms { wanted, new_mark: u32::try_from(new_mark >> 32).unwrap_or(0), returned }
    }
}

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
}

impl Worker {
    /// Sets the terms of the entries of a batch. `None` if none of its limits has leases. [`end_leases`](Self::end_leases)
    /// has to follow.
    pub(super) fn begin_leases(&self, entries: &mut [BatchEntry], calls: &[BatchedCall]) -> Option<BatchLeases> {
        if entries.iter().all(|entry| entry.lease.is_none()) {
            return None;
        }
        let mut leases = BatchLeases { sent_at: self.leasing.now(), entries: Vec::new() };
        for calls in by_entry(calls) {
            let BatchedCall { entry, call } = &calls[0];
            if let Some(terms) = &mut entries[*entry].lease {
                let occasion = Occasion::Calls(u32::try_from(calls.len()).unwrap_or(u32::MAX));
                *terms = self.leasing.terms(&call.request(), call.keys().first_slot(), occasion);
                leases.entries.push(LeasedEntry { index: *entry, first_call: Rc::clone(call), terms: *terms });
            }
        }
        Some(leases)
    }

    /// Puts the leases of a batch in force, if there is a usable reply. Returns the longest time for which a denial of
    /// each entry may be cached: by its index, if there is one. A batch that was refused has not been applied.
    pub(super) fn end_leases(
        self: &Rc<Self>,
        leases: Option<BatchLeases>,
        reply: Option<&BatchReply>,
        was_refused: bool,
    ) -> Vec<(usize, Duration)> {
        let mut longest_denials = Vec::new();
        let Some(BatchLeases { sent_at, entries }) = leases else { return longest_denials };
        for (position, LeasedEntry { index, first_call, terms }) in entries.into_iter().enumerate() {
            let request = first_call.request();
            let entry = reply.and_then(|reply| reply.entries.get(index)?.as_ref().ok());
            let lease = reply.and_then(|reply| reply.leases.get(position));
            let (Some(entry), Some(lease)) = (entry, lease) else {
                if let (true, Some(returned)) = (was_refused, terms.returned) {
                    let _ = self.leasing.demands.keep(&request, returned);
                }
                self.complete_terms(&request, terms);
                continue;
            };
            if lease.id.is_some() {
                // Another process may give permits back.
                longest_denials.push((index, request.limit.lease_time()));
            }
            let call = LeaseCall { request, keys: first_call.keys(), terms, sent_at };
            self.complete_lease(call, entry, *lease);
        }
        longest_denials
    }

    /// Replies to a call by a lease that arrived while it waited, or lets it wait for the lease that a script call in flight
    /// requests. Returns false if it has to be sent.
    pub(super) fn take_leased(self: &Rc<Self>, queue: &Rc<BatchQueue>, call: &Rc<PendingCall>) -> bool {
        let request = call.request();
        let Some(permits) = self.leasing.local.leases.take(&request, false) else {
            // It waits once: the next lease may be too small as well.
            let waits = self.leasing.demands.is_requested(&request) && !call.has_waited_for_lease.replace(true);
            if waits {
                self.leasing.held.borrow_mut().push(HeldCall { queue: Rc::clone(queue), call: Rc::clone(call) });
            }
            return waits;
        };
        if permits.needs_renewal {
            let request = OwnedRequest::from(&Request { cost: 0, ..request });
            spawn_local(Rc::clone(self).renew(Renewal { request, keys: call.keys().clone() }));
        }
        call.reply(Ok(permits.into_counted()));
        true
    }

    /// Records that a script call with these terms is over. If it requested a lease, the calls that waited for it are put
    /// back into their queue.
    fn complete_terms(self: &Rc<Self>, request: &Request<'_>, terms: LeaseTerms) {
        if terms.wanted == 0 {
            return;
        }
        self.leasing.demands.completed(request);
        let is_of_counter = |held: &mut HeldCall| held.call.request().has_counter_of(request);
        let released: Vec<_> = self.leasing.held.borrow_mut().extract_if(.., is_of_counter).collect();
        let Some(HeldCall { queue, call }) = released.first() else { return };
        // The server may have left the cluster meanwhile.
        let owner = self.topology.connected_owner_of(call.keys().first_slot());
        let queue = owner.map_or_else(|| Rc::clone(queue), |connection| self.queue_of(&connection));
        released.iter().rev().for_each(|held| queue.push_front(Rc::clone(&held.call)));
        self.send_batches(&queue);
    }

    /// Puts the lease of a reply in force, and then continues the calls that waited for it.
    fn complete_lease(self: &Rc<Self>, call: LeaseCall<'_>, entry: &BatchEntryReply, lease: LeaseReply) {
        let LeaseCall { request, terms, .. } = call;
        // A server that leases more than was wanted is broken.
        if (1..=terms.wanted).contains(&lease.permits) {
            self.install_lease(call, entry, lease);
        }
        self.complete_terms(&request, terms);
    }

    fn install_lease(self: &Rc<Self>, call: LeaseCall<'_>, entry: &BatchEntryReply, lease: LeaseReply) {
        let LeaseCall { request, keys, sent_at, .. } = call;
        let Leasing { local, demands, .. } = &self.leasing;
        let LeaseReply { permits, id: Some(id) } = lease else { return };
        let (received_at, slot) = (self.leasing.now(), keys.first_slot());
        // The mirror has all permits before a call can use one.
        let all = [Request { cost: permits, ..request }];
        let Some(mirror_stamp) = local.standby.reconcile_batch(&all[0], slot) else {
            return self.return_permits(&request, keys, ReturnedPermits { permits, id });
        };
        if local.standby.is_consulted(SlottedRequests { requests: &all, slots: &[slot] }) {
            local.standby.refund(&all, mirror_stamp);
            return self.return_permits(&request, keys, ReturnedPermits { permits, id });
        }
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
            mirror_stamp,
            renew_below: 0,
        };
        // The lease that it replaces is ended first, so that its rate is known.
        let replaced = local.leases.end_counter(request.key, request.limit);
        let unused = replaced.as_ref().map_or(0, |ended| ended.unused);
        lease.renew_below = demands.granted(&request, Granted { permits, unused, sent_at, received_at });
        if let Some(ended) = replaced {
            self.settle(&request, keys, &ended);
        }
        match local.leases.install(lease) {
            Ok(Some(ended)) => self.settle(&request, keys, &ended),
            Ok(None) => {}
            Err(unused) => {
                local.standby.settle_lease(&unused);
                return self.return_permits(&request, keys, ReturnedPermits { permits, id });
            }
        }
        let end = Rc::clone(self).end_lease(OwnedRequest::from(&request), keys.clone(), id, ends_at);
        spawn_local(end);
    }

    /// Settles a lease that another one has replaced. Its unused permits go back with the next script call.
    fn settle(self: &Rc<Self>, request: &Request<'_>, keys: &RedisKeys, ended: &EndedLease) {
        self.leasing.local.standby.settle_lease(ended);
        if ended.unused > 0 {
            let returned = ReturnedPermits { permits: ended.unused, id: ended.id };
            if let Err(returned) = self.leasing.demands.keep(request, returned) {
                self.return_permits(request, keys, returned);
            }
        }
    }

    /// Ends a lease when its time has passed, and returns what is left of it.
    async fn end_lease(self: Rc<Self>, request: OwnedRequest, keys: RedisKeys, id: LeaseId, ends_at: Moment) {
        let Leasing { local, clock, demands, .. } = &self.leasing;
        let wait = self.leasing.now().until(ends_at);
        match clock {
            Clock::System => sleep(wait).await,
            #[cfg(feature = "test-util")]
            Clock::Manual(_) => drop(clock.sleep(wait).await),
        }
        let request = request.as_request();
        let returned = match local.leases.end(&request, id) {
            Some(ended) => {
                local.standby.settle_lease(&ended);
                if ended.unused > 0 {
                    demands.was_too_large(&request);
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
        self.exchange(request, keys, terms, deadline).await.map(drop)
    }

    /// Serves requests for renewals until all senders are dropped.
    pub(super) async fn serve_renewals(self: Rc<Self>, mut renewals: UnboundedReceiver<Renewal>) {
        while let Some(renewal) = renewals.recv().await {
            spawn_local(Rc::clone(&self).renew(renewal));
        }
    }

    /// Renews a lease by a script call of its own.
    async fn renew(self: Rc<Self>, renewal: Renewal) {
        let Renewal { request, keys } = renewal;
        let request = request.as_request();
        if self.topology.connected_owner_of(keys.first_slot()).is_none() {
            return;
        }
        let terms = self.leasing.terms(&request, keys.first_slot(), Occasion::Renewal);
        if terms == LeaseTerms::default() {
            // It is being renewed.
            return;
        }
        let sent_at = self.leasing.now();
        match self.exchange(&request, &keys, terms, Deadline::after(self.context.deadline)).await {
            Ok((entry, lease)) => {
                self.complete_lease(LeaseCall { request, keys: &keys, terms, sent_at }, &entry, lease);
            }
            Err(_) => self.complete_terms(&request, terms),
        }
    }

    /// Makes one script call about the leases of a counter, which takes no permits for a call.
    async fn exchange(
        &self,
        request: &Request<'_>,
        keys: &RedisKeys,
        terms: LeaseTerms,
        deadline: Deadline,
    ) -> Result<(BatchEntryReply, LeaseReply), Error> {
        let mut names = KeyNames::default();
        names.push_with(|text| keys.write_name(request, &self.naming, text));
        let entry = BatchEntry { limit: request.limit, cost: 0, calls: 1, lease: Some(terms) };
        let command = self.commands.batch(names, &[entry]);
        let script_call = ScriptCall::new(&self.context, &self.topology, None);
        let Ok(reply) = timeout_at(deadline.instant, script_call.run(&command, keys.first_slot())).await else {
            script_call.attempt().report_timeout();
            return Err(deadline.no_reply_error());
        };
        let mut reply = command.decode_batch(reply?)?;
        match (reply.entries.pop(), reply.leases.pop()) {
            (Some(entry), Some(lease)) => {
                Ok((entry.inspect_err(|error| script_call.attempt().report_error(error))?, lease))
            }
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
