//! A master of a cluster that dies, and slots that move under load.

use std::thread;
use std::time::{Duration, Instant};

use super::subject::KEY;
use super::{Miss, RowReport, Scene};
use crate::cluster::{Cluster, slot_of};
use crate::nodes::NodeId;

#[derive(Debug)]
struct Death {
    cluster: Cluster,
    victim: NodeId,
}

/// Of the master that has the key. Its replica has what asynchronous replication had brought it by then.
pub(super) fn death_of_a_master() -> Box<dyn Scene> {
    let cluster = Cluster::start();
    let victim = cluster.master_of(slot_of(KEY.as_bytes()));
    Box::new(Death { cluster, victim })
}

impl Scene for Death {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn breaks(&mut self, _lasting: Duration) {
        self.cluster.kill(self.victim);
    }

    fn lasts(&self, _length: Duration) {
        // Until somebody has taken its place, which `mends` waits for.
        thread::yield_now();
    }

    fn mends(&mut self) -> Instant {
        self.cluster.wait_for_promotion(self.victim).at
    }
}

#[derive(Debug)]
struct Moves(Cluster);

/// The slot of the keys, from one master to the next, for as long as it lasts.
pub(super) fn moving_slots() -> Box<dyn Scene> {
    Box::new(Moves(Cluster::builder().masters_only().start()))
}

impl Scene for Moves {
    fn url(&self) -> String {
        self.0.url()
    }

    fn breaks(&mut self, _lasting: Duration) {}

    fn lasts(&self, length: Duration) {
        let until = Instant::now() + length;
        let slot = slot_of(KEY.as_bytes());
        while Instant::now() < until {
            let from = self.0.master_of(slot);
            let to = self.0.masters().into_iter().find(|master| *master != from).expect("three masters");
            let migration = self.0.begin_migration(slot, to);
            thread::sleep(Duration::from_millis(50)); // those who ask meanwhile are sent on
            // In between, of the counts of one decision some are here and some there.
            while migration.move_keys(1) > 0 {
                thread::sleep(Duration::from_millis(2));
            }
            thread::sleep(Duration::from_millis(50));
            migration.finish();
        }
    }

    fn mends(&mut self) -> Instant {
        Instant::now()
    }
}

/// The longest that a call may take while its slot moves: a few round trips, and no deadline.
const LONGEST: Duration = Duration::from_millis(20);

/// Judges the longest calls: a slot that moves is no outage, also for decisions about several counts that it tears apart.
pub(super) fn no_call_waits_for_a_slot(report: &RowReport) -> Vec<Miss> {
    let longest = report.subjects.iter().map(|subject| (subject.name, subject.longest_on_a_running_machine));
    let slow = longest.filter(|(_, longest)| *longest > LONGEST);
    slow.map(|(name, longest)| Miss(format!("{name}: a call took {longest:.1?}, of {LONGEST:?}"))).collect()
}
