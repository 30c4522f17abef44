//! Faults of a cluster: a killed master, and slots that move under load.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::{Cluster, NodeId, slot_of};

use super::workload::KEY_NAME;
use super::{Miss, RowReport, Scene};
use crate::transport::Transport;

#[derive(Debug)]
struct KilledMaster {
    cluster: Cluster,
    victim: NodeId,
}

/// Creates a scene that kills the owner of the key's slot. Its replica has the data that asynchronous replication had
/// copied by then.
pub(super) fn killed_master(transport: Transport) -> Box<dyn Scene> {
    let cluster = transport.cluster().start();
    let victim = cluster.master_of(slot_of(KEY_NAME.as_bytes()));
    Box::new(KilledMaster { cluster, victim })
}

impl Scene for KilledMaster {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn ca_certificate(&self) -> Option<PathBuf> {
        self.cluster.ca_certificate()
    }

    fn inject(&mut self, _lasting: Duration) {
        self.cluster.kill(self.victim);
    }

    fn hold(&self, _length: Duration) {
        // The fault lasts until the promotion, for which `repair` waits.
        thread::yield_now();
    }

    fn repair(&mut self) -> Instant {
        self.cluster.wait_for_promotion(self.victim).at
    }
}

#[derive(Debug)]
struct MovingSlots(Cluster);

/// Creates a scene that moves the keys' slot from master to master during the whole fault.
pub(super) fn moving_slots(transport: Transport) -> Box<dyn Scene> {
    Box::new(MovingSlots(transport.cluster().masters_only().start()))
}

impl Scene for MovingSlots {
    fn url(&self) -> String {
        self.0.url()
    }

    fn ca_certificate(&self) -> Option<PathBuf> {
        self.0.ca_certificate()
    }

    fn inject(&mut self, _lasting: Duration) {}

    fn hold(&self, length: Duration) {
        let end = Instant::now() + length;
        let slot = slot_of(KEY_NAME.as_bytes());
        while Instant::now() < end {
            let from = self.0.master_of(slot);
            let to = self.0.masters().into_iter().find(|master| *master != from).expect("three masters");
            let migration = self.0.begin_migration(slot, to);
            thread::sleep(Duration::from_millis(50)); // calls are redirected meanwhile
            // Between two steps the keys of one decision are on different nodes.
            while migration.move_keys(1) > 0 {
                thread::sleep(Duration::from_millis(2));
            }
            thread::sleep(Duration::from_millis(50));
            migration.finish();
        }
    }

    fn repair(&mut self) -> Instant {
        Instant::now()
    }
}

/// The longest time of a call while its slot moves: a few round trips, and no deadline.
const MAX_CALL_TIME: Duration = Duration::from_millis(20);

/// Checks the longest calls. A moving slot is no outage, not even for decisions whose keys are split between two nodes.
pub(super) fn check_call_times(report: &RowReport) -> Vec<Miss> {
    let longest = report.workloads.iter().map(|workload| (workload.name, workload.longest_without_stalls));
    let slow_calls = longest.filter(|(_, longest)| *longest > MAX_CALL_TIME);
    slow_calls
        .map(|(name, longest)| Miss(format!("{name}: a call took {longest:.1?}, at most {MAX_CALL_TIME:?} allowed")))
        .collect()
}
