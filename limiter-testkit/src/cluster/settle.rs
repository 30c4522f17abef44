//! Waits until a cluster works in full.

use std::collections::BTreeMap;
use std::time::Duration;

use super::view::View;
use super::{Cluster, SLOTS};
use crate::server::RedisServer;
use crate::wait;

/// The time in which a cluster must settle after the last disturbance.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(15);

impl Cluster {
    /// Waits until the cluster works in full. All running nodes then agree on roles and slots, and all slots are
    /// served. Every replica has the data that its master had when this call began.
    ///
    /// # Panics
    ///
    /// The cluster does not settle within 15 s. The message has the ends of the logs.
    pub fn settle(&self) {
        wait::poll_until("a cluster that works", SETTLE_TIMEOUT, || self.nodes.log_tails(), || self.check_agreement());
        let master_offset: BTreeMap<_, _> = self
            .nodes
            .running()
            .map(|(id, server)| (self.name(id), server.master_offset().unwrap_or_default()))
            .collect();
        wait::poll_until(
            "replicas in step",
            SETTLE_TIMEOUT,
            || self.nodes.log_tails(),
            || self.check_replication(&master_offset),
        );
    }

    /// Returns `Ok` if all running nodes report the same roles, and that all slots are served.
    pub(super) fn check_agreement(&self) -> Result<(), String> {
        let mut first_roles = None;
        for (_, server) in self.nodes.running() {
            let state = server.query(&["CLUSTER", "INFO"])?.text();
            let view = node_view(server)?;
            let slots = view.owned_slots();
            if !state.contains("cluster_state:ok") || slots != usize::from(SLOTS) {
                return Err(format!("{:?} has {slots} slots and reports {state}", server.address()));
            }
            let roles = view.roles();
            if *first_roles.get_or_insert_with(|| roles.clone()) != roles {
                return Err(format!("{:?} differs from another: {first_roles:?}, {roles:?}", server.address()));
            }
        }
        Ok(())
    }

    /// Returns `Ok` if every running replica follows a running master and has all data up to these offsets.
    fn check_replication(&self, master_offset: &BTreeMap<&str, u64>) -> Result<(), String> {
        for (id, server) in self.nodes.running() {
            let view = node_view(server)?;
            let Some((_, master)) = view.replicas().find(|(replica, _)| *replica == self.name(id)) else { continue };
            let Some(target) = master_offset.get(master) else {
                return Err(format!("{:?} follows a master that is dead", server.address()));
            };
            server.check_replicated_to(*target)?;
        }
        Ok(())
    }
}

/// Returns the cluster as seen by this node.
pub(super) fn node_view(server: &RedisServer) -> Result<View, String> {
    let text = server.query(&["CLUSTER", "NODES"])?.text();
    View::parse(&text).ok_or_else(|| format!("{:?} reports {text}", server.address()))
}
