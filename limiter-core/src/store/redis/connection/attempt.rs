//! The connection that a script call waits on.

use std::cell::RefCell;
use std::time::Duration;

use super::server_connection::ServerConnection;
use crate::Error;

/// The latest attempt of one script call, with its connection.
///
/// Calls report here that their deadlines have passed. So they need not know the script call.
pub(crate) struct Attempt {
    connection: RefCell<Option<ServerConnection>>,
    /// The limiter's own deadline.
    deadline: Duration,
}

impl Attempt {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self { connection: RefCell::default(), deadline }
    }

    /// Records that the call is sent on this connection now.
    pub(crate) fn sent_on(&self, connection: &ServerConnection) {
        self.connection.replace(Some(connection.clone()));
    }

    /// Returns whether the call was sent at all.
    pub(crate) fn was_sent(&self) -> bool {
        self.connection.borrow().is_some()
    }

    /// Reports that there was no reply within a call's deadline.
    ///
    /// The call's own deadline may be short, and this thread busy. So the server gets the limiter's deadline to reply.
    pub(crate) fn report_timeout(&self) {
        if let Some(connection) = &*self.connection.borrow() {
            connection.check_liveness(self.deadline);
        }
    }

    /// Reports that the reply was an error.
    pub(crate) fn report_error(&self, error: &Error) {
        if let Some(connection) = &*self.connection.borrow() {
            connection.report_error(error);
        }
    }
}
