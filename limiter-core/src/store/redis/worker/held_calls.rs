//! Calls that wait for a lease, which a script call in flight requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::batch_queue::BatchQueue;
use super::lease_demand::CounterTag;
use super::pending_call::PendingCall;
use crate::sync::Seed;

/// The calls of each counter that wait for its lease, in the order of arrival.
#[derive(Default)]
pub(super) struct HeldCalls {
    by_counter: RefCell<HashMap<CounterTag, Vec<HeldCall>, Seed>>,
}

/// A call that waits for a lease, and the queue from which it was taken.
pub(super) struct HeldCall {
    pub(super) queue: Rc<BatchQueue>,
    pub(super) call: Rc<PendingCall>,
}

impl HeldCalls {
    pub(super) fn add(&self, counter: CounterTag, call: HeldCall) {
        self.by_counter.borrow_mut().entry(counter).or_default().push(call);
    }

    /// Removes the calls of a counter, and returns them in the order of arrival.
    pub(super) fn release(&self, counter: CounterTag) -> Vec<HeldCall> {
        self.by_counter.borrow_mut().remove(&counter).unwrap_or_default()
    }
}
