//! The proof at scale: one master of fifteen, with its part of the counts of 10⁹ users, under its part of 10⁶ decisions
//! a second.
//!
//! Masters of a cluster share nothing. So one of them at its full size is the whole, but for the callers. The other
//! fourteen are empty and only serve for the routing.

mod fill;
mod histogram;
mod load;
mod names;
mod oracle;
mod pictures;
mod record;
mod shard;
mod summary;
mod system;
mod watchdog;
mod zipf;

use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rate_limited::{Error, Limit, Limiter, OnError, Rule};
use tokio::runtime;

pub use fill::Filled;
pub use histogram::Histogram;
pub use load::Draws;
pub use oracle::SampledWindows;
pub use record::{LateCall, SecondRow};
pub use shard::{MasterFigures, Shard};
pub use summary::{ScaleBar, bar_table, bars};
pub use system::CpuShares;
pub use watchdog::Watchdog;
pub use zipf::Zipf;

use crate::contestant::{Failure, failed};

/// The masters of the cluster.
const MASTERS: u16 = 15;
/// The rule of all calls.
const RULE: &str = "scale";
/// The window of the counts that are filled. They live for the whole run.
const FILL_WINDOW: Duration = Duration::from_secs(6 * 60 * 60);
/// The memory of the machine that a run leaves free, in bytes.
const FREE_MEMORY: u64 = 5_000_000_000;
/// The latency of a late call: the default deadline of a decision.
const LATE: Duration = Duration::from_millis(100);
/// The users with a large limit, by their rank. With fifteen masters about 67 of them are in the full shard.
const HOT_RANKS: u32 = 1_000;
/// The limit of these users in a window, which can be leased.
const HOT_MAX: u32 = 200_000;
/// The limit of all other users in a window.
const ORDINARY_MAX: u32 = 600;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct ScalePlan {
    /// The counts to fill, or as many as fit.
    pub counts: Option<u64>,
    /// The length of the load.
    pub load: Duration,
    /// Decisions a second.
    pub rate: u32,
    /// The window of the load's limits.
    pub window: Duration,
    /// Shared hashes of a rule with packed counts.
    pub packed: Option<u32>,
}

/// The figures of a run.
#[derive(Debug)]
pub struct ScaleReport {
    /// The version of the servers.
    pub version: String,
    /// The filled counts.
    pub filled: Filled,
    /// The window of the load's limits.
    pub window: Duration,
    /// The draws of names.
    pub draws: Draws,
    /// The figures of each second.
    pub rows: Vec<SecondRow>,
    /// The latencies of all calls.
    pub latencies: Histogram,
    /// The calls that ended late.
    pub late: Vec<LateCall>,
    /// The first failure of a call.
    pub first_failure: Option<Failure>,
    /// Start and end of each time in which the machine stood still.
    pub stalls: Vec<(Duration, Duration)>,
    /// The check of the sampled keys.
    pub sampled: SampledWindows,
}

impl ScalePlan {
    /// Returns the rule of all calls: own keys, or packed counts.
    fn rule(&self) -> Result<Rule, Failure> {
        let rule = self.packed.map_or(Rule::new(), |buckets| Rule::new().packed(buckets));
        Limiter::builder().url("memory:").rule(RULE, rule.clone()).build().map_err(failed)?;
        Ok(rule)
    }

    /// Returns the most bytes that the counts of the load take: each decision of a window has one of its own.
    fn bytes_of_load(&self, bytes_of_count: f64) -> u64 {
        whole(f64::from(self.rate) * self.window.as_secs_f64() * bytes_of_count)
    }
}

/// Fills the shard and runs the load.
///
/// # Errors
///
/// The settings do not fit this machine or this build, a server does not start or fails, or calls hang.
pub fn run(plan: &ScalePlan) -> Result<ScaleReport, Failure> {
    let rule = plan.rule()?;
    let budget = system::available_memory()?.checked_sub(FREE_MEMORY).filter(|&budget| budget > FREE_MEMORY / 10);
    let budget = budget.ok_or("too little memory is free: a run leaves 5 GB of it, and needs 0.5")?;
    let mut shard = Shard::start(budget)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let filled = runtime.block_on(fill::fill(&mut shard, plan))?;

    // Without busy polling: there is one core for the client.
    let builder =
        Limiter::builder().rule(RULE, rule).url(shard.url()).on_error(OnError::Raise).busy_poll(Duration::ZERO);
    let limiter = runtime.block_on(builder.leases(true).connect()).map_err(failed)?;
    let origin = Instant::now();
    let open_loop =
        load::OpenLoop { limiter: &limiter, rate: plan.rate.into(), window: plan.window, time: plan.load, origin };
    let watchdog = Watchdog::start(origin);
    let (seconds, tallies) = channel();
    let (recorded, made) = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let seconds = seconds; // dropped at the end of the load, which ends the record
            let mut sampled = oracle::SampledKeys::default();
            open_loop.run(&seconds, &mut sampled).map(|draws| (draws, sampled))
        });
        (record::record(&tallies, &mut shard), client.join())
    });
    let stalls = watchdog.end();
    let recorded = recorded?;
    let (draws, sampled) = made.map_err(|_| "the client panicked".to_owned())??;
    Ok(ScaleReport {
        version: shard.version(),
        filled,
        window: plan.window,
        draws,
        rows: recorded.rows,
        latencies: recorded.latencies,
        late: recorded.late,
        first_failure: recorded.first_failure,
        stalls,
        sampled: sampled.check(plan.window)?,
    })
}

/// Writes the figures of all seconds and the pictures to a directory.
///
/// # Errors
///
/// A file cannot be written.
pub fn write(report: &ScaleReport, directory: &Path) -> Result<(), Failure> {
    fs::write(directory.join("seconds.csv"), summary::csv(report)).map_err(failed)?;
    pictures::draw(report, directory)
}

/// Returns true if the user of this rank has the large limit.
fn is_hot(rank: u32) -> bool {
    rank <= HOT_RANKS
}

/// Returns the limit of the user of this rank.
fn limit_of(rank: u32, window: Duration) -> Result<Limit, Error> {
    Limit::new(if is_hot(rank) { HOT_MAX } else { ORDINARY_MAX }, window)
}

/// Formats a number with a blank between thousands.
fn group_digits(number: u64) -> String {
    crate::report::table::count(number as f64)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and bytes, which saturate")]
fn whole(figure: f64) -> u64 {
    figure as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: ScalePlan = ScalePlan {
        counts: Some(2_000),
        load: Duration::from_secs(3),
        rate: 2_000,
        window: Duration::from_secs(1),
        packed: None,
    };

    #[test]
    fn a_small_run_fills_decides_and_finds_no_excess() {
        let report = run(&SMALL).expect("a run");
        assert_eq!(report.filled.counts, 2_000);
        let calls: u64 = report.rows.iter().map(|row| row.decisions() + row.failed).sum();
        assert_eq!(calls, report.draws.here, "every planned call ends");
        assert!((5_000..7_000).contains(&calls), "{calls}");
        let share = report.draws.here as f64 / report.draws.all as f64;
        assert!((0.03..0.15).contains(&share), "about a fifteenth: {share}");
        assert!(report.rows.iter().all(|row| row.master.keys >= 2_000 && row.master.used_memory > 0));
        assert!(report.sampled.keys > 10 && report.sampled.violations.is_empty(), "{:?}", report.sampled);

        let directory = std::env::temp_dir().join(format!("limiter-scale-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        write(&report, &directory).expect("written");
        for file in ["seconds.csv", "latency.svg", "memory.svg"] {
            assert!(fs::metadata(directory.join(file)).is_ok_and(|file| file.len() > 100), "{file}");
        }
        fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn a_small_run_with_packed_counts_finds_no_excess() {
        let report = run(&ScalePlan { packed: Some(1 << 14), ..SMALL }).expect("a run");
        assert_eq!(report.filled.counts, 2_000);
        // The counts of 1 092 slots, in a hash for each slot and window, and the logs that have moved out.
        assert!(report.rows.iter().all(|row| (500..2_000).contains(&row.master.keys)), "{:?}", report.rows);
        assert!(report.sampled.keys > 10 && report.sampled.violations.is_empty(), "{:?}", report.sampled);
    }

    #[test]
    fn a_wrong_number_of_hashes_is_refused_before_a_server_starts() {
        let refused = run(&ScalePlan { packed: Some(1_000), ..SMALL });
        assert!(refused.is_err_and(|failure| failure.contains("`packed`") && failure.contains("write 16384")));
    }
}
