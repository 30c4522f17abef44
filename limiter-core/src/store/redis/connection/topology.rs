//! The server of each slot: one server, or the nodes of a cluster.

use std::rc::Rc;
use std::sync::Arc;

use tokio::task::spawn_local;

use super::cluster::Cluster;
use super::gate_table::{GateTable, ServerGate};
use super::managed::ManagedConnection;
use super::server_connection::ConnectionContext;
use crate::Error;
use crate::request::Request;
use crate::store::redis::command_error::Redirect;
use crate::store::redis::endpoint::{Endpoint, ReadySignal};
use crate::store::redis::naming::RedisKey;

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

// The requests of one decision that one script call can serve.

/// Requests whose keys are in one slot, by their indices in the decision.
#[derive(Clone)]
pub(crate) struct SlotGroup {
    pub(crate) slot: u16,
    pub(crate) indices: Vec<usize>,
}

impl SlotGroup {
    /// The groups of a decision, in the order of their first requests.
    pub(crate) fn of_keys(keys: &[RedisKey]) -> Vec<Self> {
        let all = Self { slot: keys.first().map_or(0, |key| key.slot), indices: (0..keys.len()).collect() };
        if keys.iter().all(|key| key.slot == all.slot) {
            return vec![all];
        }
        let mut groups = all.split_by(|index| keys[index].slot);
        groups.iter_mut().for_each(|group| group.slot = keys[group.indices[0]].slot);
        groups
    }

    /// Groups of the same slot, one for each value of `key_of`, in the order of their first requests.
    pub(crate) fn split_by<K: PartialEq>(&self, key_of: impl Fn(usize) -> K) -> Vec<Self> {
        let mut groups: Vec<(K, Self)> = Vec::new();
        for index in self.indices.iter().copied() {
            let key = key_of(index);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.indices.push(index),
                None => groups.push((key, Self { slot: self.slot, indices: vec![index] })),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// The requests of this group, out of all requests of the decision.
    pub(crate) fn select<'a>(&self, requests: &[Request<'a>]) -> Vec<Request<'a>> {
        self.indices.iter().map(|index| requests[*index]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_keeps_the_slot_and_the_order_of_the_requests() {
        let group = SlotGroup { slot: 7, indices: vec![4, 1, 6, 3] };
        let groups = group.split_by(|index| index % 2);
        let groups: Vec<_> = groups.iter().map(|group| (group.slot, &group.indices[..])).collect();
        assert_eq!(groups, [(7, &[4, 6][..]), (7, &[1, 3][..])]);
    }
}
