//! The queue of calls for one server. While batches are in flight, calls collect here for the next batch.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use super::call::Call;
use super::pending_call::PendingCall;
use crate::store::redis::connection::in_flight_batches::{InFlightBatches, InFlightPermit};
use crate::store::redis::connection::managed::ManagedConnection;

pub(crate) struct BatchQueue {
    connection: Weak<ManagedConnection>,
    calls: RefCell<VecDeque<Rc<PendingCall>>>,
    in_flight: Rc<InFlightBatches>,
}

impl BatchQueue {
    pub(crate) fn new(connection: &Rc<ManagedConnection>) -> Self {
        Self { connection: Rc::downgrade(connection), calls: RefCell::default(), in_flight: Rc::default() }
    }

    /// Returns whether it is the queue of this connection.
    pub(crate) fn is_of(&self, connection: &Rc<ManagedConnection>) -> bool {
        self.connection.as_ptr() == Rc::as_ptr(connection)
    }

    /// Returns whether the server has left the cluster.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.connection.strong_count() == 0
    }

    /// Adds a call. Returns it, for its deadline.
    pub(crate) fn push(&self, call: Call) -> Rc<PendingCall> {
        let call = PendingCall::new(call, self.connection.clone());
        self.calls.borrow_mut().push_back(Rc::clone(&call));
        call
    }

    /// Adds a call in front of all others. It was in a queue before.
    pub(crate) fn push_front(&self, call: Rc<PendingCall>) {
        self.calls.borrow_mut().push_front(call);
    }

    /// Wakes the task that sends batches.
    pub(crate) fn wake(&self) {
        self.in_flight.wake();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.borrow().is_empty()
    }

    /// Takes the permit of the next batch, if calls wait and it may be sent now. A batch is never delayed to fill.
    pub(crate) fn next_permit(&self) -> Option<InFlightPermit> {
        if self.is_empty() { None } else { self.in_flight.try_acquire() }
    }

    /// Takes the first call.
    pub(crate) fn pop(&self) -> Option<Rc<PendingCall>> {
        self.calls.borrow_mut().pop_front()
    }

    /// Waits until a permit is released, or [`wake`](Self::wake) is called.
    pub(crate) async fn permit_released(&self) {
        self.in_flight.released().await;
    }
}
