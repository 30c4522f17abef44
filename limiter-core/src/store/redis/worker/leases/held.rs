//! Calls that wait for a lease, which a script call in flight requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem;
use std::rc::Rc;

use super::Keeper;
use super::demand::CounterTag;
use crate::local::counter_hash::CounterHash;
use crate::local::sent::batch::WaitingCall;
use crate::request::{OwnedRequest, Request};
use crate::store::redis::worker::pending_call::{BatchQueue, PendingCall};
use crate::sync::Seed;

/// A request for a lease in a script call, until the lease is in force or the call has failed.
///
/// Dropping it closes it: its task may panic, or the runtime may drop the task.
pub(super) struct LeaseRequest {
    keeper: Rc<Keeper>,
    counter: CounterHash,
    request: OwnedRequest,
}

/// The calls that wait for the leases of their counters, in the order of arrival, by the hash of the counter.
#[derive(Default)]
pub(super) struct HeldCalls {
    by_hash: RefCell<HashMap<CounterHash, Vec<HeldCall>, Seed>>,
}

/// A call that waits for a lease, and the queue from which it was taken.
pub(crate) struct HeldCall {
    pub(crate) queue: Rc<BatchQueue>,
    pub(crate) call: Rc<PendingCall>,
}

/// The calls that have waited for a lease, in the order of arrival. They are to be sent.
///
/// Dropping it only puts them back into their queues, and wakes the tasks that send them.
#[derive(Default)]
pub(crate) struct ReleasedCalls(Vec<HeldCall>);

impl Keeper {
    /// Lets a call wait for the lease of its counter, if one is requested. Returns false if none is, or if the call has
    /// waited before: the next lease may be too small as well.
    pub(super) fn hold(&self, held: HeldCall) -> bool {
        let counter = CounterTag::new(&held.call.request(), held.call.counter());
        let waits = self.demands.is_requested(counter) && !held.call.was_held.replace(true);
        if waits {
            self.held.add(held);
        }
        waits
    }
}

impl LeaseRequest {
    pub(super) fn new(keeper: &Rc<Keeper>, request: &Request<'_>, counter: CounterHash) -> Self {
        Self { keeper: Rc::clone(keeper), counter, request: OwnedRequest::from(request) }
    }

    /// Closes the request. Returns the calls that wait for the lease.
    pub(super) fn close(self) -> ReleasedCalls {
        self.end()
    }

    fn end(&self) -> ReleasedCalls {
        let request = self.request.as_request();
        let counter = CounterTag::new(&request, self.counter);
        self.keeper.demands.completed(counter);
        ReleasedCalls(self.keeper.held.release(counter))
    }
}

impl Drop for LeaseRequest {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl ReleasedCalls {
    /// Adds calls that have come later.
    pub(super) fn add(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the calls, for a caller that sends them at once.
    pub(crate) fn take(mut self) -> Vec<HeldCall> {
        mem::take(&mut self.0)
    }
}

impl Drop for ReleasedCalls {
    fn drop(&mut self) {
        for HeldCall { queue, call } in self.0.drain(..).rev() {
            queue.push_front(call);
            queue.wake();
        }
    }
}

impl HeldCalls {
    fn add(&self, held: HeldCall) {
        self.by_hash.borrow_mut().entry(held.call.counter()).or_default().push(held);
    }

    /// Removes the calls of a counter, and returns them in the order of arrival.
    fn release(&self, counter: CounterTag<'_>) -> Vec<HeldCall> {
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
