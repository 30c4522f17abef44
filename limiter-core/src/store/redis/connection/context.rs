//! The state that all connections of one worker share.

use std::time::Duration;

use tokio::sync::Notify;

use crate::local::LocalState;

/// The scripts, the deadline and the local state of one worker.
pub(crate) struct ConnectionContext {
    pub(crate) scripts: [String; 2],
    /// The limiter's own deadline. A server that comes back must reply within it.
    pub(crate) deadline: Duration,
    pub(crate) local: LocalState,
    /// Notified when a connection is lost or the map of slots is out of date.
    pub(crate) topology_changed: Notify,
}

impl ConnectionContext {
    pub(crate) fn new(scripts: [String; 2], deadline: Duration, local: LocalState) -> Self {
        Self { scripts, deadline, local, topology_changed: Notify::new() }
    }
}
