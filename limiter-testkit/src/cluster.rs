//! A real Redis Cluster on free ports of this machine, owned by the test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use crate::nodes::{NodeId, Nodes};
use crate::proxy::Proxy;
use crate::server::RedisServer;

mod builder;
mod failover;
mod form;
mod migration;
mod settle;
mod slot;
#[cfg(test)]
mod tests;
mod view;

pub use builder::ClusterBuilder;
pub use migration::Migration;
pub use slot::{SLOTS, slot_of};

/// Three masters, which share the slots, and a replica for each. All of it ends with this value.
///
/// Nodes are told apart by [`NodeId`], because roles change: ask [`master_of`](Self::master_of) and
/// [`replica_of`](Self::replica_of) again after a failover.
///
/// ```
/// use limiter_testkit::{Cluster, slot_of};
///
/// let mut cluster = Cluster::start();
/// let slot = slot_of(b"user:{42}");
/// let master = cluster.master_of(slot);
/// cluster.server(master).command(&["SET", "user:{42}", "1"]);
/// cluster.settle(); // the replica has it too
///
/// cluster.kill(master);
/// let promotion = cluster.wait_for_promotion(master);
/// assert_eq!(cluster.master_of(slot), promotion.master);
/// assert_eq!(cluster.server(promotion.master).command(&["GET", "user:{42}"]).text(), "1");
/// ```
#[derive(Debug)]
pub struct Cluster {
    nodes: Nodes,
    names: Vec<String>,                   // by which the nodes know each other
    heirs: BTreeMap<NodeId, Vec<NodeId>>, // of those that were killed or paused, at that moment
}

impl Cluster {
    /// A cluster of your own. It takes two to five seconds: Redis itself lets no master take writes before two.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or the nodes do not find together in time: with the ends of their logs.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A cluster of your own without replicas, behind proxies, with a password or other settings.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// The URL a client needs, with credentials and all nodes: `redis-cluster://127.0.0.1:…,127.0.0.1:…`. Those are
    /// the ports of the proxies where there are any.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis-cluster://{}{}", self.nodes.all()[0].server.authority(), self.nodes.hosts())
    }

    /// All nodes, also those that are dead: first the ones that began as masters.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        self.nodes.ids().collect()
    }

    /// The masters, in the order of their slots, as the first node that runs knows them. One that is dead counts
    /// until it has been replaced.
    #[must_use]
    pub fn masters(&self) -> Vec<NodeId> {
        let owners = self.view().owners();
        owners.into_iter().map(|name| self.id_of(&name)).collect()
    }

    /// The replicas, as the first node that runs knows them, in the order of [`nodes`](Self::nodes).
    #[must_use]
    pub fn replicas(&self) -> Vec<NodeId> {
        let mut replicas: Vec<_> = self.view().replicas().map(|(replica, _)| self.id_of(replica)).collect();
        replicas.sort();
        replicas
    }

    /// Who answers for this slot, as the first node that runs knows it.
    ///
    /// # Panics
    ///
    /// Nobody does.
    #[must_use]
    pub fn master_of(&self, slot: u16) -> NodeId {
        let view = self.view();
        let owner = view.owner(slot).unwrap_or_else(|| panic!("nobody has slot {slot}"));
        self.id_of(owner)
    }

    /// A replica of this master, as the first node that runs knows it.
    #[must_use]
    pub fn replica_of(&self, master: NodeId) -> Option<NodeId> {
        let view = self.view();
        let mut replicas = view.replicas();
        replicas.find(|(_, of)| *of == self.name(master)).map(|(replica, _)| self.id_of(replica))
    }

    /// The slots of this master, as the first node that runs knows them.
    #[must_use]
    pub fn slots_of(&self, master: NodeId) -> Vec<RangeInclusive<u16>> {
        self.view().slots(self.name(master)).to_vec()
    }

    /// The server of this node, for commands to it alone: it redirects like any node of a cluster.
    #[must_use]
    pub fn server(&self, node: NodeId) -> &RedisServer {
        &self.nodes.get(node).server
    }

    /// Where clients find this node: what `MOVED` and `CLUSTER SLOTS` tell them.
    #[must_use]
    pub fn address(&self, node: NodeId) -> SocketAddr {
        self.nodes.get(node).address()
    }

    /// What is between this node and its clients.
    ///
    /// The nodes talk to each other past it, so no fault here is a reason for a failover. Only the replication passes
    /// the proxy of the master, since replicas find that as clients do: it counts as a connection, suffers as they do,
    /// and a replica that has been without its master for 20 s will not replace it.
    ///
    /// # Panics
    ///
    /// The cluster was started without [`ClusterBuilder::proxied`].
    #[must_use]
    pub fn proxy(&self, node: NodeId) -> &Proxy {
        let proxy = self.nodes.get(node).proxy.as_ref();
        proxy.expect("a cluster behind proxies: `Cluster::builder().proxied()`")
    }

    fn name(&self, node: NodeId) -> &str {
        &self.names[node.0]
    }

    fn id_of(&self, name: &str) -> NodeId {
        let position = self.names.iter().position(|known| known == name);
        NodeId(position.unwrap_or_else(|| panic!("{name} is no node of this cluster")))
    }
}
