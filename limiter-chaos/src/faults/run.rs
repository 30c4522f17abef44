//! Runs one row.

use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_testkit::poll_until;
use limiter_testkit::stalls::Stalls;
use rate_limited::{Decision, Key, Limit, Limiter, Source};
use tokio::runtime;

use super::load::{HANG_TIMEOUT, LoadProfile, WorkloadTasks};
use super::report::RunRecord;
use super::server_windows::Epoch;
use super::workload::MIN_LEASED_WINDOW;
use super::{Row, RowReport};
use crate::transport::limiter_builder;

/// The deadline of a call, which is the default.
const CALL_DEADLINE: Duration = Duration::from_millis(100);
/// The longest start. An attempt to connect takes half a second, also on a machine that stands still.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const WORKER_THREADS: usize = 2;

/// The lengths of the phases of a run.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The window of the limits, each of which allows 200 permits a second.
    pub window: Duration,
    /// The phase before the fault: at least two windows, of which the first is filled slowly.
    pub healthy: Duration,
    /// The greatest length of a fault, unless a failover determines it.
    pub fault: Duration,
    /// The phase after the recovery, beyond the two windows for which a permit may count.
    pub after: Duration,
}

impl Pace {
    /// The lengths for docs/reliability.md.
    pub const FULL: Self = Self {
        window: Duration::from_secs(1),
        healthy: Duration::from_secs(4),
        fault: Duration::from_secs(30),
        after: Duration::from_secs(4),
    };

    /// The shortest lengths for meaningful figures on a machine that is not busy.
    pub const QUICK: Self = Self {
        window: Duration::from_millis(500),
        healthy: Duration::from_millis(1_500),
        fault: Duration::from_millis(1_500),
        after: Duration::from_millis(1_500),
    };

    /// The shortest lengths that still test the guarantees.
    pub const SHORT: Self = Self {
        window: Duration::from_millis(300),
        healthy: Duration::from_millis(700),
        fault: Duration::from_millis(600),
        after: Duration::from_millis(400),
    };
}

impl Pace {
    /// Returns lengths with a window for which limits are leased.
    fn for_leases(self) -> Self {
        let window = self.window.max(MIN_LEASED_WINDOW);
        Self { window, healthy: self.healthy.max(2 * window), ..self }
    }
}

/// Runs a row. `progress` receives the name of each phase as it begins.
///
/// # Panics
///
/// The servers do not start or do not recover, or a call hangs.
#[must_use]
pub fn run(row: &Row, pace: &Pace, progress: &dyn Fn(&str)) -> RowReport {
    progress("start");
    let pace = &if row.leases { pace.for_leases() } else { *pace };
    let mut scene = (row.start_scene)(row.transport);
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let builder = || {
        let builder = limiter_builder(&scene.url(), scene.ca_certificate()).deadline(CALL_DEADLINE);
        builder.instances(row.instances).leases(row.leases)
    };
    let connected = |_| {
        let connect = || runtime.block_on(builder().connect()).map_err(|error| error.to_string());
        poll_until("a connection to the store", START_TIMEOUT, String::new, connect)
    };
    let limiters: Vec<_> = (0..row.processes).map(connected).collect();
    let workloads = (row.workloads)(pace.window);
    let parts = u32::try_from(workloads.len()).expect("a few");

    let origin = Instant::now();
    let epoch = Epoch::read(origin);
    let stalls = Stalls::watch(origin);
    let profile = LoadProfile {
        tasks: row.tasks / parts,
        initial_calls_per_second: row.initial_calls_per_second,
        calls_per_second: row.calls_per_second / parts,
    };
    let start_workload = |workload| WorkloadTasks::start(runtime.handle(), &limiters, workload, profile, origin);
    let loads: Vec<_> = workloads.iter().map(start_workload).collect();
    progress("healthy");
    sleep(pace.healthy);
    let (failed_at, length) = (origin.elapsed(), row.length.min(pace.fault));
    progress("fault");
    scene.inject(length);
    scene.hold(length);
    let repaired = scene.repair();
    progress("recovery");
    let has_recovered = runtime.block_on(wait_for_recovery(&limiters));
    sleep(2 * pace.window + pace.after);
    progress("evaluation");
    let ended_at = origin.elapsed();
    let calls: Vec<_> = loads.into_iter().map(|load| runtime.block_on(load.end())).collect();
    let stalls = stalls.end();
    let attempts = scene.connection_attempts();
    let epoch = Some(epoch).filter(|epoch| epoch.agrees(Epoch::read(origin)));
    let report = |(workload, calls): (_, &Vec<_>)| {
        let repaired_at = repaired - origin;
        RunRecord { workload, calls, stalls: &stalls, deadline: CALL_DEADLINE, epoch, failed_at, repaired_at, ended_at }
            .report()
    };
    RowReport {
        deadline: CALL_DEADLINE,
        workloads: workloads.iter().zip(&calls).map(report).collect(),
        has_recovered,
        attempts: attempts.map(|(attempts, _)| attempts),
        max_concurrent_attempts: attempts.map(|(_, at_once)| at_once),
    }
}

/// Waits until the store decides again for each of the limiters, however long the machine takes. Returns false if it
/// does not. The probe takes no permits, so that the standby limiter uses none up meanwhile.
pub(super) async fn wait_for_recovery(limiters: &[Limiter]) -> bool {
    let (give_up_at, limit) = (Instant::now() + HANG_TIMEOUT, "1000000/s".parse::<Limit>().expect("a limit"));
    for limiter in limiters {
        loop {
            match limiter.peek(&Key::new("probe"), &limit).await {
                Ok(Decision::Allowed(allowed)) if allowed.source() == Source::Store => break,
                _ if Instant::now() > give_up_at => return false,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
    true
}
