//! The server of each slot: one server, or the nodes of a cluster.

use std::rc::Rc;
use std::sync::Arc;

use tokio::task::spawn_local;

use super::cluster::Cluster;
use super::context::ConnectionContext;
use super::gate::ServerGate;
use super::gate_table::GateTable;
use super::managed::ManagedConnection;
use super::slot_group::SlotGroup;
use crate::Error;
use crate::store::redis::command_error::Redirect;
use crate::store::redis::endpoint::{Endpoint, ReadySignal};

pub(crate) enum Topology {
    Single(Rc<ManagedConnection>),
    Cluster(Rc<Cluster>),
}

impl Topology {
    /// Starts to connect. `ready` gets the result of the first attempt.
    pub(crate) fn start(
        endpoint: Endpoint,
        gates: Arc<GateTable>,
        context: &Rc<ConnectionContext>,
        ready: Option<ReadySignal>,
    ) -> Self {
        let name = endpoint.to_string();
        match endpoint {
            Endpoint::Single(server) => {
                let gate = gates.default_gate();
                let connection = Rc::new(ManagedConnection::new(*server, Rc::clone(context), gate));
                spawn_local(Rc::clone(&connection).reconnect_loop(ready));
                Self::Single(connection)
            }
            Endpoint::Cluster(seeds) => {
                let cluster = Rc::new(Cluster::new(seeds, name, Rc::clone(context), gates));
                spawn_local(Rc::clone(&cluster).refresh_loop(ready));
                Self::Cluster(cluster)
            }
        }
    }

    /// Waits until the first attempts to connect to the owners of these slots are over.
    ///
    /// # Errors
    /// The reason why a slot has no connected owner.
    pub(crate) async fn ready(&self, groups: &[SlotGroup]) -> Result<(), Error> {
        for group in groups {
            self.owner_of(group.slot).await?.connected().await?;
        }
        Ok(())
    }

    /// The owner of a slot, if it is connected.
    pub(crate) fn connected_owner_of(&self, slot: u16) -> Option<Rc<ManagedConnection>> {
        let owner = match self {
            Self::Single(connection) => Rc::clone(connection),
            Self::Cluster(cluster) => cluster.known_owner_of(slot)?,
        };
        owner.is_up().then_some(owner)
    }

    /// The owner of a slot. Waits only for the first map of a cluster.
    pub(crate) async fn owner_of(&self, slot: u16) -> Result<Rc<ManagedConnection>, Error> {
        match self {
            Self::Single(connection) => Ok(Rc::clone(connection)),
            Self::Cluster(cluster) => cluster.owner_of(slot).await,
        }
    }

    /// The server that has this gate, if the topology still contains it.
    pub(crate) fn server_of_gate(&self, gate: &Arc<ServerGate>) -> Option<Rc<ManagedConnection>> {
        match self {
            Self::Single(connection) => Some(Rc::clone(connection)),
            Self::Cluster(cluster) => cluster.node_of_gate(gate),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The node that a redirect from `sender` names; `None` where the redirect names none.
    pub(crate) fn follow_redirect(
        &self,
        redirect: Redirect,
        sender: &ManagedConnection,
    ) -> Option<Rc<ManagedConnection>> {
        match self {
            Self::Single(_) => None,
            Self::Cluster(cluster) => cluster.follow_redirect(redirect, sender),
        }
    }
}
