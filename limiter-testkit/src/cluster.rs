//! A real Redis Cluster on free ports of this machine, owned by a test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

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

/// A cluster of three masters with a replica each. All servers end with this value.
///
/// A [`NodeId`] names a server, not a role. After a failover call [`master_of`](Self::master_of) and
/// [`replica_of`](Self::replica_of) again.
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
    names: Vec<String>,                             // the node ids in `CLUSTER NODES`
    former_replicas: BTreeMap<NodeId, Vec<NodeId>>, // of each killed or paused node, at that moment
}

impl Cluster {
    /// Starts a cluster for one test. This takes two to five seconds: Redis lets no master accept writes in its first
    /// two.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or the nodes do not form a cluster in time. The message has the ends of the logs.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns a builder for a cluster without replicas, behind proxies, with TLS, a password or other settings.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// Returns the URL for clients, with credentials and all nodes: `redis-cluster://127.0.0.1:…,127.0.0.1:…`, or
    /// `rediss-cluster://…` with TLS. With proxies, the ports are those of the proxies.
    #[must_use]
    pub fn url(&self) -> String {
        let first = &self.nodes.all()[0].server;
        format!("{}-cluster://{}{}", first.scheme(), first.authority(), self.nodes.hosts())
    }

    /// Returns the PEM file of the certificate authority that signed the certificates of all nodes, if they have TLS.
    #[must_use]
    pub fn ca_certificate(&self) -> Option<PathBuf> {
        self.nodes.all()[0].server.ca_certificate()
    }

    /// Returns all nodes, including dead ones. The initial masters come first.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        self.nodes.ids().collect()
    }

    /// Returns the masters in the order of their slots, as seen by the first running node. A dead master is included
    /// until it has been replaced.
    #[must_use]
    pub fn masters(&self) -> Vec<NodeId> {
        let owners = self.view().owners();
        owners.into_iter().map(|name| self.id_of(&name)).collect()
    }

    /// Returns the replicas in the order of [`nodes`](Self::nodes), as seen by the first running node.
    #[must_use]
    pub fn replicas(&self) -> Vec<NodeId> {
        let mut replicas: Vec<_> = self.view().replicas().map(|(replica, _)| self.id_of(replica)).collect();
        replicas.sort();
        replicas
    }

    /// Returns the owner of this slot, as seen by the first running node.
    ///
    /// # Panics
    ///
    /// The slot has no owner.
    #[must_use]
    pub fn master_of(&self, slot: u16) -> NodeId {
        let view = self.view();
        let owner = view.owner(slot).unwrap_or_else(|| panic!("slot {slot} has no owner"));
        self.id_of(owner)
    }

    /// Returns a replica of this master, as seen by the first running node.
    #[must_use]
    pub fn replica_of(&self, master: NodeId) -> Option<NodeId> {
        let view = self.view();
        let mut replicas = view.replicas();
        replicas.find(|(_, of)| *of == self.name(master)).map(|(replica, _)| self.id_of(replica))
    }

    /// Returns the slots of this master, as seen by the first running node.
    #[must_use]
    pub fn slots_of(&self, master: NodeId) -> Vec<RangeInclusive<u16>> {
        self.view().slots(self.name(master)).to_vec()
    }

    /// Returns the server of this node, for commands to it alone. It redirects like any node of a cluster.
    #[must_use]
    pub fn server(&self, node: NodeId) -> &RedisServer {
        &self.nodes.get(node).server
    }

    /// Returns the address of this node for clients, as in `MOVED` and `CLUSTER SLOTS`.
    #[must_use]
    pub fn address(&self, node: NodeId) -> SocketAddr {
        self.nodes.get(node).address()
    }

    /// Returns the proxy between this node and its clients.
    ///
    /// The nodes reach each other without the proxies, so a fault of a proxy causes no failover. Only the replication
    /// uses the master's proxy, because replicas connect to the announced address. The replication counts as a
    /// connection and suffers the proxy's faults. A replica without its master for 20 s does not replace it.
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
        NodeId(position.unwrap_or_else(|| panic!("{name} is not a node of this cluster")))
    }
}
