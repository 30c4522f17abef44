//! The options of a cluster.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use crate::nodes::{Node, Nodes};
use crate::proxy::Proxy;
use crate::server::{BUS_OFFSET, Certificates, MAX_PORT_ATTEMPTS, RedisServer, RedisServerBuilder, free_port_with_bus};
use crate::socket::Address;

/// The default number of masters. With fewer there is no majority that could replace one.
const DEFAULT_MASTERS: usize = 3;

/// The default time after which a silent node is considered dead. It is short for quick tests, and long enough for a
/// busy machine.
const DEFAULT_NODE_TIMEOUT: Duration = Duration::from_millis(1_000);

/// The options of a [`Cluster`] before it starts; see [`Cluster::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `start`"]
pub struct ClusterBuilder {
    node: RedisServerBuilder, // copied for each node
    masters: usize,
    has_replicas: bool,
    proxied: bool,
    node_timeout: Duration,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        let node = RedisServer::builder().tcp();
        Self { node, masters: DEFAULT_MASTERS, has_replicas: true, proxied: false, node_timeout: DEFAULT_NODE_TIMEOUT }
    }
}

impl ClusterBuilder {
    /// Starts the masters without replicas.
    pub fn masters_only(mut self) -> Self {
        self.has_replicas = false;
        self
    }

    /// Sets the number of masters, 3 or more, instead of three. Each has an equal part of the slots, in order.
    ///
    /// # Panics
    ///
    /// There are fewer than three, which are no majority without one of them.
    pub fn masters(mut self, masters: usize) -> Self {
        assert!(masters >= DEFAULT_MASTERS, "`masters` must be {DEFAULT_MASTERS} or more, got {masters}");
        self.masters = masters;
        self
    }

    /// Puts a [`Proxy`] in front of each node and lets the nodes announce the proxies' addresses; see
    /// [`Cluster::proxy`].
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Has clients, replicas and the nodes connect by TLS alone. All nodes share the certificates; see
    /// [`Cluster::ca_certificate`].
    pub fn tls(mut self) -> Self {
        self.node = self.node.tls_within(&Arc::new(Certificates::create())).setting("tls-cluster", "yes");
        self
    }

    /// Sets the time after which a silent node is considered dead, instead of one second.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Makes every node require this password.
    pub fn password(mut self, password: &str) -> Self {
        self.node = self.node.password(password);
        self
    }

    /// Makes every node require this user, who has all permissions, and reject all other users.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.node = self.node.user(name, password);
        self
    }

    /// Makes every node require a user like [`user`](Self::user), with these ACL rules, such as `~* +@all -flushall`.
    pub fn user_with_rules(mut self, name: &str, password: &str, rules: &str) -> Self {
        self.node = self.node.user_with_rules(name, password, rules);
        self
    }

    /// Adds another line to every node's `redis.conf`, such as `cluster-require-full-coverage no`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.node = self.node.setting(name, value);
        self
    }

    /// Starts the cluster and waits until all slots are served and all replicas are in sync.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or the nodes do not form a cluster in time. The message has the ends of the logs.
    #[must_use]
    pub fn start(self) -> Cluster {
        let replicas = if self.has_replicas { self.masters } else { 0 };
        let nodes = (0..self.masters + replicas).map(|_| self.start_node()).collect();
        Cluster::form(Nodes::new(nodes), self.masters)
    }

    fn start_node(&self) -> Node {
        let start = |_| {
            let port = free_port_with_bus();
            let proxy =
                self.proxied.then(|| Proxy::forward_to(Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))));
            let mut announced = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            if let Some(Address::Tcp(address)) = proxy.as_ref().map(Proxy::address) {
                announced = address;
            }
            let announced_port = if self.node.is_tls() { "cluster-announce-tls-port" } else { "cluster-announce-port" };
            let server = self
                .node
                .clone()
                .setting("cluster-enabled", "yes")
                .setting("cluster-node-timeout", &self.node_timeout.as_millis().to_string())
                .setting("cluster-announce-ip", &announced.ip().to_string())
                .setting(announced_port, &announced.port().to_string())
                .setting("cluster-announce-bus-port", &(port + BUS_OFFSET).to_string())
                .quick_replication();
            Some(Node::new(server.start_at(port)?, proxy))
        };
        (0..MAX_PORT_ATTEMPTS).find_map(start).expect("a port that stays free while its server starts")
    }
}
