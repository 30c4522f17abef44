//! Several processes with one limit on one real server, stopped at random, and an evaluation outside of the limiter.
//!
//! A process with leases admits calls without a request to the store. So no store and no limiter has a record of all
//! admissions. Here each process records the begin and the end of each admitted call by a clock that all processes
//! share. Each call took its permit at some instant between the two. [`FleetReport::fullest_window`] is the greatest
//! number of calls that certainly lie in one window.
//!
//! The processes are stopped (`SIGSTOP`) and continued at random. A pause anywhere in a call is a pause between a look
//! at a lease and the use of its permit. The server is never stopped.
//!
//! The program `fleet` runs it by hand, and the tests run it for a short time.

use std::process::Command;
use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::Limit;

mod admitted;
mod load;
mod member;
mod pauses;
mod processes;

use admitted::AdmittedCall;
pub use load::{InvalidLoad, ProcessLoad};
use member::MemberOptions;
pub use member::{ProcessReport, is_member, run_member};
use processes::Processes;

/// The parameters of one run.
#[derive(Debug, Clone)]
pub struct FleetPlan {
    /// The limit, a sliding window.
    pub limit: Limit,
    /// The calls of each process.
    pub loads: Vec<ProcessLoad>,
    /// The time for which each process makes calls.
    pub length: Duration,
    /// The longest time for which a process is stopped. With zero, none is.
    pub max_pause: Duration,
    /// The seed of the pauses. The machine's timing is not repeated.
    pub seed: u64,
    /// True for limiters with leases.
    pub leases: bool,
    /// True if limits are leased that are too small for it by default.
    pub lease_any_limit: bool,
    /// The number of threads of each process that make calls.
    pub threads: usize,
}

/// The result of one run.
#[derive(Debug, Clone)]
pub struct FleetReport {
    /// The greatest number of admitted calls that certainly lie in one half-open window, among those shorter than a
    /// window.
    pub fullest_window: u64,
    /// The share of the limit that was used, by the time that all limits but one took, from the middle of the first on.
    /// `None` if fewer than two limits were used up.
    pub share_used: Option<f64>,
    /// The number of times that a process was stopped.
    pub pauses: u32,
    /// The number of script calls of all processes.
    pub script_calls: u64,
    /// The results of each process, in the order of the loads.
    pub processes: Vec<ProcessReport>,
}

impl FleetReport {
    /// Returns true if no window certainly contains more than `max` calls of the limit.
    #[must_use]
    pub fn is_within(&self, limit: Limit) -> bool {
        self.fullest_window <= u64::from(limit.max())
    }

    /// Returns the number of calls that leases admitted.
    #[must_use]
    pub fn admitted_by_lease(&self) -> u64 {
        self.processes.iter().map(|process| process.by_lease).sum()
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.processes.iter().map(|process| process.calls).sum()
    }
}

/// Runs the processes to their end. `command` starts a process that calls [`run_member`] if [`is_member`].
///
/// # Panics
///
/// A process fails or does not end in time. The message has its output.
#[must_use]
pub fn run(plan: &FleetPlan, server: &RedisServer, command: impl Fn() -> Command) -> FleetReport {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let (url, prefix) = (server.url(), unique("fleet"));
    let members = plan.loads.iter().zip(0..).map(|(load, index): (_, u32)| MemberOptions {
        url: url.clone(),
        prefix: prefix.clone(),
        limit: plan.limit,
        load: *load,
        length: plan.length,
        leases: plan.leases,
        lease_any_limit: plan.lease_any_limit,
        threads: plan.threads,
        records: directory.path().join(format!("process-{index}")),
    });
    let members: Vec<_> = members.collect();
    let script_calls_before = server.script_calls();
    let pauses = Processes::start(&members, command).run(plan.length, plan.max_pause, plan.seed);

    let (mut admitted, mut processes) = (Vec::new(), Vec::new());
    for member in &members {
        processes.push(member.read_records(&mut admitted));
    }
    FleetReport {
        fullest_window: admitted::max_in_window(&admitted, plan.limit.window()),
        share_used: admitted::share_used(&admitted, plan.limit),
        pauses,
        script_calls: server.script_calls() - script_calls_before,
        processes,
    }
}
