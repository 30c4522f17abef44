//! The servers of a cluster or of a set of sentinels, and the state of each.

use std::net::SocketAddr;
use std::time::Instant;

use crate::proxy::Proxy;
use crate::server::RedisServer;
use crate::socket::Address;

/// The id of one server of a [`Cluster`](crate::Cluster) or of [`Sentinels`](crate::Sentinels). It stays the same when
/// roles change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

/// One server and its proxy, if it has one.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Option<Proxy>,
    running: bool,
}

impl Node {
    pub(crate) fn new(server: RedisServer, proxy: Option<Proxy>) -> Self {
        Self { server, proxy, running: true }
    }

    /// Returns the address that clients connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.proxy.as_ref().map_or_else(|| self.own_address(), |proxy| tcp_address(&proxy.address()))
    }

    /// Returns the address that the server itself listens on.
    pub(crate) fn own_address(&self) -> SocketAddr {
        tcp_address(&self.server.address())
    }
}

fn tcp_address(address: &Address) -> SocketAddr {
    match address {
        Address::Tcp(address) => *address,
        Address::Unix(path) => panic!("{} is not a TCP address", path.display()),
    }
}

/// All servers, including killed and paused ones.
#[derive(Debug)]
pub(crate) struct Nodes(Vec<Node>);

impl Nodes {
    pub(crate) fn new(nodes: Vec<Node>) -> Self {
        Self(nodes)
    }

    pub(crate) fn get(&self, id: NodeId) -> &Node {
        &self.0[id.0]
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.0.len()).map(NodeId)
    }

    pub(crate) fn all(&self) -> &[Node] {
        &self.0
    }

    /// Returns the servers that are neither killed nor paused.
    pub(crate) fn running(&self) -> impl Iterator<Item = (NodeId, &RedisServer)> {
        self.ids().zip(&self.0).filter(|(_, node)| node.running).map(|(id, node)| (id, &node.server))
    }

    pub(crate) fn kill(&mut self, id: NodeId) {
        self.0[id.0].running = false;
        self.0[id.0].server.kill();
    }

    pub(crate) fn pause(&mut self, id: NodeId) {
        self.0[id.0].running = false;
        self.0[id.0].server.pause();
    }

    pub(crate) fn resume(&mut self, id: NodeId) {
        self.0[id.0].server.resume();
        self.0[id.0].running = true;
    }

    pub(crate) fn restart(&mut self, id: NodeId) {
        self.0[id.0].server.restart();
        self.0[id.0].running = true;
    }

    /// Returns `host:port` of each server, separated by commas: the part of a URL after the credentials.
    pub(crate) fn hosts(&self) -> String {
        let hosts: Vec<_> = self.0.iter().map(|node| node.address().to_string()).collect();
        hosts.join(",")
    }

    /// Returns the end of each server's log, for a message.
    pub(crate) fn log_tails(&self) -> String {
        let tails: Vec<_> =
            self.0.iter().map(|node| format!("{}: {}", node.own_address(), node.server.log_tail())).collect();
        tails.join("\n")
    }
}

/// A failover: another node became the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promotion {
    /// The new master.
    pub master: NodeId,
    /// The time at which the new master first reported its role. Others may learn of it later.
    pub at: Instant,
}
