//! The server of the heartbeats: the owner of their slot.

use std::rc::Rc;

use redis::{Cmd, Value};

use crate::Error;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::connection::server_connection::ServerConnection;
use crate::store::redis::connection::slot_owner::{NextNode, SlotOwner};
use crate::store::redis::connection::topology::Topology;
use crate::store::redis::naming::{LiveKeys, Naming};
use crate::store::redis::pipelined::ReplyBound;

/// The redirects that a command follows. It is sent without a pause, and given up afterwards.
const MAX_REDIRECTS: usize = 3;

/// Sends commands about heartbeats.
pub(super) struct LiveServer {
    topology: Rc<Topology>,
    pub(super) keys: LiveKeys,
    slot: u16,
}

/// The reason why a command has no reply of use.
pub(super) enum SendError {
    /// The error of the server or of the connection, with that connection.
    Command(CommandError, ServerConnection),
    /// A server is not connected.
    NotSent(Error),
}

impl From<SendError> for Error {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Command(error, _) => error.into(),
            SendError::NotSent(error) => error,
        }
    }
}

impl LiveServer {
    pub(super) fn new(topology: Rc<Topology>, naming: &Naming) -> Self {
        let keys = naming.live_keys();
        let slot = naming.slot(keys.counts().as_bytes());
        Self { topology, keys, slot }
    }

    /// The owner of the slot, if it is connected.
    pub(super) fn connected(&self) -> Option<(Rc<ManagedConnection>, ServerConnection)> {
        let owner = self.topology.connected_owner_of(self.slot)?;
        let connection = owner.current()?;
        Some((owner, connection))
    }

    /// Returns the owner of the slot. Waits only for the first attempt to connect.
    pub(super) async fn owner(&self) -> Result<Rc<ManagedConnection>, Error> {
        self.topology.owner_of(self.slot).await
    }

    /// Sends a command to the owner of the slot. Waits only for the first attempt to connect.
    pub(super) async fn send(&self, command: &Cmd, bound: ReplyBound) -> Result<Value, Error> {
        Ok(self.send_from(self.owner().await?, command, bound).await?)
    }

    /// Sends a command to a node, and on to the nodes that redirects name.
    pub(super) async fn send_from(
        &self,
        node: Rc<ManagedConnection>,
        command: &Cmd,
        bound: ReplyBound,
    ) -> Result<Value, SendError> {
        let mut owner = SlotOwner::from_node(&self.topology, node);
        loop {
            let connection = owner.connected().await.map_err(SendError::NotSent)?;
            let error = match owner.send(&connection, command, bound).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            // A command that is to be tried again is not.
            if owner.redirects() >= MAX_REDIRECTS || !matches!(owner.follow(&error), NextNode::Redirected) {
                return Err(SendError::Command(error, connection));
            }
        }
    }
}
