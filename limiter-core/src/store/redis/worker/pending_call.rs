//! A call that waits for its reply, in a queue or in a batch.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::call::{Call, CallResult, Deadline};
use crate::Error;
use crate::request::{DecisionReply, OwnedRequest, Request, StoreFailure, StoreReply};
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::connection::script_call::Attempt;
use crate::store::redis::naming::RedisKeys;

/// A call that takes permits of one counter. It gets one reply: that of its batch, or a timeout at its deadline.
pub(crate) struct PendingCall {
    /// One request.
    requests: Arc<[OwnedRequest]>,
    keys: RedisKeys,
    /// Its permits may come from a lease.
    pub(crate) takes_leases: bool,
    pub(crate) has_waited_for_lease: Cell<bool>,
    pub(crate) deadline: Deadline,
    reply_to: RefCell<Option<oneshot::Sender<CallResult>>>,
    /// Permits that the standby limiter has reserved for it.
    pub(crate) reservation: Cell<Option<StoreReply>>,
    /// The connection of its queue.
    connection: Weak<ManagedConnection>,
    /// Its attempt, once it is sent.
    attempt: RefCell<Option<Rc<Attempt>>>,
}

/// A call in a batch, with the index of its entry.
pub(crate) struct BatchedCall {
    pub(crate) entry: usize,
    pub(crate) call: Rc<PendingCall>,
}

/// The calls of each entry.
pub(super) fn by_entry(calls: &[BatchedCall]) -> impl Iterator<Item = &[BatchedCall]> {
    calls.chunk_by(|one, other| one.entry == other.entry)
}

impl PendingCall {
    pub(crate) fn new(call: Call, connection: Weak<ManagedConnection>) -> Rc<Self> {
        let takes_leases = call.takes_leases();
        let Call { requests, keys, deadline, reply_to, .. } = call;
        Rc::new(Self {
            requests,
            keys,
            takes_leases,
            has_waited_for_lease: Cell::default(),
            deadline,
            reply_to: RefCell::new(Some(reply_to)),
            reservation: Cell::default(),
            connection,
            attempt: RefCell::default(),
        })
    }

    pub(crate) fn request(&self) -> Request<'_> {
        self.requests[0].as_request()
    }

    pub(crate) fn keys(&self) -> &RedisKeys {
        &self.keys
    }

    pub(crate) fn has_reply(&self) -> bool {
        self.reply_to.borrow().is_none()
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

    /// Replies to the caller, unless it has a reply already or was dropped.
    pub(crate) fn reply(&self, result: CallResult) {
        if let Some(reply_to) = self.reply_to.take() {
            let _ = reply_to.send(result);
        }
    }

    pub(crate) fn fail(&self, error: Error) {
        self.reply(Err(StoreFailure { error, reservation: self.reservation.get().map(DecisionReply::from) }));
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
