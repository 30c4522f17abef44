//! What kind of cluster to start.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::Cluster;
use crate::nodes::{Node, Nodes};
use crate::proxy::Proxy;
use crate::server::{BUS_OFFSET, PORT_ATTEMPTS, RedisServer, RedisServerBuilder, free_port_with_bus};
use crate::socket::Address;

/// How many share the slots. With fewer there is no majority that could replace one.
pub(super) const MASTERS: usize = 3;

/// After so much silence a node is held for dead: short, for quick tests, and yet long enough for a busy machine.
const NODE_TIMEOUT: Duration = Duration::from_millis(1_000);

/// Describes a [`Cluster`] before it starts; see [`Cluster::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `start`"]
pub struct ClusterBuilder {
    node: RedisServerBuilder, // of which each one is a copy
    replicas: usize,
    proxied: bool,
    node_timeout: Duration,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        let node = RedisServer::builder().tcp();
        Self { node, replicas: MASTERS, proxied: false, node_timeout: NODE_TIMEOUT }
    }
}

impl ClusterBuilder {
    /// Has three masters and nobody to replace them.
    pub fn masters_only(mut self) -> Self {
        self.replicas = 0;
        self
    }

    /// Puts a [`Proxy`] before each node, and has the nodes send clients there; see [`Cluster::proxy`].
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Holds a node for dead after so much silence, instead of after one second.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Has every node ask for this password.
    pub fn password(mut self, password: &str) -> Self {
        self.node = self.node.password(password);
        self
    }

    /// Has every node ask for this user, who may do everything, and refuse everybody else.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.node = self.node.user(name, password);
        self
    }

    /// As [`user`](Self::user), with the rights of these ACL rules, such as `~* +@all -flushall`.
    pub fn user_with_rules(mut self, name: &str, password: &str, rules: &str) -> Self {
        self.node = self.node.user_with_rules(name, password, rules);
        self
    }

    /// Any other line of every node's `redis.conf`, such as `cluster-require-full-coverage no`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.node = self.node.setting(name, value);
        self
    }

    /// Starts it and waits until it works: all slots served, all replicas in step.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or the nodes do not find together in time: with the ends of their logs.
    #[must_use]
    pub fn start(self) -> Cluster {
        let nodes = (0..MASTERS + self.replicas).map(|_| self.start_node()).collect();
        Cluster::form(Nodes::new(nodes))
    }

    fn start_node(&self) -> Node {
        let start = |_| {
            let port = free_port_with_bus();
            let proxy = self.proxied.then(|| Proxy::to(Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))));
            let mut announced = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            if let Some(Address::Tcp(address)) = proxy.as_ref().map(Proxy::address) {
                announced = address;
            }
            let server = self
                .node
                .clone()
                .setting("cluster-enabled", "yes")
                .setting("cluster-node-timeout", &self.node_timeout.as_millis().to_string())
                .setting("cluster-announce-ip", &announced.ip().to_string())
                .setting("cluster-announce-port", &announced.port().to_string())
                .setting("cluster-announce-bus-port", &(port + BUS_OFFSET).to_string())
                .quick_replication();
            Some(Node::new(server.start_at(port)?, proxy))
        };
        (0..PORT_ATTEMPTS).find_map(start).expect("a port that nobody takes while its server starts")
    }
}
