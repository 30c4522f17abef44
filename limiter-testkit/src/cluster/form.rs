//! Joins separate nodes to a cluster.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::settle::node_view;
use super::{Cluster, SLOTS};
use crate::nodes::{NodeId, Nodes};
use crate::server::BUS_OFFSET;
use crate::wait;

/// The time in which every node must know all other nodes.
const MEET_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which nodes are introduced again.
const REPEAT_MEET_AFTER: Duration = Duration::from_secs(1);

impl Cluster {
    /// Joins nodes of which the first ones are masters, and each further one is the replica of one of these.
    pub(super) fn form(nodes: Nodes, masters: usize) -> Self {
        let name = |id: NodeId| nodes.get(id).server.command(&["CLUSTER", "MYID"]).text();
        let names = nodes.ids().map(name).collect();
        let cluster = Self { nodes, names, former_replicas: BTreeMap::new() };
        cluster.assign_slots(masters);
        cluster.introduce_nodes();
        cluster.wait_for_known_nodes();
        for replica in &cluster.nodes()[masters..] {
            let master = cluster.name(NodeId(replica.0 - masters));
            cluster.server(*replica).command(&["CLUSTER", "REPLICATE", master]);
        }
        cluster.settle();
        cluster
    }

    /// Assigns the slots while the nodes are separate, so that there is nothing to agree on.
    fn assign_slots(&self, masters: usize) {
        let masters = u16::try_from(masters).expect("a few");
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

    /// Introduces each node to each other one. Gossip alone would take longer.
    fn introduce_nodes(&self) {
        for node in self.nodes() {
            for other in self.nodes().into_iter().filter(|other| *other > node) {
                let announced = self.address(other);
                let bus = self.nodes.get(other).own_address().port() + BUS_OFFSET;
                let [ip, port, bus] = [announced.ip().to_string(), announced.port().to_string(), bus.to_string()];
                self.server(node).command(&["CLUSTER", "MEET", &ip, &port, &bus]);
            }
        }
    }

    /// Waits until every node knows all others. A busy node may lose an introduction, so they are repeated.
    fn wait_for_known_nodes(&self) {
        let introduced_at = Cell::new(Instant::now());
        wait::poll_until(
            "every node knows all other nodes",
            MEET_TIMEOUT,
            || self.nodes.log_tails(),
            || {
                let mut expected = self.names.clone();
                expected.sort();
                for (_, server) in self.nodes.running() {
                    let mut known: Vec<_> = node_view(server)?.known().map(str::to_owned).collect();
                    known.sort();
                    if known != expected {
                        if introduced_at.get().elapsed() >= REPEAT_MEET_AFTER {
                            self.introduce_nodes();
                            introduced_at.set(Instant::now());
                        }
                        return Err(format!("{:?} knows {known:?}", server.address()));
                    }
                }
                Ok(())
            },
        );
    }
}
