//! The state that all connections of one worker share.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;

use super::write_probe::WriteProbe;
use crate::local::LocalState;
use crate::store::redis::health::StoreHealth;

/// The scripts, the deadline and the local state of one worker.
pub(crate) struct ConnectionContext {
    pub(crate) scripts: [String; 2],
    /// The limiter's own deadline. A server that comes back must reply within it.
    pub(crate) deadline: Duration,
    pub(crate) local: LocalState,
    pub(crate) health: Rc<StoreHealth>,
    pub(crate) write_probe: WriteProbe,
    /// Notified when a connection is lost or the map of slots is out of date.
    pub(crate) topology_changed: Notify,
}

impl ConnectionContext {
    pub(crate) fn new(
        scripts: [String; 2],
        deadline: Duration,
        local: LocalState,
        health: Rc<StoreHealth>,
        write_probe: WriteProbe,
    ) -> Self {
        Self { scripts, deadline, local, health, write_probe, topology_changed: Notify::new() }
    }
}
