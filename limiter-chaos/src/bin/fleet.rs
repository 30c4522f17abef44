//! Runs processes with one limit, stops them at random, and prints the fullest window of each run.

use std::env;
use std::num::NonZeroU32;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use limiter_chaos::fleet::{FleetPlan, FleetReport, ProcessLoad, is_member, run, run_member};
use limiter_testkit::RedisServer;
use rate_limited::Limit;

/// Runs processes with one limit on one server, and exits with 1 if a window has more admissions than its limit.
///
/// Each run prints one line: the most admissions that certainly lie in one window, the share of the limit that was
/// used, the calls and the script calls per second of all processes, and the admissions of each process with the part
/// that leases admitted.
///
/// The share is the time that all limits but one need, by the time that they took. It is exact only without pauses and on
/// a machine that does nothing else.
#[derive(Parser)]
#[command(name = "fleet")]
struct FleetArguments {
    /// The limits, each with its own runs
    #[arg(long, value_name = "LIMIT", num_args = 1.., default_values = ["10000/1s", "100000/640ms"])]
    limits: Vec<Limit>,

    /// The calls of each process: tasks and calls per second, or `max`
    #[arg(long, value_name = "TASKS:RATE", num_args = 1.., default_values = ["32:max", "8:max", "8:5000", "4:500"])]
    loads: Vec<ProcessLoad>,

    /// The number of runs with each limit
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: u64,

    /// The length of each run in seconds
    #[arg(long, value_name = "S", default_value = "5")]
    seconds: NonZeroU32,

    /// The longest pause of a process in milliseconds; 0 for none
    #[arg(long, value_name = "MS", default_value_t = 400)]
    max_pause: u64,

    /// The seed of the pauses of the first run, each further run has the next one; by default the time of day
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// The number of threads of each process that make calls
    #[arg(long, value_name = "N", default_value = "1")]
    threads: NonZeroU32,

    /// Use leases for limits that are too small for it by default
    #[arg(long)]
    lease_any_limit: bool,

    /// Use no leases
    #[arg(long, conflicts_with = "lease_any_limit")]
    no_leases: bool,

    /// End with the first window above its limit
    #[arg(long)]
    first: bool,
}

fn main() -> ExitCode {
    if is_member() {
        run_member();
        return ExitCode::SUCCESS;
    }
    let arguments = FleetArguments::parse();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs());
    let first_seed = arguments.seed.unwrap_or_else(now);
    let program = env::current_exe().expect("this program's path");
    let server = RedisServer::start();
    let mut above = 0;
    for limit in &arguments.limits {
        for seed in (first_seed..).take(usize::try_from(arguments.runs).unwrap_or(usize::MAX)) {
            let plan = FleetPlan {
                limit: *limit,
                loads: arguments.loads.clone(),
                length: Duration::from_secs(arguments.seconds.get().into()),
                max_pause: Duration::from_millis(arguments.max_pause),
                seed,
                leases: !arguments.no_leases,
                lease_any_limit: arguments.lease_any_limit,
                threads: usize::try_from(arguments.threads.get()).expect("a number of threads"),
            };
            let report = run(&plan, &server, || Command::new(&program));
            println!("{}", line(&plan, &report));
            if !report.is_within(*limit) {
                above += 1;
                if arguments.first {
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    if above > 0 {
        eprintln!("{above} runs have a window above its limit");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Returns the result of a run on one line.
fn line(plan: &FleetPlan, report: &FleetReport) -> String {
    let FleetPlan { limit, length, seed, .. } = plan;
    let FleetReport { fullest_window, share_used, pauses, script_calls, processes } = report;
    let percent = ratio(*fullest_window) * 100.0 / f64::from(limit.max());
    let verdict = if report.is_within(*limit) { "within" } else { "ABOVE" };
    let share = share_used.map_or_else(|| "-".to_owned(), |share| format!("{share:.3}"));
    let [calls, script_calls] = [report.calls(), *script_calls].map(|count| ratio(count) / length.as_secs_f64());
    let each: Vec<_> =
        processes.iter().map(|process| format!("{} ({} by lease)", process.admitted(), process.by_lease)).collect();
    let failed: u64 = processes.iter().map(|process| process.by_others + process.failed).sum();
    let failed = if failed == 0 { String::new() } else { format!(", {failed} without the store") };
    format!(
        "{limit} seed {seed}: {fullest_window} in a window = {percent:.3} % {verdict}; used {share}; {calls:.0} calls/s, \
         {script_calls:.0} script calls/s; {pauses} pauses; each {}{failed}",
        each.join(", ")
    )
}

/// Returns a count for a ratio.
#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
fn ratio(count: u64) -> f64 {
    count as f64
}
