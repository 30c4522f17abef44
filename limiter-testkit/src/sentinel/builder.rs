//! What kind of servers and sentinels to start.

use super::{NAME, Sentinels};
use crate::nodes::{Node, Nodes};
use crate::server::{RedisServer, RedisServerBuilder};

/// How many sentinels there are, and how many have to agree that the master is down.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// After so much silence the master is held for dead. Not shorter: a sentinel that has just heard of a server first
/// pings it after a second, or after this time if that is less, and would find it dead by then.
const DOWN_AFTER_MS: &str = "1500";

/// How long a failover may take, before another sentinel tries in twice the time.
const FAILOVER_TIMEOUT_MS: &str = "3000";

/// Describes [`Sentinels`] before they start; see [`Sentinels::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `start`"]
pub struct SentinelsBuilder {
    node: RedisServerBuilder,     // of which the master and the replica are copies
    sentinel: RedisServerBuilder, // of which each sentinel is a copy
}

impl Default for SentinelsBuilder {
    fn default() -> Self {
        let node = RedisServer::builder().tcp();
        Self { sentinel: node.clone().sentinel(), node: node.quick_replication() }
    }
}

impl SentinelsBuilder {
    /// Has master and replica ask for this password.
    pub fn password(mut self, password: &str) -> Self {
        self.node = self.node.password(password);
        self
    }

    /// Has master and replica ask for this user, who may do everything, and refuse everybody else.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.node = self.node.user(name, password);
        self
    }

    /// As [`user`](Self::user), with the rights of these ACL rules, such as `~* +@all -flushall`.
    pub fn user_with_rules(mut self, name: &str, password: &str, rules: &str) -> Self {
        self.node = self.node.user_with_rules(name, password, rules);
        self
    }

    /// Has the sentinels ask for this password.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel = self.sentinel.password(password);
        self
    }

    /// Has the sentinels ask for this user, and refuse everybody else.
    pub fn sentinel_user(mut self, name: &str, password: &str) -> Self {
        self.sentinel = self.sentinel.user(name, password);
        self
    }

    /// Any other line of the master's and the replica's `redis.conf`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.node = self.node.setting(name, value);
        self
    }

    /// Starts them and waits until the replica has all data and every sentinel knows all others.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or they do not find together in time: with the ends of their logs.
    #[must_use]
    pub fn start(self) -> Sentinels {
        let master = Node::new(self.node.clone().start(), None);
        let (ip, port) = (master.address().ip().to_string(), master.address().port().to_string());
        let replica = Node::new(self.node.setting_of("replicaof", &[&ip, &port]).start(), None);

        let mut sentinel = self
            .sentinel
            .setting_of("sentinel", &["monitor", NAME, &ip, &port, &QUORUM.to_string()])
            .setting_of("sentinel", &["down-after-milliseconds", NAME, DOWN_AFTER_MS])
            .setting_of("sentinel", &["failover-timeout", NAME, FAILOVER_TIMEOUT_MS]);
        if let Some((user, password)) = master.server.admin() {
            sentinel = sentinel
                .setting_of("sentinel", &["auth-user", NAME, user])
                .setting_of("sentinel", &["auth-pass", NAME, password]);
        }
        if let Some((user, password)) = sentinel.admin() {
            let (user, password) = (user.to_owned(), password.to_owned());
            sentinel = sentinel
                .setting_of("sentinel", &["sentinel-user", &user])
                .setting_of("sentinel", &["sentinel-pass", &password]);
        }

        let nodes = Nodes::new(vec![master, replica]);
        let start = |_| Node::new(sentinel.clone().start(), None);
        let sentinels = Nodes::new((0..SENTINELS).map(start).collect());
        let set = Sentinels { nodes, sentinels };
        for sentinel in set.sentinels() {
            set.make_quick(sentinel);
        }
        set.settle();
        set
    }
}
