//! The options of a master, its replica and its sentinels.

use std::sync::Arc;

use super::{MASTER_NAME, Sentinels};
use crate::nodes::{Node, Nodes};
use crate::server::{Certificates, RedisServer, RedisServerBuilder};

/// The number of sentinels, and the number of them that must agree that the master is down.
const SENTINEL_COUNT: usize = 3;
const QUORUM: usize = 2;

/// The time after which a silent master is considered down. A shorter time would be wrong. A
/// sentinel first pings a new server after a second, or after this time if that is less. It would then consider the
/// server down. On a machine that stands still for this time a master is replaced although it runs.
const DOWN_AFTER_MS: &str = "1500";

/// The time that a failover may take. After twice this time another sentinel tries.
const FAILOVER_TIMEOUT_MS: &str = "3000";

/// The options of [`Sentinels`] before they start; see [`Sentinels::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `start`"]
pub struct SentinelsBuilder {
    node: RedisServerBuilder,     // copied for master and replica
    sentinel: RedisServerBuilder, // copied for each sentinel
}

impl Default for SentinelsBuilder {
    fn default() -> Self {
        let node = RedisServer::builder().tcp();
        Self { sentinel: node.clone().sentinel(), node: node.quick_replication() }
    }
}

impl SentinelsBuilder {
    /// Has clients, the replica and the sentinels connect by TLS alone. All servers share the certificates; see
    /// [`Sentinels::ca_certificate`].
    pub fn tls(mut self) -> Self {
        let certificates = Arc::new(Certificates::create());
        self.node = self.node.tls_within(&certificates);
        self.sentinel = self.sentinel.tls_within(&certificates);
        self
    }

    /// Makes master and replica require this password.
    pub fn password(mut self, password: &str) -> Self {
        self.node = self.node.password(password);
        self
    }

    /// Makes master and replica require this user, who has all permissions, and reject all other users.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.node = self.node.user(name, password);
        self
    }

    /// Makes master and replica require a user like [`user`](Self::user), with these ACL rules, such as `~* +@all
    /// -flushall`.
    pub fn user_with_rules(mut self, name: &str, password: &str, rules: &str) -> Self {
        self.node = self.node.user_with_rules(name, password, rules);
        self
    }

    /// Makes the sentinels require this password.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel = self.sentinel.password(password);
        self
    }

    /// Makes the sentinels require this user and reject all other users.
    pub fn sentinel_user(mut self, name: &str, password: &str) -> Self {
        self.sentinel = self.sentinel.user(name, password);
        self
    }

    /// Adds another line to the `redis.conf` of master and replica.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.node = self.node.setting(name, value);
        self
    }

    /// Starts all servers and waits until the replica has all data and every sentinel knows all other servers.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or the servers do not find each other in time. The message has the ends of the logs.
    #[must_use]
    pub fn start(self) -> Sentinels {
        let master = Node::new(self.node.clone().start(), None);
        let (ip, port) = (master.address().ip().to_string(), master.address().port().to_string());
        let replica = Node::new(self.node.quoted_setting("replicaof", &[&ip, &port]).start(), None);

        let mut sentinel = self
            .sentinel
            .quoted_setting("sentinel", &["monitor", MASTER_NAME, &ip, &port, &QUORUM.to_string()])
            .quoted_setting("sentinel", &["down-after-milliseconds", MASTER_NAME, DOWN_AFTER_MS])
            .quoted_setting("sentinel", &["failover-timeout", MASTER_NAME, FAILOVER_TIMEOUT_MS]);
        if let Some((user, password)) = master.server.admin() {
            sentinel = sentinel
                .quoted_setting("sentinel", &["auth-user", MASTER_NAME, user])
                .quoted_setting("sentinel", &["auth-pass", MASTER_NAME, password]);
        }
        if let Some((user, password)) = sentinel.admin() {
            let (user, password) = (user.to_owned(), password.to_owned());
            sentinel = sentinel
                .quoted_setting("sentinel", &["sentinel-user", &user])
                .quoted_setting("sentinel", &["sentinel-pass", &password]);
        }

        let nodes = Nodes::new(vec![master, replica]);
        let start = |_| Node::new(sentinel.clone().start(), None);
        let sentinels = Nodes::new((0..SENTINEL_COUNT).map(start).collect());
        let set = Sentinels { nodes, sentinels };
        for sentinel in set.sentinels() {
            set.shorten_periods(sentinel);
        }
        set.settle();
        set
    }
}
