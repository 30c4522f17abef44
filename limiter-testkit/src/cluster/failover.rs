//! Nodes that go, come back and are replaced.

use std::time::{Duration, Instant};

use super::Cluster;
use super::settle::node_view;
use crate::nodes::{NodeId, Promotion};
use crate::wait;

/// How long the others may take to notice, to vote and to spread the word.
const LIMIT: Duration = Duration::from_secs(20);

impl Cluster {
    /// Ends a node at once (`SIGKILL`), and with it all connections and data.
    pub fn kill(&mut self, node: NodeId) {
        self.note_heirs(node);
        self.nodes.kill(node);
    }

    /// Stops a node as it is (`SIGSTOP`): connections stay open and nothing answers. The others hold it for dead.
    ///
    /// # Panics
    ///
    /// It has been killed.
    pub fn pause(&mut self, node: NodeId) {
        self.note_heirs(node);
        self.nodes.pause(node);
    }

    /// Lets a paused node go on. If it has been replaced, it learns so from the others, and not at once.
    ///
    /// # Panics
    ///
    /// It has been killed.
    pub fn resume(&mut self, node: NodeId) {
        self.nodes.resume(node);
    }

    /// Starts a node anew, at the same address and under the same name, with no data. A master that has not been
    /// replaced meanwhile is one again, and its replica loses its data too.
    ///
    /// # Panics
    ///
    /// It does not answer within 5 s.
    pub fn restart(&mut self, node: NodeId) {
        self.nodes.restart(node);
    }

    /// Waits until a replica has taken the place of this master, which was killed or paused, and everybody knows.
    ///
    /// # Panics
    ///
    /// It had no replica that runs, or there is no promotion within 20 s: with the ends of the logs.
    #[must_use]
    pub fn wait_for_promotion(&self, fallen: NodeId) -> Promotion {
        let heirs = self.heirs.get(&fallen).map_or(&[][..], Vec::as_slice);
        assert!(!heirs.is_empty(), "{fallen:?} is no master with a replica that was killed or paused");
        let logs = || self.nodes.log_tails();
        let master = wait::until("a promotion", LIMIT, logs, || {
            let promoted = |id: &&NodeId| node_view(self.server(**id)).is_ok_and(|view| view.is_of_a_master());
            heirs.iter().find(promoted).copied().ok_or_else(|| format!("{heirs:?} still follow {fallen:?}"))
        });
        let at = Instant::now();
        wait::until("everybody knows of the promotion", LIMIT, logs, || {
            self.agree()?;
            let left = self.slots_of(fallen);
            if left.is_empty() { Ok(()) } else { Err(format!("{fallen:?} still has {left:?}")) }
        });
        Promotion { master, at }
    }

    /// While it is alive: after a promotion nobody knows any more who followed whom.
    fn note_heirs(&mut self, node: NodeId) {
        let view = self.view();
        let followers = view.replicas().filter(|(_, master)| *master == self.name(node));
        let heirs = followers.map(|(replica, _)| self.id_of(replica)).collect();
        self.heirs.insert(node, heirs);
    }
}
