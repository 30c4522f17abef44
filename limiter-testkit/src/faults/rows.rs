//! The faults, and what a limiter must keep to in each.

use std::fmt;
use std::time::{Duration, Instant};

use super::subject::{Subject, algorithms, algorithms_and_several_limits};
use super::{Bar, Miss, RowReport, cluster, sentinels, server};

/// A store, and what befalls it.
pub trait Scene: fmt::Debug {
    /// For the limiter.
    fn url(&self) -> String;

    /// Does the harm.
    fn breaks(&mut self, lasting: Duration);

    /// Returns when it has lasted.
    fn lasts(&self, length: Duration) {
        std::thread::sleep(length);
    }

    /// Undoes it, or waits for who does; since when it is undone.
    fn mends(&mut self) -> Instant;

    /// Connections that were tried since the harm, and how many of them at one moment, where they can be counted.
    fn attempts(&self) -> Option<(u64, usize)> {
        None
    }
}

/// One fault.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// What it is asked for by.
    pub name: &'static str,
    /// What happens.
    pub fault: &'static str,
    /// How long, unless it is for others to decide.
    pub lasts: Duration,
    /// What must be kept to.
    pub bar: Bar,
    /// How many limiters, each with a connection, a thread and a stand-in of its own, as if they were processes.
    pub processes: u32,
    /// How many processes each of them is told of: its stand-in lets in that part of each limit.
    pub instances: u32,
    /// What is called for, by windows of this length; the tasks and their calls are shared out equally.
    pub subjects: fn(Duration) -> Vec<Subject>,
    /// Who call.
    pub tasks: u32,
    /// How often all together.
    pub calls_a_second: u32,
    /// What this row alone must keep to, on a machine that has time for it.
    pub judge: fn(&RowReport) -> Vec<Miss>,
    /// Where it happens.
    pub scene: fn() -> Box<dyn Scene>,
}

/// From one process nothing is admitted beyond the limit, and a second after the store answers it decides again.
const USUAL: Bar = Bar { over: 0, back: Duration::from_secs(1), stands_in: true };

/// Nothing that a caller notices.
const UNNOTICED: Bar = Bar { stands_in: false, ..USUAL };

/// Others have to hear of a new master first.
const FAILOVER: Bar = Bar { back: Duration::from_secs(2), ..USUAL };

/// What one was given beyond its half when the master died, the other does not know.
const TWO: Bar = Bar { over: 1, ..FAILOVER };

const FIVE: Duration = Duration::from_secs(5);

/// All of them, in the order of the report.
#[must_use]
pub fn rows() -> Vec<Row> {
    vec![
        on_server("kill", "`kill -9` and a restart without persistence", USUAL, || server::KILL.scene()),
        on_server("stop", "`SIGSTOP`, `SIGCONT`", USUAL, || server::STOP.scene()),
        on_server("cut", "connections are cut, and new ones refused", USUAL, || server::CUT.scene()),
        on_server("half-open", "half-open connections: the other end is gone", USUAL, || server::HALF_OPEN.scene()),
        on_server("stall", "the network swallows everything", USUAL, || server::STALL.scene()),
        on_server("delay", "replies come 300 ms late", USUAL, || server::DELAY.scene()),
        on_server("garble", "replies are garbled", USUAL, || server::GARBLE.scene()),
        on_server("cut-reply", "connections end in the middle of a reply", USUAL, || server::CUT_REPLY.scene()),
        on_server("script-flush", "`SCRIPT FLUSH`, twice", UNNOTICED, || server::SCRIPT_FLUSH.scene()),
        on_server("flushall", "`FLUSHALL` on a sound connection", Bar { over: 1, ..UNNOTICED }, || {
            server::FLUSHALL.scene()
        }),
        on_server("maxmemory", "`maxmemory` is reached (`noeviction`)", USUAL, || server::MAXMEMORY.scene()),
        on_server("acl", "the user's rights are taken away", USUAL, || server::ACL.scene()),
        on_server("password", "the password is changed, connections closed", USUAL, || {
            server::PASSWORD_CHANGED.scene()
        }),
        on_server("sentinel", "Sentinel: the master is killed", FAILOVER, sentinels::failover),
        Row {
            processes: 2,
            instances: 2,
            ..on_server("two", "the same for two processes, `instances(2)`", TWO, sentinels::failover)
        },
        on_server("cluster", "Cluster: the key's master is killed", FAILOVER, cluster::death_of_a_master),
        Row {
            processes: 3,
            subjects: algorithms_and_several_limits,
            judge: cluster::no_call_waits_for_a_slot,
            ..on_server(
                "slots",
                "Cluster: the keys' slot moves again and again, three processes",
                UNNOTICED,
                cluster::moving_slots,
            )
        },
        Row {
            lasts: Duration::from_secs(10),
            tasks: 10_000,
            calls_a_second: 10_000,
            ..on_server("reconnect", "10 000 tasks while connections lead nowhere", USUAL, || server::HALF_OPEN.scene())
        },
        Row {
            lasts: Duration::from_secs(30),
            ..on_server("outage", "killed, and away for long", USUAL, || server::KILL.scene())
        },
    ]
}

/// 200 tasks, and four calls for each permit.
fn on_server(name: &'static str, fault: &'static str, bar: Bar, scene: fn() -> Box<dyn Scene>) -> Row {
    Row {
        name,
        fault,
        lasts: FIVE,
        bar,
        processes: 1,
        instances: 1,
        subjects: algorithms,
        tasks: 200,
        calls_a_second: 4_000,
        judge: |_| Vec::new(),
        scene,
    }
}

/// The one of this name.
#[must_use]
pub fn row(name: &str) -> Option<Row> {
    rows().into_iter().find(|row| row.name == name)
}
