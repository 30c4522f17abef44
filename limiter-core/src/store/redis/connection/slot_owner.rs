//! The node that a plain command about a slot goes to: the owner of the slot, and on to those that redirects name.

use std::rc::Rc;

use redis::{Cmd, Value};

use super::managed::ManagedConnection;
use super::server_connection::ServerConnection;
use super::topology::Topology;
use crate::Error;
use crate::store::redis::command_error::{CommandError, Redirect};
use crate::store::redis::pipelined::ReplyBound;

/// The way of one command. Each redirect takes it to another node.
pub(crate) struct SlotOwner<'a> {
    topology: &'a Topology,
    node: Rc<ManagedConnection>,
    is_asking: bool,
    redirects: usize,
}

/// What an error of the server says about the next attempt.
pub(crate) enum NextNode {
    /// Another node has the slot.
    Redirected,
    /// No node has all keys while the slot is being migrated: the same one, after a pause.
    TryAgain,
    /// It is the result.
    None,
}

impl<'a> SlotOwner<'a> {
    /// Waits only for the first attempt to connect.
    pub(crate) async fn of_slot(topology: &'a Topology, slot: u16) -> Result<Self, Error> {
        Ok(Self::from_node(topology, topology.owner_of(slot).await?))
    }

    pub(crate) fn from_node(topology: &'a Topology, node: Rc<ManagedConnection>) -> Self {
        Self { topology, node, is_asking: false, redirects: 0 }
    }

    /// The redirects so far.
    pub(crate) fn redirects(&self) -> usize {
        self.redirects
    }

    /// The connection to the node, for the next attempt.
    pub(crate) async fn connected(&self) -> Result<ServerConnection, Error> {
        self.node.connected().await
    }

    /// Sends a command on that connection.
    pub(crate) async fn send(
        &self,
        connection: &ServerConnection,
        command: &Cmd,
        bound: ReplyBound,
    ) -> Result<Value, CommandError> {
        match self.is_asking {
            true => connection.send_asking(command, bound).await,
            false => connection.send_within(command, bound).await,
        }
    }

    /// Goes to the node that an error names.
    pub(crate) fn follow(&mut self, error: &CommandError) -> NextNode {
        let Some(redirect) = error.redirect().filter(|_| self.topology.is_cluster()) else { return NextNode::None };
        self.redirects += 1;
        if matches!(redirect, Redirect::TryAgain) {
            return NextNode::TryAgain;
        }
        self.is_asking = matches!(redirect, Redirect::Ask { .. });
        match self.topology.follow_redirect(redirect, &self.node) {
            Some(other) => {
                self.node = other;
                NextNode::Redirected
            }
            None => NextNode::None,
        }
    }
}
