//! The connection that a script call waits on.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::Instant;

use super::server_connection::ServerConnection;
use crate::Error;

/// The latest attempt of one script call: its connection, and the time at which it was sent.
///
/// Calls report here that their deadlines have passed. So they need not know the script call.
pub(crate) struct Attempt {
    latest: RefCell<Option<(ServerConnection, Instant)>>,
    /// The limiter's own deadline.
    deadline: Duration,
}

impl Attempt {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self { latest: RefCell::default(), deadline }
    }

    /// Records that the call is sent on this connection now.
    pub(crate) fn sent_on(&self, connection: &ServerConnection) {
        self.latest.replace(Some((connection.clone(), Instant::now())));
    }

    /// Records the time of the reply that has just come, if it has.
    pub(crate) fn record_reply(&self) {
        if let Some((connection, sent_at)) = &*self.latest.borrow() {
            connection.record_reply_since(*sent_at);
        }
    }

    /// The time of the latest reply on its connection.
    pub(crate) fn replied_at(&self) -> Option<Instant> {
        self.latest.borrow().as_ref().map(|(connection, _)| connection.last_reply_at())
    }

    /// Reports that there was no reply within a call's deadline.
    pub(crate) fn report_timeout(&self) {
        if let Some((connection, sent_at)) = &*self.latest.borrow() {
            if sent_at.elapsed() >= self.deadline / 2 {
                connection.check_liveness(*sent_at);
            } else {
                // A short wait shows how busy this thread is, or how short the call's own deadline.
                connection.probe_within(self.deadline);
            }
        }
    }

    /// Reports that the reply was an error.
    pub(crate) fn report_error(&self, error: &Error) {
        if let Some((connection, _)) = &*self.latest.borrow() {
            connection.report_error(error);
        }
    }
}
