//! Waits until master, replica and sentinels agree.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{MASTER_NAME, Sentinels};
use crate::nodes::NodeId;
use crate::resp::Reply;
use crate::server::RedisServer;
use crate::wait;

/// The time in which all servers must settle after the last disturbance.
///
/// Sentinels without [`SHORT_PERIODS`] wait eight seconds before they turn a former master into a replica, and inspect
/// it every ten. A sentinel that was not scheduled for two seconds does nothing for thirty (TILT).
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The command that shortens the periods of sentinels since Redis 7.0, which are ten, one and two seconds. A replica
/// whose last inspection is five pings old cannot be promoted; during a failover each is inspected every second.
const SHORT_PERIODS: [&str; 8] =
    ["SENTINEL", "DEBUG", "info-period", "500", "ping-period", "250", "publish-period", "250"];

impl Sentinels {
    /// Waits until all running servers have their roles. Every replica then has the data that the master had when this
    /// call began, and every running sentinel knows all servers and sentinels.
    ///
    /// # Panics
    ///
    /// The servers do not settle within 120 s. The message has the ends of the logs.
    pub fn settle(&self) {
        let mut start = None;
        wait::poll_until(
            "sentinels that are settled",
            SETTLE_TIMEOUT,
            || self.log_tails(),
            || self.check_settled(&mut start),
        );
    }

    /// Returns `Ok` if all servers have settled. `start` keeps the master and its offset at the start. The sentinels
    /// may replace a master meanwhile on a machine under load; then it starts again with the new one.
    fn check_settled(&self, start: &mut Option<(NodeId, u64)>) -> Result<(), String> {
        let master = self.settled_master()?;
        let master_offset = match *start {
            Some((known, master_offset)) if known == master => master_offset,
            _ => start.insert((master, self.server(master).master_offset()?)).1,
        };
        self.running_replicas(master)
            .try_for_each(|replica| self.server(replica).check_replicated_to(master_offset))?;
        self.check_sentinels(master)
    }

    /// Returns the master if all sentinels report the same one and all servers have the matching roles.
    pub(super) fn settled_master(&self) -> Result<NodeId, String> {
        let mut reported = Vec::new();
        for (_, sentinel) in self.sentinels.running() {
            reported.push(self.master_reported_by(sentinel)?);
        }
        reported.dedup();
        let [master] = reported[..] else { return Err(format!("the sentinels differ: {reported:?}")) };
        if !self.nodes.running().any(|(node, _)| node == master) {
            return Err(format!("the master {master:?} does not run and has not been replaced"));
        }
        for (node, server) in self.nodes.running() {
            let replication = server.query(&["INFO", "replication"])?.text();
            let port = format!("master_port:{}\r", self.address(master).port());
            let has_role = match node == master {
                true => replication.contains("role:master"),
                false => replication.contains(&port) && replication.contains("master_link_status:up"),
            };
            if !has_role {
                return Err(format!("{master:?} is the master, but {node:?} reports {replication}"));
            }
        }
        Ok(master)
    }

    fn running_replicas(&self, master: NodeId) -> impl Iterator<Item = NodeId> {
        self.nodes.running().map(|(node, _)| node).filter(move |node| *node != master)
    }

    /// Returns `Ok` if each sentinel could run a failover: it knows the other sentinels and the current role of every
    /// server.
    fn check_sentinels(&self, master: NodeId) -> Result<(), String> {
        for (_, sentinel) in self.sentinels.running() {
            let master_seen = parse_fields(sentinel.query(&["SENTINEL", "MASTER", MASTER_NAME])?);
            let others = sentinel.query(&["SENTINEL", "SENTINELS", MASTER_NAME])?.array().len();
            if master_seen["flags"] != "master" || others + 1 != self.sentinels.all().len() {
                return Err(format!("{:?} knows {others} others and {master_seen:?}", sentinel.address()));
            }
            let replicas = sentinel.query(&["SENTINEL", "REPLICAS", MASTER_NAME])?.array();
            let replicas: Vec<_> = replicas.into_iter().map(parse_fields).collect();
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

    /// Returns the master that this sentinel reports to clients.
    pub(super) fn master_reported_by(&self, sentinel: &RedisServer) -> Result<NodeId, String> {
        let address = sentinel.query(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME])?.array();
        let port = address.into_iter().nth(1).map(Reply::text).unwrap_or_default();
        let node = self.nodes.ids().find(|node| self.address(*node).port().to_string() == port);
        node.ok_or_else(|| format!("{:?} reports the master at port {port:?}", sentinel.address()))
    }

    /// Shortens the periods of a sentinel, if its version has the commands.
    pub(super) fn shorten_periods(&self, sentinel: NodeId) {
        let server = self.sentinel(sentinel);
        if server.version() >= (7, 0) {
            server.command(&SHORT_PERIODS);
        }
    }
}

/// Parses a sentinel's description of a server, in which names and values alternate.
pub(super) fn parse_fields(reply: Reply) -> BTreeMap<String, String> {
    let words: Vec<_> = reply.array().into_iter().map(Reply::text).collect();
    words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}
