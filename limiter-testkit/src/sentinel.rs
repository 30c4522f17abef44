//! A real master with a replica, and three sentinels that replace the master when it fails.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::nodes::{NodeId, Nodes};
use crate::server::RedisServer;

mod builder;
mod failover;
mod settle;
#[cfg(test)]
mod tests;

pub use builder::SentinelsBuilder;

/// The name of the monitored master, which clients pass to the sentinels.
const MASTER_NAME: &str = "mymaster";

/// A master, a replica, and three sentinels with a quorum of two. All servers end with this value.
///
/// ```
/// use limiter_testkit::Sentinels;
///
/// let mut sentinels = Sentinels::start();
/// let old = sentinels.master();
/// sentinels.server(old).command(&["SET", "a", "1"]);
/// sentinels.settle(); // the replica has it too
///
/// sentinels.kill(old);
/// let promotion = sentinels.wait_for_promotion(old);
/// assert_eq!(sentinels.master(), promotion.master);
/// assert_eq!(sentinels.server(promotion.master).command(&["GET", "a"]).text(), "1");
/// ```
#[derive(Debug)]
pub struct Sentinels {
    nodes: Nodes, // the data servers
    sentinels: Nodes,
}

impl Sentinels {
    /// Starts a master, a replica and three sentinels for one test.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or the servers do not find each other in time. The message has the ends of the logs.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns a builder for servers and sentinels with TLS, passwords or other settings.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder::default()
    }

    /// Returns the URL for clients: `redis-sentinel://127.0.0.1:…,127.0.0.1:…,127.0.0.1:…/mymaster/0`, with the
    /// credentials of the data servers. With TLS, the scheme is `rediss-sentinel`. The URL does not contain the sentinels'
    /// own password.
    #[must_use]
    pub fn url(&self) -> String {
        let first = &self.nodes.all()[0].server;
        format!("{}-sentinel://{}{}/{MASTER_NAME}/0", first.scheme(), first.authority(), self.sentinels.hosts())
    }

    /// Returns the PEM file of the certificate authority that signed the certificates of all servers, if they have TLS.
    #[must_use]
    pub fn ca_certificate(&self) -> Option<PathBuf> {
        self.nodes.all()[0].server.ca_certificate()
    }

    /// Returns the data servers: the initial master, then its replica.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        self.nodes.ids().collect()
    }

    /// Returns the sentinels.
    #[must_use]
    pub fn sentinels(&self) -> Vec<NodeId> {
        self.sentinels.ids().collect()
    }

    /// Returns the master, as reported by the first running sentinel.
    ///
    /// # Panics
    ///
    /// No sentinel runs.
    #[must_use]
    pub fn master(&self) -> NodeId {
        let (_, sentinel) = self.sentinels.running().next().expect("a sentinel that runs");
        self.master_reported_by(sentinel).expect("a reply of a sentinel")
    }

    /// Returns the data server of this node.
    #[must_use]
    pub fn server(&self, node: NodeId) -> &RedisServer {
        &self.nodes.get(node).server
    }

    /// Returns the server of this sentinel.
    #[must_use]
    pub fn sentinel(&self, sentinel: NodeId) -> &RedisServer {
        &self.sentinels.get(sentinel).server
    }

    /// Returns the address of this data server, as sentinels report it to clients.
    #[must_use]
    pub fn address(&self, node: NodeId) -> SocketAddr {
        self.nodes.get(node).address()
    }

    /// Returns the ends of the logs of all servers and sentinels, for a message.
    #[must_use]
    pub fn log_tails(&self) -> String {
        format!("{}\n{}", self.nodes.log_tails(), self.sentinels.log_tails())
    }
}
