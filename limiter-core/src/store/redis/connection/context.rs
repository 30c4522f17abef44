//! The state that all connections of one worker share.

use std::time::Duration;

use tokio::sync::Notify;

use crate::local::LocalState;

/// The scripts, the deadline and the local state of one worker.
pub(crate) struct ConnectionContext {
    pub(crate) scripts: [String; 2],
    /// A server that has been away has to answer within it.
    pub(crate) deadline: Duration,
    pub(crate) local: LocalState,
    /// Notified when a server is lost.
    pub(crate) lost: Notify,
}

impl ConnectionContext {
    pub(crate) fn new(scripts: [String; 2], deadline: Duration, local: LocalState) -> Self {
        Self { scripts, deadline, local, lost: Notify::new() }
    }
}
