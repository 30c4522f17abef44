//! The faults, and the bars of each.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::workload::LEASED_PERMITS_PER_SECOND;
use super::workload::PERMITS_PER_SECOND;
use super::workload::leased;
use super::workload::{Workload, algorithms, algorithms_and_several_limits};
use super::{Bar, Miss, RowReport, cluster, sentinels, server};
use crate::transport::Transport;

/// A store, and the fault that is injected into it.
pub trait Scene: fmt::Debug {
    /// Returns the URL for the limiter.
    fn url(&self) -> String;

    /// Returns the PEM file of the authority that the limiter must trust, if the store has TLS.
    fn ca_certificate(&self) -> Option<PathBuf>;

    /// Injects the fault.
    fn inject(&mut self, lasting: Duration);

    /// Waits while the fault lasts.
    fn hold(&self, length: Duration) {
        std::thread::sleep(length);
    }

    /// Repairs the fault, or waits for its repair, and returns the time of the repair.
    fn repair(&mut self) -> Instant;

    /// Returns the number of connection attempts since the fault and the greatest number of concurrent ones, if they
    /// are counted.
    fn connection_attempts(&self) -> Option<(u64, usize)> {
        None
    }
}

/// One fault, with its load and its bars.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name, as on the command line.
    pub name: &'static str,
    /// The description of the fault.
    pub fault: &'static str,
    /// The length of the fault, unless a failover determines it.
    pub length: Duration,
    /// The bars.
    pub bar: Bar,
    /// The number of limiters. Each has its own connection, thread and standby limiter, like a process.
    pub processes: u32,
    /// The `instances` of each limiter: its standby limiter admits that part of each limit.
    pub instances: u32,
    /// True if the limiters have leases. Then leases must admit a quarter of what the store admits. They admit more while
    /// the limit has permits left, but a row is to reach its limit.
    pub leases: bool,
    /// The transport of the limiters' connections, and of those between the servers of a cluster or behind sentinels.
    pub transport: Transport,
    /// Returns the workloads for windows of this length. They share the tasks and the calls equally.
    pub workloads: fn(Duration) -> Vec<Workload>,
    /// The number of tasks.
    pub tasks: u32,
    /// The calls per second of each workload in the first window of a run. It is the rate of the limits.
    pub initial_calls_per_second: u32,
    /// The calls per second of all tasks together.
    pub calls_per_second: u32,
    /// The additional bars of this row, for a machine that is not busy.
    pub extra_check: fn(&RowReport) -> Vec<Miss>,
    /// Starts a store with this transport, and the fault's scene.
    pub start_scene: fn(Transport) -> Box<dyn Scene>,
}

/// One process admits nothing beyond the limit, and the store decides again within a second after it replies again.
const DEFAULT_BAR: Bar = Bar { excess_windows: 0, max_recovery: Duration::from_secs(1), needs_standby: true };

/// The caller notices nothing.
const UNNOTICED_BAR: Bar = Bar { needs_standby: false, ..DEFAULT_BAR };

/// The other servers must learn of a new master first.
const FAILOVER_BAR: Bar = Bar { max_recovery: Duration::from_secs(2), ..DEFAULT_BAR };

/// A process does not know the permits that the other one got beyond its half just before the master died.
const TWO_PROCESS_BAR: Bar = Bar { excess_windows: 1, ..FAILOVER_BAR };

const DEFAULT_FAULT_LENGTH: Duration = Duration::from_secs(5);

/// Returns all rows, in the order of the report.
#[must_use]
pub fn rows() -> Vec<Row> {
    vec![
        default_row("kill", "`kill -9` and a restart without persistence", DEFAULT_BAR, |transport| {
            server::KILL.start_scene(transport)
        }),
        default_row("stop", "`SIGSTOP`, `SIGCONT`", DEFAULT_BAR, |transport| server::STOP.start_scene(transport)),
        default_row("cut", "connections are cut, and new ones refused", DEFAULT_BAR, |transport| {
            server::CUT.start_scene(transport)
        }),
        default_row("half-open", "half-open connections: the peer is gone", DEFAULT_BAR, |transport| {
            server::HALF_OPEN.start_scene(transport)
        }),
        default_row("stall", "the network discards everything", DEFAULT_BAR, |transport| {
            server::STALL.start_scene(transport)
        }),
        default_row("delay", "replies come 300 ms late", DEFAULT_BAR, |transport| server::DELAY.start_scene(transport)),
        default_row("garble", "replies are garbled", DEFAULT_BAR, |transport| server::GARBLE.start_scene(transport)),
        default_row("cut-reply", "connections end in the middle of a reply", DEFAULT_BAR, |transport| {
            server::CUT_REPLY.start_scene(transport)
        }),
        default_row("script-flush", "`SCRIPT FLUSH`, twice", UNNOTICED_BAR, |transport| {
            server::SCRIPT_FLUSH.start_scene(transport)
        }),
        default_row(
            "flushall",
            "`FLUSHALL` on a healthy connection",
            Bar { excess_windows: 1, ..UNNOTICED_BAR },
            |transport| server::FLUSHALL.start_scene(transport),
        ),
        default_row("maxmemory", "`maxmemory` is reached (`noeviction`)", DEFAULT_BAR, |transport| {
            server::MAXMEMORY.start_scene(transport)
        }),
        default_row("acl", "the user's permissions are revoked", DEFAULT_BAR, |transport| {
            server::ACL.start_scene(transport)
        }),
        default_row("password", "the password is changed, connections closed", DEFAULT_BAR, |transport| {
            server::PASSWORD_CHANGED.start_scene(transport)
        }),
        default_row("sentinel", "Sentinel: the master is killed", FAILOVER_BAR, sentinels::failover),
        Row {
            processes: 2,
            instances: 2,
            ..default_row(
                "two",
                "Sentinel: the master is killed, two processes, `instances(2)`",
                TWO_PROCESS_BAR,
                sentinels::failover,
            )
        },
        default_row("cluster", "Cluster: the key's master is killed", FAILOVER_BAR, cluster::killed_master),
        Row {
            processes: 3,
            workloads: algorithms_and_several_limits,
            extra_check: cluster::check_call_times,
            ..default_row(
                "slots",
                "Cluster: the keys' slot moves repeatedly, three processes",
                UNNOTICED_BAR,
                cluster::moving_slots,
            )
        },
        Row {
            length: Duration::from_secs(10),
            tasks: 10_000,
            calls_per_second: 10_000,
            ..default_row("reconnect", "10 000 tasks, half-open connections", DEFAULT_BAR, |transport| {
                server::HALF_OPEN.start_scene(transport)
            })
        },
        Row {
            length: Duration::from_secs(30),
            ..default_row("outage", "`kill -9` and a restart after a long outage", DEFAULT_BAR, |transport| {
                server::KILL.start_scene(transport)
            })
        },
    ]
}

/// Returns a row with the default load: 200 tasks, and four calls for each permit.
fn default_row(name: &'static str, fault: &'static str, bar: Bar, start_scene: fn(Transport) -> Box<dyn Scene>) -> Row {
    Row {
        name,
        fault,
        length: DEFAULT_FAULT_LENGTH,
        bar,
        processes: 1,
        instances: 1,
        leases: false,
        transport: Transport::Plain,
        workloads: algorithms,
        tasks: 200,
        initial_calls_per_second: PERMITS_PER_SECOND,
        calls_per_second: 4_000,
        extra_check: |_| Vec::new(),
        start_scene,
    }
}

impl Row {
    /// Returns this row with TLS. Its bars are the same.
    #[must_use]
    pub fn with_tls(self) -> Self {
        Self { transport: Transport::Tls, ..self }
    }

    /// Returns this row with leases: one limit that can be leased, which tasks call at twice its rate.
    ///
    /// Its bars are the same. A lease changes neither the limit nor the permits that the mirror of its process knows.
    #[must_use]
    pub fn with_leases(self) -> Self {
        Self {
            leases: true,
            workloads: leased,
            initial_calls_per_second: LEASED_PERMITS_PER_SECOND,
            calls_per_second: 2 * LEASED_PERMITS_PER_SECOND,
            ..self
        }
    }
}

/// Returns the row of this name.
#[must_use]
pub fn row(name: &str) -> Option<Row> {
    rows().into_iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scene_has_the_transport_of_its_row() {
        for (name, scheme) in [
            ("kill", "rediss"),
            ("sentinel", "rediss-sentinel"),
            ("cluster", "rediss-cluster"),
            ("slots", "rediss-cluster"),
        ] {
            let row = row(name).expect("a row of that name").with_tls();
            let scene = (row.start_scene)(row.transport);
            assert!(scene.url().starts_with(&format!("{scheme}://")), "{name}: {}", scene.url());
            assert!(scene.ca_certificate().is_some(), "{name}");
        }
        let row = row("kill").expect("a row of that name");
        let scene = (row.start_scene)(row.transport);
        assert!(scene.url().starts_with("redis://") && scene.ca_certificate().is_none(), "{}", scene.url());
    }
}
