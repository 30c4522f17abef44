//! How nodes that know nothing become a cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use super::builder::MASTERS;
use super::settle::node_view;
use super::{Cluster, SLOTS};
use crate::nodes::{NodeId, Nodes};
use crate::server::BUS_OFFSET;
use crate::wait;

/// How long the nodes may take to hear of each other.
const ACQUAINTANCE: Duration = Duration::from_secs(10);

impl Cluster {
    pub(super) fn form(nodes: Nodes) -> Self {
        let name = |id: NodeId| nodes.get(id).server.command(&["CLUSTER", "MYID"]).text();
        let names = nodes.ids().map(name).collect();
        let cluster = Self { nodes, names, heirs: BTreeMap::new() };
        cluster.share_slots();
        cluster.introduce_everybody();
        cluster.wait_for_acquaintance();
        for replica in &cluster.nodes()[MASTERS..] {
            let master = cluster.name(NodeId(replica.0 - MASTERS));
            cluster.server(*replica).command(&["CLUSTER", "REPLICATE", master]);
        }
        cluster.settle();
        cluster
    }

    /// Before they meet, so that there is nothing to agree about.
    fn share_slots(&self) {
        let masters = u16::try_from(MASTERS).expect("a few");
        for (index, master) in (0..masters).zip(self.nodes()) {
            let [first, end] = [index, index + 1].map(|part| u32::from(part) * u32::from(SLOTS) / u32::from(masters));
            let slots: Vec<_> = (first..end).map(|slot| slot.to_string()).collect();
            let command: Vec<_> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            self.server(master).command(&command);
        }
        for node in self.nodes() {
            self.server(node).command(&["CLUSTER", "SET-CONFIG-EPOCH", &(node.0 + 1).to_string()]);
        }
    }

    /// Each to each: hearing of one another from a third takes longer.
    fn introduce_everybody(&self) {
        for node in self.nodes() {
            for other in self.nodes().into_iter().filter(|other| *other > node) {
                let announced = self.address(other);
                let bus = self.nodes.get(other).own_address().port() + BUS_OFFSET;
                let [ip, port, bus] = [announced.ip().to_string(), announced.port().to_string(), bus.to_string()];
                self.server(node).command(&["CLUSTER", "MEET", &ip, &port, &bus]);
            }
        }
    }

    fn wait_for_acquaintance(&self) {
        wait::until(
            "all nodes know each other",
            ACQUAINTANCE,
            || self.nodes.log_tails(),
            || {
                let mut expected = self.names.clone();
                expected.sort();
                for (_, server) in self.nodes.running() {
                    let mut known: Vec<_> = node_view(server)?.known().map(str::to_owned).collect();
                    known.sort();
                    if known != expected {
                        return Err(format!("{:?} knows {known:?}", server.address()));
                    }
                }
                Ok(())
            },
        );
    }
}
