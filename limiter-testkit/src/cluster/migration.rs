//! Moves a slot from one master to another, step by step.

use std::time::Duration;

use super::Cluster;
use crate::nodes::NodeId;
use crate::resp::Reply;
use crate::wait;

/// The time in which every node must know the new owner.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time in which the server must hand over the keys of one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of keys in one step of [`Migration::move_all_keys`].
const KEYS_PER_STEP: usize = 100;

/// A slot that is being moved.
///
/// Until [`finish`](Self::finish) its old master replies `ASK` for keys that it does not have. The new master accepts
/// commands on the moved keys only after `ASKING`. A command with several keys of which only some have moved gets
/// `TRYAGAIN`.
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
/// assert_eq!(migration.move_keys(1), 1); // one of two: a command with both keys gets TRYAGAIN
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
    /// Moves a slot with all its keys, as `redis-cli` does, and waits until every node knows the new owner.
    ///
    /// # Panics
    ///
    /// Panics like [`begin_migration`](Self::begin_migration) and [`Migration::finish`].
    pub fn migrate_slot(&self, slot: u16, to: NodeId) {
        self.begin_migration(slot, to).finish();
    }

    /// Marks a slot as migrating, and moves no key yet.
    ///
    /// # Panics
    ///
    /// `to` owns the slot already, or one of the two masters rejects a command.
    pub fn begin_migration(&self, slot: u16, to: NodeId) -> Migration<'_> {
        let migration = Migration { cluster: self, slot, from: self.master_of(slot), to };
        migration.set_slot(to, &["IMPORTING", self.name(migration.from)]);
        migration.set_slot(migration.from, &["MIGRATING", self.name(to)]);
        migration
    }
}

impl Migration<'_> {
    /// Returns the master that still owns the slot.
    #[must_use]
    pub fn source(&self) -> NodeId {
        self.from
    }

    /// Returns the master that will own the slot.
    #[must_use]
    pub fn target(&self) -> NodeId {
        self.to
    }

    /// Moves at most `max_keys` keys, and returns how many it has moved.
    ///
    /// # Panics
    ///
    /// One of the two masters does not reply, or rejects a command.
    pub fn move_keys(&self, max_keys: usize) -> usize {
        let command = ["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), &max_keys.to_string()];
        let keys = self.cluster.server(self.from).command(&command).array();
        let keys: Vec<_> = keys.into_iter().map(Reply::bytes).collect();
        self.hand_over(&keys);
        keys.len()
    }

    /// Moves this key, if the old master has it.
    ///
    /// # Panics
    ///
    /// One of the two masters does not reply, or rejects a command.
    pub fn move_key(&self, key: &[u8]) {
        self.hand_over(&[key.to_vec()]);
    }

    /// Moves all remaining keys. The slot stays with its old master.
    ///
    /// # Panics
    ///
    /// One of the two masters does not reply, or rejects a command.
    pub fn move_all_keys(&self) {
        while self.move_keys(KEYS_PER_STEP) > 0 {}
    }

    /// Moves all remaining keys, assigns the slot to its new master, and waits until every node knows that.
    ///
    /// # Panics
    ///
    /// A node does not reply, rejects a command, or does not know the new owner within 10 s. The message has the ends
    /// of the logs.
    pub fn finish(self) {
        self.move_all_keys();
        let new_owner = ["NODE", self.cluster.name(self.to)];
        // The new master comes first, so that no client is redirected to it before it owns the slot.
        let masters = self.cluster.masters();
        let others = masters.into_iter().filter(|master| ![self.to, self.from].contains(master));
        for master in [self.to, self.from].into_iter().chain(others) {
            self.set_slot(master, &new_owner);
        }
        let logs = || self.cluster.nodes.log_tails();
        wait::poll_until("every node knows the slot's new master", AGREEMENT_TIMEOUT, logs, || {
            self.cluster.check_agreement()?;
            let owner = self.cluster.master_of(self.slot);
            if owner == self.to { Ok(()) } else { Err(format!("{owner:?} still has it")) }
        });
    }

    /// Cancels the migration: the slot stays with its old master. Keys that have moved must be moved back first, or
    /// they are out of reach.
    ///
    /// # Panics
    ///
    /// One of the two masters rejects a command.
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

    /// Hands over keys from master to master, without the proxies.
    fn hand_over(&self, keys: &[Vec<u8>]) {
        if keys.is_empty() {
            return;
        }
        let target = self.cluster.nodes.get(self.to);
        let address = target.own_address();
        let [host, port, limit] =
            [address.ip().to_string(), address.port().to_string(), STEP_TIMEOUT.as_millis().to_string()]
                .map(String::into_bytes);
        let mut command = vec![b"MIGRATE".to_vec(), host, port, Vec::new(), b"0".to_vec(), limit];
        if let Some((user, password)) = target.server.admin() {
            command.extend(["AUTH2", user, password].map(|word| word.as_bytes().to_vec()));
        }
        command.push(b"KEYS".to_vec());
        command.extend_from_slice(keys);
        // Nodes that an overloaded machine delays take each other for failed, for a moment. Nothing has moved then.
        let logs = || self.cluster.nodes.log_tails();
        wait::poll_until("MIGRATE is accepted", AGREEMENT_TIMEOUT, logs, || {
            let reply = self.cluster.server(self.from).try_command(&command).expect("a reply to MIGRATE");
            match reply {
                Reply::Error(error) if error.starts_with("CLUSTERDOWN") => Err(error),
                _ => {
                    assert!(matches!(reply, Reply::Status(_)), "MIGRATE was rejected: {reply:?}");
                    Ok(())
                }
            }
        });
    }
}
