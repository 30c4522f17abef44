//! When a cluster is whole.

use std::collections::BTreeMap;
use std::time::Duration;

use super::view::View;
use super::{Cluster, SLOTS};
use crate::server::RedisServer;
use crate::wait;

/// How long it may take after the last disturbance.
const LIMIT: Duration = Duration::from_secs(15);

impl Cluster {
    /// Waits until all nodes that run agree about who has which slot and who follows whom, serve all slots, and every replica has what
    /// its master had when this began.
    ///
    /// # Panics
    ///
    /// That is not so within 15 s: with the ends of the logs.
    pub fn settle(&self) {
        wait::until("a cluster that works", LIMIT, || self.nodes.log_tails(), || self.agree());
        let written: BTreeMap<_, _> =
            self.nodes.running().map(|(id, server)| (self.name(id), server.written().unwrap_or_default())).collect();
        wait::until("replicas in step", LIMIT, || self.nodes.log_tails(), || self.are_in_step(&written));
    }

    /// Whether all nodes that run say the same of everybody's role, and that all slots are served.
    pub(super) fn agree(&self) -> Result<(), String> {
        let mut agreed = None;
        for (_, server) in self.nodes.running() {
            let state = server.ask(&["CLUSTER", "INFO"])?.text();
            let view = node_view(server)?;
            let slots = view.owned_slots();
            if !state.contains("cluster_state:ok") || slots != usize::from(SLOTS) {
                return Err(format!("{:?} has {slots} slots and says {state}", server.address()));
            }
            let roles = view.roles();
            if *agreed.get_or_insert_with(|| roles.clone()) != roles {
                return Err(format!("{:?} differs from another: {agreed:?}, {roles:?}", server.address()));
            }
        }
        Ok(())
    }

    /// Whether every replica that runs follows a master that runs, and has what that had written.
    fn are_in_step(&self, written: &BTreeMap<&str, u64>) -> Result<(), String> {
        for (id, server) in self.nodes.running() {
            let view = node_view(server)?;
            let Some((_, master)) = view.replicas().find(|(replica, _)| *replica == self.name(id)) else { continue };
            let Some(target) = written.get(master) else {
                return Err(format!("{:?} follows a master that is dead", server.address()));
            };
            server.is_in_step_with(*target)?;
        }
        Ok(())
    }
}

/// As this node sees the cluster.
pub(super) fn node_view(server: &RedisServer) -> Result<View, String> {
    let text = server.ask(&["CLUSTER", "NODES"])?.text();
    View::parse(&text).ok_or_else(|| format!("{:?} says {text}", server.address()))
}
