//! Servers that form one whole: which of them run, and what a test does to them.

use std::net::SocketAddr;
use std::time::Instant;

use crate::proxy::Proxy;
use crate::server::RedisServer;
use crate::socket::Address;

/// One server of a [`Cluster`](crate::Cluster) or of [`Sentinels`](crate::Sentinels), whatever its role is just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

/// One server and, if there is one, the proxy before it.
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

    /// Where clients are sent.
    pub(crate) fn address(&self) -> SocketAddr {
        self.proxy.as_ref().map_or_else(|| self.own_address(), |proxy| tcp(&proxy.address()))
    }

    /// Where the server itself listens.
    pub(crate) fn own_address(&self) -> SocketAddr {
        tcp(&self.server.address())
    }
}

fn tcp(address: &Address) -> SocketAddr {
    match address {
        Address::Tcp(address) => *address,
        Address::Unix(path) => panic!("{} is no TCP port", path.display()),
    }
}

/// All of them, the dead ones included.
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

    /// Those that are neither killed nor paused: the ones that it makes sense to ask.
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

    /// `host:port` of each, with commas between: what a URL has after the credentials.
    pub(crate) fn hosts(&self) -> String {
        let hosts: Vec<_> = self.0.iter().map(|node| node.address().to_string()).collect();
        hosts.join(",")
    }

    /// The end of each server's log, for a message.
    pub(crate) fn log_tails(&self) -> String {
        let tails: Vec<_> =
            self.0.iter().map(|node| format!("{}: {}", node.own_address(), node.server.log_tail())).collect();
        tails.join("\n")
    }
}

/// That another node took over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promotion {
    /// The new master.
    pub master: NodeId,
    /// When it first said so itself. Others may have learnt it later.
    pub at: Instant,
}
