//! When master, replica and sentinels are in order.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{NAME, Sentinels};
use crate::nodes::NodeId;
use crate::resp::Reply;
use crate::server::RedisServer;
use crate::wait;

/// How long it may take after the last disturbance. Sentinels that are not [`QUICK`] wait eight seconds before they turn a
/// master that came back into a replica, and look at it every ten. A sentinel that was not scheduled for two seconds
/// does nothing for thirty (TILT).
const LIMIT: Duration = Duration::from_secs(120);

/// How sentinels since Redis 7.0 are made to look, to ping and to talk more often than every ten, one and two seconds.
/// A replica that was last looked at five pings ago is none to promote, and during a failover it is every second.
const QUICK: [&str; 8] = ["SENTINEL", "DEBUG", "info-period", "500", "ping-period", "250", "publish-period", "250"];

/// And then to hold a master for dead earlier.
const SOON_DOWN: [&str; 5] = ["SENTINEL", "SET", NAME, "down-after-milliseconds", "750"];

impl Sentinels {
    /// Waits until all servers that run know their roles, every replica has what the master had when this began, and
    /// every sentinel that runs knows them and all other sentinels.
    ///
    /// # Panics
    ///
    /// That is not so within 120 s: with the ends of the logs.
    pub fn settle(&self) {
        let mut begun = None;
        wait::until("sentinels that are settled", LIMIT, || self.log_tails(), || self.is_settled(&mut begun));
    }

    /// `begun` is the master and its offset when this began. On a machine under load the sentinels may replace a master
    /// meanwhile, and then it begins again with the new one.
    fn is_settled(&self, begun: &mut Option<(NodeId, u64)>) -> Result<(), String> {
        let master = self.roles()?;
        let written = match *begun {
            Some((known, written)) if known == master => written,
            _ => begun.insert((master, self.server(master).written()?)).1,
        };
        self.running_replicas(master).try_for_each(|replica| self.server(replica).is_in_step_with(written))?;
        self.acquaintance(master)
    }

    /// The master, once all sentinels say the same and all servers act so.
    pub(super) fn roles(&self) -> Result<NodeId, String> {
        let mut said = Vec::new();
        for (_, sentinel) in self.sentinels.running() {
            said.push(self.master_by(sentinel)?);
        }
        said.dedup();
        let [master] = said[..] else { return Err(format!("the sentinels differ: {said:?}")) };
        if !self.nodes.running().any(|(node, _)| node == master) {
            return Err(format!("{master:?} is still the master, and dead"));
        }
        for (node, server) in self.nodes.running() {
            let replication = server.ask(&["INFO", "replication"])?.text();
            let port = format!("master_port:{}\r", self.address(master).port());
            let acts = match node == master {
                true => replication.contains("role:master"),
                false => replication.contains(&port) && replication.contains("master_link_status:up"),
            };
            if !acts {
                return Err(format!("{master:?} is the master, but {node:?} says {replication}"));
            }
        }
        Ok(master)
    }

    fn running_replicas(&self, master: NodeId) -> impl Iterator<Item = NodeId> {
        self.nodes.running().map(|(node, _)| node).filter(move |node| *node != master)
    }

    /// Whether each sentinel could do a failover: it knows the others, and everybody in their new roles.
    fn acquaintance(&self, master: NodeId) -> Result<(), String> {
        for (_, sentinel) in self.sentinels.running() {
            let master_seen = seen(sentinel.ask(&["SENTINEL", "MASTER", NAME])?);
            let others = sentinel.ask(&["SENTINEL", "SENTINELS", NAME])?.array().len();
            if master_seen["flags"] != "master" || others + 1 != self.sentinels.all().len() {
                return Err(format!("{:?} knows {others} others and {master_seen:?}", sentinel.address()));
            }
            let replicas = sentinel.ask(&["SENTINEL", "REPLICAS", NAME])?.array();
            let replicas: Vec<_> = replicas.into_iter().map(seen).collect();
            for replica in self.running_replicas(master) {
                let port = self.address(replica).port().to_string();
                let is_sound = |seen: &BTreeMap<String, String>| {
                    seen["port"] == port && seen["flags"] == "slave" && seen["master-link-status"] == "ok"
                };
                if !replicas.iter().any(is_sound) {
                    return Err(format!("{:?} does not know {replica:?}: {replicas:?}", sentinel.address()));
                }
            }
        }
        Ok(())
    }

    /// Whom this sentinel tells clients.
    pub(super) fn master_by(&self, sentinel: &RedisServer) -> Result<NodeId, String> {
        let told = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?.array();
        let port = told.into_iter().nth(1).map(Reply::text).unwrap_or_default();
        let node = self.nodes.ids().find(|node| self.address(*node).port().to_string() == port);
        node.ok_or_else(|| format!("{:?} says the master is at port {port:?}", sentinel.address()))
    }

    /// Where the sentinel can be told so.
    pub(super) fn make_quick(&self, sentinel: NodeId) {
        let server = self.sentinel(sentinel);
        if server.version() >= (7, 0) {
            server.command(&QUICK);
            server.command(&SOON_DOWN);
        }
    }
}

/// What a sentinel says of one server: names and values in turn.
pub(super) fn seen(reply: Reply) -> BTreeMap<String, String> {
    let words: Vec<_> = reply.array().into_iter().map(Reply::text).collect();
    words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}
