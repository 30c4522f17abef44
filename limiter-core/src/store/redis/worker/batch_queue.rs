//! The queue of calls for one server. While batches are in flight, calls collect here for the next batch.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use super::attempts::Attempts;
use super::pending_call::PendingCall;
use crate::store::redis::connection::in_flight_batches::{InFlightBatches, InFlightPermit};
use crate::store::redis::connection::managed::ManagedConnection;

pub(crate) struct BatchQueue {
    connection: Weak<ManagedConnection>,
    calls: RefCell<VecDeque<Rc<PendingCall>>>,
    in_flight: Rc<InFlightBatches>,
    attempts: Rc<Attempts>,
}

/// Calls that are taken from the queue for one batch.
const MAX_BATCH_CALLS: usize = 1024;

impl BatchQueue {
    pub(crate) fn new(connection: &Rc<ManagedConnection>) -> Self {
        Self {
            connection: Rc::downgrade(connection),
            calls: RefCell::default(),
            in_flight: Rc::default(),
            attempts: Rc::default(),
        }
    }

    /// Returns whether it is the queue of this connection.
    pub(crate) fn is_of(&self, connection: &Rc<ManagedConnection>) -> bool {
        self.connection.as_ptr() == Rc::as_ptr(connection)
    }

    /// Returns whether the server has left the cluster.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.connection.strong_count() == 0
    }

    /// Script calls in flight to the server.
    pub(crate) fn attempts(&self) -> &Rc<Attempts> {
        &self.attempts
    }

    pub(crate) fn push(&self, call: Rc<PendingCall>) {
        self.calls.borrow_mut().push_back(call);
        self.in_flight.wake();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.borrow().is_empty()
    }

    /// Takes the calls of the next batch, if one may be sent now. A batch is never delayed to fill.
    pub(crate) fn next_calls(&self) -> Option<Vec<Rc<PendingCall>>> {
        let mut queue = self.calls.borrow_mut();
        if queue.is_empty() || !self.in_flight.has_permit() {
            return None;
        }
        let calls = queue.len().min(MAX_BATCH_CALLS);
        Some(queue.drain(..calls).collect())
    }

    /// Puts calls back that found no room in the batch. They are the first of the next one.
    pub(crate) fn put_back(&self, calls: Vec<Rc<PendingCall>>) {
        let mut queue = self.calls.borrow_mut();
        calls.into_iter().rev().for_each(|call| queue.push_front(call));
    }

    /// Takes the permit for a batch with so many calls.
    pub(crate) fn acquire_permit(&self, calls: usize) -> InFlightPermit {
        self.in_flight.acquire(calls)
    }

    /// Waits until a call is pushed or a permit is released.
    pub(crate) async fn changed(&self) {
        self.in_flight.changed().await;
    }
}
