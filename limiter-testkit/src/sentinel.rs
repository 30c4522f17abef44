//! A real master with a replica, and three sentinels that let the one take the place of the other.

use std::net::SocketAddr;

use crate::nodes::{NodeId, Nodes};
use crate::server::RedisServer;

mod builder;
mod failover;
mod settle;
#[cfg(test)]
mod tests;

pub use builder::SentinelsBuilder;

/// The name that the sentinels have for the master, and by which clients ask.
const NAME: &str = "mymaster";

/// A master, a replica, and three sentinels of which two are enough to decide. All of it ends with this value.
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
    nodes: Nodes,     // that have the data
    sentinels: Nodes, // that watch over them
}

impl Sentinels {
    /// A set of your own.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or they do not find together in time: with the ends of their logs.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A set of your own with passwords or other settings.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder::default()
    }

    /// The URL a client needs: `redis-sentinel://127.0.0.1:…,127.0.0.1:…,127.0.0.1:…/mymaster/0`, with the credentials
    /// of the servers that have the data. A password of the sentinels' own is not in it.
    #[must_use]
    pub fn url(&self) -> String {
        let authority = self.nodes.all()[0].server.authority();
        format!("redis-sentinel://{authority}{}/{NAME}/0", self.sentinels.hosts())
    }

    /// The servers that have the data: the master of the beginning, then its replica.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        self.nodes.ids().collect()
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> Vec<NodeId> {
        self.sentinels.ids().collect()
    }

    /// The master, as the first sentinel that runs knows it.
    ///
    /// # Panics
    ///
    /// No sentinel runs.
    #[must_use]
    pub fn master(&self) -> NodeId {
        let (_, sentinel) = self.sentinels.running().next().expect("a sentinel that runs");
        self.master_by(sentinel).expect("an answer of a sentinel")
    }

    /// The server of this node that has the data.
    #[must_use]
    pub fn server(&self, node: NodeId) -> &RedisServer {
        &self.nodes.get(node).server
    }

    /// The server of this sentinel.
    #[must_use]
    pub fn sentinel(&self, sentinel: NodeId) -> &RedisServer {
        &self.sentinels.get(sentinel).server
    }

    /// Where this node that has the data listens: what sentinels tell clients.
    #[must_use]
    pub fn address(&self, node: NodeId) -> SocketAddr {
        self.nodes.get(node).address()
    }

    /// The ends of the logs of all servers and sentinels, for a message.
    #[must_use]
    pub fn log_tails(&self) -> String {
        format!("{}\n{}", self.nodes.log_tails(), self.sentinels.log_tails())
    }
}
