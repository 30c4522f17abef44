//! One of the processes: it makes calls and records those that are admitted.
//!
//! A file has the records of a process: its counts, and begin and end of each admitted call, all as numbers of 8 bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use rate_limited::{Decision, Key, Limit, Limiter, OnError, Source};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use super::{AdmittedCall, ProcessLoad};

/// The options of one process. Its parent passes them in environment variables.
#[derive(Debug, Clone)]
pub(super) struct MemberOptions {
    pub(super) url: String,
    pub(super) prefix: String,
    pub(super) limit: Limit,
    pub(super) load: ProcessLoad,
    pub(super) length: Duration,
    pub(super) leases: bool,
    pub(super) lease_any_limit: bool,
    pub(super) threads: usize,
    /// The file for the records.
    pub(super) records: PathBuf,
}

/// The counts of one process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessReport {
    /// The number of calls.
    pub calls: u64,
    /// The number of calls that leases admitted.
    pub by_lease: u64,
    /// The number of calls that the store admitted.
    pub by_store: u64,
    /// The number of calls that were admitted otherwise.
    pub by_others: u64,
    /// The number of calls that failed.
    pub failed: u64,
}

/// Counts and records of one task.
#[derive(Default)]
struct Calls {
    counts: ProcessReport,
    admitted: Vec<AdmittedCall>,
}

/// The state that the tasks of a process share.
struct Shared {
    limiter: Limiter,
    key: Key,
    limit: Limit,
    /// The time of the first call, in nanoseconds of the clock.
    start: u64,
    until: u64,
}

/// The times at which one task makes its calls.
#[derive(Clone, Copy)]
struct TaskPace {
    /// The delay of the first call, in nanoseconds.
    delay: u64,
    /// The time between two calls, in nanoseconds. `None` for calls one after the other.
    interval: Option<u64>,
}

const VARIABLES: [&str; 9] = [
    "LIMITER_FLEET_URL",
    "LIMITER_FLEET_PREFIX",
    "LIMITER_FLEET_LIMIT",
    "LIMITER_FLEET_LOAD",
    "LIMITER_FLEET_MILLIS",
    "LIMITER_FLEET_LEASES",
    "LIMITER_FLEET_LEASE_ANY_LIMIT",
    "LIMITER_FLEET_THREADS",
    "LIMITER_FLEET_RECORDS",
];
/// The deadline of a call, longer than all pauses of a run.
const CALL_DEADLINE: Duration = Duration::from_secs(60);
/// A call is made early by this time at most, because the timers of the runtime have milliseconds.
const EARLY_NANOS: u64 = 1_500_000;
/// The number of calls after which a task lets others run. A call by a lease does not wait.
const CALLS_IN_TURN: u64 = 64;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

impl MemberOptions {
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        let values = [
            self.url.clone(),
            self.prefix.clone(),
            self.limit.to_string(),
            self.load.to_string(),
            self.length.as_millis().to_string(),
            self.leases.to_string(),
            self.lease_any_limit.to_string(),
            self.threads.to_string(),
            self.records.display().to_string(),
        ];
        VARIABLES.into_iter().zip(values)
    }

    fn from_environment() -> Self {
        let [url, prefix, limit, load, millis, leases, lease_any_limit, threads, records] =
            VARIABLES.map(|name| env::var(name).unwrap_or_else(|error| panic!("{name}: {error}")));
        Self {
            url,
            prefix,
            limit: limit.parse().expect("a limit"),
            load: load.parse().expect("a load"),
            length: Duration::from_millis(millis.parse().expect("a number")),
            leases: leases.parse().expect("true or false"),
            lease_any_limit: lease_any_limit.parse().expect("true or false"),
            threads: threads.parse().expect("a number"),
            records: records.into(),
        }
    }

    /// Reads the records of the process. Adds its admitted calls to those of others.
    pub(super) fn read_records(&self, admitted: &mut Vec<AdmittedCall>) -> ProcessReport {
        let bytes = fs::read(&self.records).expect("the records of a process");
        let mut numbers = bytes.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
        let mut next = || numbers.next();
        let [calls, by_lease, by_store, by_others, failed] = [(); 5].map(|()| next().expect("5 counts"));
        while let Some((begin, end)) = next().zip(next()) {
            admitted.push(AdmittedCall { begin, end });
        }
        ProcessReport { calls, by_lease, by_store, by_others, failed }
    }
}

impl ProcessReport {
    /// Returns the number of calls that were admitted.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.by_lease + self.by_store + self.by_others
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.by_lease += other.by_lease;
        self.by_store += other.by_store;
        self.by_others += other.by_others;
        self.failed += other.failed;
    }
}

/// Returns true in a process that [`run`](super::run) has started.
#[must_use]
pub fn is_member() -> bool {
    env::var_os(VARIABLES[0]).is_some()
}

/// Makes the calls of one process, by the options of its environment, and writes its records.
///
/// # Panics
///
/// An option is missing, or the server cannot be reached.
pub fn run_member() {
    let options = MemberOptions::from_environment();
    if options.lease_any_limit {
        Limit::lease_any();
    }
    let runtime = Builder::new_multi_thread().worker_threads(options.threads).enable_time().build();
    let calls = runtime.expect("a runtime").block_on(make_calls(&options));
    write_records(&options.records, &calls);
}

async fn make_calls(options: &MemberOptions) -> Vec<Calls> {
    let builder = Limiter::builder().url(&options.url).prefix(&options.prefix).leases(options.leases);
    let limiter = builder.deadline(CALL_DEADLINE).on_error(OnError::Raise).connect().await.expect("connects");
    let start = now();
    let until = start + u64::try_from(options.length.as_nanos()).expect("a time of a run");
    let shared = Arc::new(Shared { limiter, key: Key::new("busy"), limit: options.limit, start, until });
    let tasks = options.load.tasks.get();
    let interval =
        options.load.calls_per_second.map(|rate| NANOS_PER_SECOND * u64::from(tasks) / u64::from(rate.get()));
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let delay = interval.map_or(0, |interval| interval * u64::from(task) / u64::from(tasks));
        running.spawn(call_repeatedly(Arc::clone(&shared), TaskPace { delay, interval }));
    }
    running.join_all().await
}

async fn call_repeatedly(shared: Arc<Shared>, pace: TaskPace) -> Calls {
    let Shared { limiter, key, limit, start, until } = &*shared;
    let Calls { mut counts, mut admitted } = Calls::default();
    loop {
        let begin = now();
        if begin >= *until {
            return Calls { counts, admitted };
        }
        if let Some(interval) = pace.interval {
            let due = start + pace.delay + counts.calls * interval;
            if due > begin + EARLY_NANOS {
                sleep(Duration::from_nanos(due.min(*until) - begin)).await;
                continue;
            }
        }
        let decision = limiter.check(key, limit).await;
        let end = now();
        counts.calls += 1;
        match decision {
            Ok(Decision::Allowed(allowed)) => {
                let count = match allowed.source() {
                    Source::Lease => &mut counts.by_lease,
                    Source::Store => &mut counts.by_store,
                    _ => &mut counts.by_others,
                };
                *count += 1;
                admitted.push(AdmittedCall { begin, end });
            }
            Ok(Decision::Denied(_)) => {}
            Err(_) => counts.failed += 1,
        }
        if counts.calls % CALLS_IN_TURN == 0 {
            yield_now().await;
        }
    }
}

/// Returns the time of the monotonic clock, in nanoseconds. All processes of a machine share this clock.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).expect("a time after the start"));
    seconds * NANOS_PER_SECOND + nanos
}

fn write_records(file: &Path, tasks: &[Calls]) {
    let mut counts = ProcessReport::default();
    tasks.iter().for_each(|calls| counts.add(&calls.counts));
    let ProcessReport { calls, by_lease, by_store, by_others, failed } = counts;
    let intervals = tasks.iter().flat_map(|calls| &calls.admitted).flat_map(|call| [call.begin, call.end]);
    let numbers = [calls, by_lease, by_store, by_others, failed].into_iter().chain(intervals);
    let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    fs::write(file, bytes).expect("writing to a temporary directory");
}
