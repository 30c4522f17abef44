//! Leases on the worker's side: when a script call requests one, and which permits it returns.
//!
//! A lease is requested in a script call that calls make anyway, or in a call of its own when the lease in force is
//! nearly used up. While a request is open, no other script call requests a lease of the same counter. Calls of
//! it that have come to the worker wait for the lease, once each; a cached denial denies others before.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::lease_demand::{CounterTag, LeaseDemands, Occasion};
use crate::clock::{Clock, Moment};
use crate::local::Local;
use crate::local::counter_hash::CounterHash;
use crate::local::sent::batch::WaitingCall;
use crate::request::{OwnedRequest, Request};
use crate::store::redis::connection::topology::Topology;
use crate::store::redis::script::command::LeaseTerms;
use crate::store::redis::worker::pending_call::{BatchQueue, PendingCall};
use crate::sync::Seed;

/// The state that a worker has of its leases, beside those in force.
pub(super) struct Leasing {
    pub(super) local: Arc<Local>,
    pub(super) clock: Clock,
    pub(super) demands: LeaseDemands,
    topology: Rc<Topology>,
    /// The source of random marks.
    marks: Seed,
    held: HeldCalls,
}

/// A request for a lease in a script call, until the lease is in force or the call has failed.
///
/// Dropping it closes it: its task may panic, or the runtime may drop the task. The destructor only puts the calls that
/// wait for the lease back into their queues, and wakes the tasks that send them.
pub(super) struct LeaseRequest {
    leasing: Rc<Leasing>,
    counter: CounterHash,
    request: OwnedRequest,
}

impl Leasing {
    pub(super) fn new(local: Arc<Local>, clock: Clock, topology: &Rc<Topology>) -> Rc<Self> {
        let (demands, marks, held) = (LeaseDemands::new(), Seed::default(), HeldCalls::default());
        Rc::new(Self { local, clock, demands, topology: Rc::clone(topology), marks, held })
    }

    /// The time of leases.
    pub(super) fn now(&self) -> Moment {
        self.clock.now_with_suspend()
    }

    /// Waits until an instant of the clock that [`now`](Self::now) reads.
    pub(super) async fn sleep_until(&self, instant: Moment) {
        let wait = self.now().until(instant);
        match &self.clock {
            Clock::System => sleep(wait).await,
            #[cfg(feature = "test-util")]
            clock @ Clock::Manual(_) => drop(clock.sleep(wait).await),
        }
    }

    /// Returns the terms of a script call about a counter, and its request for a lease, if it has one.
    pub(super) fn terms(
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
        let counter = CounterTag::new(request, hash);
        let (wanted, returned) = self.demands.begin(counter, occasion, now, may_lease);
        let open = (wanted > 0).then(|| {
            let request = OwnedRequest::from(request);
            LeaseRequest { leasing: Rc::clone(self), counter: hash, request }
        });
        // Two logs must not have the same mark, so the key is a part of it.
        let new_mark = if wanted > 0 { self.marks.hash_one((request.key, now.micros())) } else { 0 };
        // The high half of a hash is as random as the low one.
        (LeaseTerms { wanted, new_mark: u32::try_from(new_mark >> 32).unwrap_or(0), returned }, open)
    }

    /// The round trip to the owner of a slot: a lease is in force for the rest of its time only. Zero if it is not
    /// connected.
    fn round_trip(&self, slot: u16) -> Duration {
        self.topology.connected_owner_of(slot).map_or(Duration::ZERO, |owner| owner.round_trip())
    }

    /// Lets a call wait for the lease of its counter, if one is requested. Returns false if none is, or if the call has
    /// waited before: the next lease may be too small as well.
    pub(super) fn hold(&self, held: HeldCall) -> bool {
        let counter = CounterTag::new(&held.call.request(), held.call.counter());
        let waits = self.demands.is_requested(counter) && !held.call.has_waited_for_lease.replace(true);
        if waits {
            self.held.add(held);
        }
        waits
    }
}

impl LeaseRequest {
    /// Closes the request. Returns the calls that wait for the lease, in the order of arrival.
    pub(super) fn close(self) -> Vec<HeldCall> {
        self.end()
    }

    fn end(&self) -> Vec<HeldCall> {
        let request = self.request.as_request();
        let counter = CounterTag::new(&request, self.counter);
        self.leasing.demands.completed(counter);
        self.leasing.held.release(counter)
    }
}

impl Drop for LeaseRequest {
    fn drop(&mut self) {
        for HeldCall { queue, call } in self.end().into_iter().rev() {
            queue.push_front(call);
            queue.wake();
        }
    }
}

// Calls that wait for a lease, which a script call in flight requests.

/// The calls that wait for the leases of their counters, in the order of arrival, by the hash of the counter.
#[derive(Default)]
pub(super) struct HeldCalls {
    by_hash: RefCell<HashMap<CounterHash, Vec<HeldCall>, Seed>>,
}

/// A call that waits for a lease, and the queue from which it was taken.
pub(super) struct HeldCall {
    pub(super) queue: Rc<BatchQueue>,
    pub(super) call: Rc<PendingCall>,
}

impl HeldCalls {
    pub(super) fn add(&self, held: HeldCall) {
        self.by_hash.borrow_mut().entry(held.call.counter()).or_default().push(held);
    }

    /// Removes the calls of a counter, and returns them in the order of arrival.
    pub(super) fn release(&self, counter: CounterTag<'_>) -> Vec<HeldCall> {
        let (hash, mut by_hash) = (counter.hash(), self.by_hash.borrow_mut());
        let held = by_hash.remove(&hash).unwrap_or_default();
        let is_of = |held: &HeldCall| counter.is_of(&held.call.request());
        if held.iter().all(is_of) {
            return held;
        }
        let (released, others) = held.into_iter().partition(is_of);
        by_hash.insert(hash, others);
        released
    }
}
