//! A call that waits for its reply, in a queue or in a batch.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::call::{Call, CallResult, Deadline};
use crate::local::counter_hash::CounterHash;
use crate::local::sent::batch::{Reserved, WaitingCall};
use crate::request::{OwnedRequest, Request, StoreReply};
use crate::store::redis::connection::in_flight_batches::{InFlightBatches, InFlightPermit};
use crate::store::redis::connection::managed::{Attempt, ManagedConnection};
use crate::store::redis::connection::round_trip::Length;
use crate::store::redis::naming::{RedisKey, RedisKeys};
use crate::store::redis::script::action::Action;
use crate::store::redis::worker::late_replies::LateReplies;
use crate::store::redis::worker::send_margin::SendMargin;

/// A call that takes permits of one counter. It gets one reply: that of its batch, or a timeout at its deadline.
pub(crate) struct PendingCall {
    /// One request.
    requests: Arc<[OwnedRequest]>,
    counter: CounterHash,
    keys: RedisKeys,
    pub(crate) action: Action,
    /// It has left its queue once, to wait for a script call of another call.
    pub(crate) was_held: Cell<bool>,
    pub(crate) deadline: Deadline,
    reply_to: RefCell<Option<oneshot::Sender<CallResult>>>,
    /// Permits that the standby limiter has reserved for it.
    reservation: Cell<Option<StoreReply>>,
    /// The connection of its queue.
    connection: Weak<ManagedConnection>,
    /// Its attempt, once it is sent.
    attempt: RefCell<Option<Rc<Attempt>>>,
}

/// A call in a batch.
pub(crate) type BatchedCall = Reserved<PendingCall>;

impl PendingCall {
    pub(crate) fn new(call: Call, connection: Weak<ManagedConnection>) -> Rc<Self> {
        let Call { action, requests, counter, keys, deadline, reply_to, .. } = call;
        Rc::new(Self {
            requests,
            counter,
            keys,
            action,
            was_held: Cell::default(),
            deadline,
            reply_to: RefCell::new(Some(reply_to)),
            reservation: Cell::default(),
            connection,
            attempt: RefCell::default(),
        })
    }

    pub(crate) fn keys(&self) -> &RedisKeys {
        &self.keys
    }

    /// The key of its request.
    pub(crate) fn key(&self) -> &RedisKey {
        &self.keys.as_slice()[0]
    }

    /// Returns whether its caller still waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.reply_to.borrow().as_ref().is_some_and(|reply_to| !reply_to.is_closed())
    }

    pub(crate) fn was_sent(&self) -> bool {
        self.attempt.borrow().is_some()
    }

    pub(crate) fn set_sent(&self, attempt: &Rc<Attempt>) {
        self.attempt.replace(Some(Rc::clone(attempt)));
    }

    /// Reports its timeout to the connection that it waits for.
    pub(crate) fn report_timeout(&self) {
        match &*self.attempt.borrow() {
            Some(attempt) => attempt.report_timeout(),
            // It waited for other calls, whose deadlines may be much later.
            None => {
                if let Some(connection) = self.connection.upgrade() {
                    connection.probe();
                }
            }
        }
    }
}

impl WaitingCall for PendingCall {
    fn request(&self) -> Request<'_> {
        self.requests[0].as_request()
    }

    fn counter(&self) -> CounterHash {
        self.counter
    }

    fn slot(&self) -> u16 {
        self.keys.first_slot()
    }

    fn is_charge(&self) -> bool {
        self.action.is_charge()
    }

    fn reservation(&self) -> &Cell<Option<StoreReply>> {
        &self.reservation
    }

    fn has_reply(&self) -> bool {
        self.reply_to.borrow().is_none()
    }

    fn reply(&self, result: CallResult) {
        if let Some(reply_to) = self.reply_to.take() {
            let _ = reply_to.send(result);
        }
    }
}

// The queue of calls for one server. While batches are in flight, calls collect here for the next batch.

pub(crate) struct BatchQueue {
    connection: Weak<ManagedConnection>,
    calls: RefCell<VecDeque<Rc<PendingCall>>>,
    in_flight: Rc<InFlightBatches>,
    /// The batches of one call since the last larger one.
    lone_calls: Cell<u32>,
    late_replies: LateReplies,
    margin: SendMargin,
}

/// Calls that have come one at a time before a caller may write to the connection.
const MIN_LONE_CALLS: u32 = 16;

impl BatchQueue {
    pub(crate) fn new(connection: &Rc<ManagedConnection>) -> Self {
        Self {
            connection: Rc::downgrade(connection),
            calls: RefCell::default(),
            in_flight: Rc::default(),
            lone_calls: Cell::default(),
            late_replies: LateReplies::default(),
            margin: SendMargin::default(),
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

    /// Takes the permit of the next batch, if calls wait and it may be sent now.
    pub(crate) fn next_permit(&self) -> Option<InFlightPermit> {
        if self.is_empty() { None } else { self.try_acquire() }
    }

    /// Takes a permit for a batch, if one is free.
    pub(crate) fn try_acquire(&self) -> Option<InFlightPermit> {
        self.in_flight.try_acquire(self.calls.borrow().len(), || {
            self.connection.upgrade().map_or(Length::Short, |connection| connection.round_trip_length())
        })
    }

    /// Counts a batch of so many calls whose reply has come, or has not come in time.
    pub(crate) fn count_batch(&self, calls: usize) {
        let is_lone = calls == 1 && self.is_empty();
        self.lone_calls.set(if is_lone { self.lone_calls.get().saturating_add(1) } else { 0 });
    }

    /// Lends the write half of the server's connection to callers, if calls have come one at a time for a while and the
    /// connection is idle. Calls that come together are cheaper for the server in a batch.
    pub(crate) fn lend_if_idle(&self) {
        if self.lone_calls.get() >= MIN_LONE_CALLS
            && let Some(connection) = self.connection.upgrade().and_then(|server| server.current())
            && let Some(loan) = connection.write_loan()
        {
            loan.lend(connection.digests());
        }
    }

    /// Returns whether a call has too little time left to be sent now.
    pub(crate) fn is_too_late(&self, call: &PendingCall, now: Instant) -> bool {
        self.margin.has_passed(call.deadline, now)
    }

    /// The entries that may be sent at a time.
    pub(crate) fn most_entries(&self) -> usize {
        self.margin.most_entries()
    }

    /// Records the reply to a batch that was sent to the queue's own server at this time, if it was, and whose oldest call has this deadline. It came
    /// at that time; `None` if it did not come in time.
    pub(crate) fn record_reply(
        &self,
        deadline: Deadline,
        sent_at: Option<Instant>,
        replied_at: Option<Instant>,
        has_waiting_calls: bool,
    ) {
        if let Some(sent_at) = sent_at {
            self.margin.record(deadline, sent_at, replied_at, has_waiting_calls);
        }
        if let Some(connection) = self.connection.upgrade() {
            self.late_replies.record(deadline, replied_at, &connection);
        }
    }

    /// Takes the first call.
    pub(crate) fn pop(&self) -> Option<Rc<PendingCall>> {
        self.calls.borrow_mut().pop_front()
    }

    /// Waits until a permit is released for which calls wait, or [`wake`](Self::wake) is called.
    pub(crate) async fn permit_released(&self) {
        self.in_flight.released().await;
    }
}
