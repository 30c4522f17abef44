//! Kills, pauses and restarts nodes, and waits for failovers.

use std::time::{Duration, Instant};

use super::Cluster;
use super::settle::node_view;
use crate::nodes::{NodeId, Promotion};
use crate::wait;

/// The time in which the other nodes must detect a failure, elect a new master and learn of it.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(20);

impl Cluster {
    /// Kills a node (`SIGKILL`). All its connections and data are lost.
    pub fn kill(&mut self, node: NodeId) {
        self.record_replicas(node);
        self.nodes.kill(node);
    }

    /// Stops a node (`SIGSTOP`). Connections stay open and it sends no reply. The other nodes consider it dead.
    ///
    /// # Panics
    ///
    /// The node has been killed.
    pub fn pause(&mut self, node: NodeId) {
        self.record_replicas(node);
        self.nodes.pause(node);
    }

    /// Continues a paused node. If it has been replaced, the other nodes inform it a moment later.
    ///
    /// # Panics
    ///
    /// The node has been killed.
    pub fn resume(&mut self, node: NodeId) {
        self.nodes.resume(node);
    }

    /// Restarts a node with the same address and node id, and with no data. If it was a master that has not been
    /// replaced, it is a master again, and its replica loses its data too.
    ///
    /// # Panics
    ///
    /// The node does not reply in time.
    pub fn restart(&mut self, node: NodeId) {
        self.nodes.restart(node);
    }

    /// Waits until a replica has replaced this killed or paused master and every running node reports it.
    ///
    /// # Panics
    ///
    /// The master had no running replica, or there is no promotion within 20 s. The message has the ends of the logs.
    #[must_use]
    pub fn wait_for_promotion(&self, fallen: NodeId) -> Promotion {
        let candidates = self.former_replicas.get(&fallen).map_or(&[][..], Vec::as_slice);
        assert!(!candidates.is_empty(), "{fallen:?} is not a master with a replica that was killed or paused");
        let logs = || self.nodes.log_tails();
        let master = wait::poll_until("a promotion", FAILOVER_TIMEOUT, logs, || {
            let promoted = |id: &&NodeId| node_view(self.server(**id)).is_ok_and(|view| view.is_a_masters_view());
            candidates.iter().find(promoted).copied().ok_or_else(|| format!("{candidates:?} still follow {fallen:?}"))
        });
        let at = Instant::now();
        wait::poll_until("every node reports the promotion", FAILOVER_TIMEOUT, logs, || {
            self.check_agreement()?;
            let left = self.slots_of(fallen);
            if left.is_empty() { Ok(()) } else { Err(format!("{fallen:?} still has {left:?}")) }
        });
        Promotion { master, at }
    }

    /// Records the replicas of a node while it is alive. After a promotion no node reports the former replicas.
    fn record_replicas(&mut self, node: NodeId) {
        let view = self.view();
        let followers = view.replicas().filter(|(_, master)| *master == self.name(node));
        let replicas = followers.map(|(replica, _)| self.id_of(replica)).collect();
        self.former_replicas.insert(node, replicas);
    }
}
