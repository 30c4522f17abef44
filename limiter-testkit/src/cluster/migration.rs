//! A slot that moves from one master to another, step by step.

use std::time::Duration;

use super::Cluster;
use crate::nodes::NodeId;
use crate::resp::Reply;
use crate::wait;

/// How long the others may take to hear of the new owner.
const LIMIT: Duration = Duration::from_secs(10);

/// How long the server may take to hand over the keys of one step.
const STEP: Duration = Duration::from_secs(5);

/// How many keys one step takes where nobody says.
const BATCH: usize = 100;

/// A slot on the move. Until [`finish`](Self::finish) its old master answers `ASK` for keys that it has not (any
/// more), and the new one takes commands on them after `ASKING` alone; who needs several keys of which some have moved
/// is told `TRYAGAIN`.
///
/// ```
/// use limiter_testkit::{Cluster, slot_of};
///
/// let cluster = Cluster::builder().masters_only().start();
/// let slot = slot_of(b"{a}");
/// let from = cluster.master_of(slot);
/// let to = cluster.masters().into_iter().find(|master| *master != from).expect("three masters");
/// cluster.server(from).command(&["MSET", "{a}1", "1", "{a}2", "2"]);
///
/// let migration = cluster.begin_migration(slot, to);
/// assert_eq!(migration.move_keys(1), 1); // of two: now whoever wants both is told to try again
/// migration.finish();
/// assert_eq!(cluster.master_of(slot), to);
/// assert_eq!(cluster.server(to).command(&["MGET", "{a}1", "{a}2"]).array().len(), 2);
/// ```
#[derive(Debug)]
#[must_use = "the slot stays between the two until `finish` or `abandon`"]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: NodeId,
    to: NodeId,
}

impl Cluster {
    /// Moves a slot with all its keys, as `redis-cli` would, and waits until every node knows.
    ///
    /// # Panics
    ///
    /// As [`begin_migration`](Self::begin_migration) and [`Migration::finish`].
    pub fn migrate_slot(&self, slot: u16, to: NodeId) {
        self.begin_migration(slot, to).finish();
    }

    /// Opens a slot for moving, and moves nothing yet.
    ///
    /// # Panics
    ///
    /// `to` has the slot already, or one of the two refuses.
    pub fn begin_migration(&self, slot: u16, to: NodeId) -> Migration<'_> {
        let migration = Migration { cluster: self, slot, from: self.master_of(slot), to };
        migration.set_slot(to, &["IMPORTING", self.name(migration.from)]);
        migration.set_slot(migration.from, &["MIGRATING", self.name(to)]);
        migration
    }
}

impl Migration<'_> {
    /// The master that still has the slot.
    #[must_use]
    pub fn from(&self) -> NodeId {
        self.from
    }

    /// The master that will have it.
    #[must_use]
    pub fn to(&self) -> NodeId {
        self.to
    }

    /// Moves at most so many keys, and says how many there were to move.
    ///
    /// # Panics
    ///
    /// One of the two does not answer, or refuses.
    pub fn move_keys(&self, most: usize) -> usize {
        let command = ["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), &most.to_string()];
        let keys = self.cluster.server(self.from).command(&command).array();
        let keys: Vec<_> = keys.into_iter().map(Reply::bytes).collect();
        self.hand_over(&keys);
        keys.len()
    }

    /// Moves this key, if it is there.
    ///
    /// # Panics
    ///
    /// One of the two does not answer, or refuses.
    pub fn move_key(&self, key: &[u8]) {
        self.hand_over(&[key.to_vec()]);
    }

    /// Moves all keys that are left. The slot stays with its old master.
    ///
    /// # Panics
    ///
    /// One of the two does not answer, or refuses.
    pub fn move_all_keys(&self) {
        while self.move_keys(BATCH) > 0 {}
    }

    /// Moves all keys that are left, gives the slot to its new master, and waits until every node knows.
    ///
    /// # Panics
    ///
    /// A node does not answer, or refuses, or does not know within 10 s: with the ends of the logs.
    pub fn finish(self) {
        self.move_all_keys();
        let new_owner = ["NODE", self.cluster.name(self.to)];
        // The new master first: nobody is to be sent there before it knows.
        let masters = self.cluster.masters();
        let others = masters.into_iter().filter(|master| ![self.to, self.from].contains(master));
        for master in [self.to, self.from].into_iter().chain(others) {
            self.set_slot(master, &new_owner);
        }
        let logs = || self.cluster.nodes.log_tails();
        wait::until("everybody knows the slot's new master", LIMIT, logs, || {
            self.cluster.agree()?;
            let owner = self.cluster.master_of(self.slot);
            if owner == self.to { Ok(()) } else { Err(format!("{owner:?} still has it")) }
        });
    }

    /// Closes the slot again, where it was. Keys that have moved must have been moved back, or are out of reach.
    ///
    /// # Panics
    ///
    /// One of the two refuses.
    pub fn abandon(self) {
        for master in [self.from, self.to] {
            self.set_slot(master, &["STABLE"]);
        }
    }

    fn set_slot(&self, master: NodeId, state: &[&str]) {
        let slot = self.slot.to_string();
        let command: Vec<_> = ["CLUSTER", "SETSLOT", &slot].into_iter().chain(state.iter().copied()).collect();
        self.cluster.server(master).command(&command);
    }

    /// Past the proxies: this is between the two nodes.
    fn hand_over(&self, keys: &[Vec<u8>]) {
        if keys.is_empty() {
            return;
        }
        let target = self.cluster.nodes.get(self.to);
        let address = target.own_address();
        let [host, port, limit] = [address.ip().to_string(), address.port().to_string(), STEP.as_millis().to_string()]
            .map(String::into_bytes);
        let mut command = vec![b"MIGRATE".to_vec(), host, port, Vec::new(), b"0".to_vec(), limit];
        if let Some((user, password)) = target.server.admin() {
            command.extend(["AUTH2", user, password].map(|word| word.as_bytes().to_vec()));
        }
        command.push(b"KEYS".to_vec());
        command.extend_from_slice(keys);
        let reply = self.cluster.server(self.from).try_command(&command).expect("an answer to MIGRATE");
        assert!(matches!(reply, Reply::Status(_)), "MIGRATE was refused: {reply:?}");
    }
}
