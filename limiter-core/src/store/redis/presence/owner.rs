//! The server of the heartbeats: the owner of their slot.

use std::rc::Rc;

use redis::{Cmd, Value};

use crate::Error;
use crate::store::redis::command_error::{CommandError, Redirect};
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::connection::server_connection::ServerConnection;
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

    /// Sends a command to the owner of the slot. Waits only for the first attempt to connect.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Error> {
        let owner = self.topology.owner_of(self.slot).await?;
        Ok(self.send_from(owner, command, ReplyBound::Long).await?)
    }

    /// Sends a command to a node, and on to the nodes that redirects name.
    pub(super) async fn send_from(
        &self,
        mut node: Rc<ManagedConnection>,
        command: &Cmd,
        bound: ReplyBound,
    ) -> Result<Value, SendError> {
        let (mut is_asking, mut redirects) = (false, 0);
        loop {
            let connection = node.connected().await.map_err(SendError::NotSent)?;
            let sent = match is_asking {
                true => connection.send_asking(command, bound).await,
                false => connection.send_within(command, bound).await,
            };
            let error = match sent {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            redirects += 1;
            let redirect = error.redirect().filter(|_| self.topology.is_cluster() && redirects <= MAX_REDIRECTS);
            is_asking = matches!(redirect, Some(Redirect::Ask { .. }));
            // After TRYAGAIN there is no other node.
            match redirect.and_then(|redirect| self.topology.follow_redirect(redirect, &node)) {
                Some(other) => node = other,
                None => return Err(SendError::Command(error, connection)),
            }
        }
    }
}
