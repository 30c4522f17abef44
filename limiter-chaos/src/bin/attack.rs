//! Attacks the limiter with random calls and faults, and reports violated guarantees.

use std::io::{self, stderr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, mem};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use limiter_chaos::Transport;
use limiter_chaos::attack::{Budget, Plan, run, scenarios};
use limiter_testkit::ForkLibrary;

/// Attacks the limiter with random calls and faults, and exits with 1 on a violated guarantee.
///
/// Each scenario runs in rounds. The parameters of a round follow from the seed, the scenario and the round's number. A
/// violation is printed with the arguments that repeat its round. The machine's timing is not repeated, so a violation
/// of concurrent calls may need some rounds to reappear.
///
/// Only safety is checked, not speed. A panic on any thread is a violation. A hang is one too: it ends the program with
/// a list of its threads.
///
/// The program needs `redis-server`, and `cc` for clocks that step and for processes that fork.
#[derive(Parser)]
#[command(name = "attack")]
struct AttackArguments {
    /// The seed of all parameters of all rounds; by default the time of day
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// The time to run for; the last round may take a minute more
    #[arg(long, value_name = "M", default_value_t = 10.0)]
    minutes: f64,

    /// The number of rounds of each scenario, instead of --minutes
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    rounds: Option<u64>,

    /// Run only this round of each scenario
    #[arg(long, value_name = "N", conflicts_with_all = ["minutes", "rounds"])]
    round: Option<u64>,

    /// Run only these scenarios
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = scenario_names())]
    only: Vec<String>,

    /// Run rounds as short as in the test suite, and only scenarios without a cluster or sentinels
    #[arg(long)]
    short: bool,

    /// Run with leases, and only scenarios that can. Each limit may be leased, however small
    #[arg(long)]
    leases: bool,

    /// Run with TLS, and only scenarios that can
    #[arg(long)]
    tls: bool,

    /// End with the first violation
    #[arg(long)]
    first: bool,

    /// Print the scenarios and exit
    #[arg(long)]
    list: bool,
}

fn scenario_names() -> PossibleValuesParser {
    PossibleValuesParser::new(scenarios().into_iter().map(|scenario| scenario.name))
}

/// The environment variable with the path of the fork library, for a process that has loaded it.
const LIBRARY_VARIABLE: &str = "LIMITER_ATTACK_LIBRARY";

/// Restarts this program with the fork library loaded. Returns only if that fails.
fn restart_with_library() -> io::Error {
    let library = ForkLibrary::build();
    let (name, path) = library.variable();
    // The file must outlast this program. The restarted one removes it.
    mem::forget(library);
    let program = env::current_exe().expect("this program's path");
    Command::new(program).args(env::args_os().skip(1)).env(name, &path).env(LIBRARY_VARIABLE, &path).exec()
}

fn main() -> ExitCode {
    let AttackArguments { seed, minutes, rounds, round, only, short, leases, tls, first, list } =
        AttackArguments::parse();
    if list {
        for scenario in scenarios() {
            println!("{:<12} {}", scenario.name, scenario.about);
        }
        return ExitCode::SUCCESS;
    }
    let Ok(time) = Duration::try_from_secs_f64(minutes * 60.0) else {
        eprintln!("error: `--minutes` must be a number of minutes from 0 on, got {minutes}");
        return ExitCode::from(2);
    };
    let Some(library) = env::var_os(LIBRARY_VARIABLE) else {
        eprintln!("error: this program could not be restarted with the fork library: {}", restart_with_library());
        return ExitCode::from(2);
    };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs());
    let budget = match (rounds, round) {
        (Some(rounds), _) => Budget::Rounds(rounds),
        (None, Some(round)) => Budget::Round(round),
        (None, None) => Budget::Time(time),
    };
    let chosen = |name: &str| only.is_empty() || only.iter().any(|chosen| chosen == name);
    let mut scenarios = scenarios();
    scenarios.retain(|scenario| chosen(scenario.name) && (scenario.short || !short));
    scenarios.retain(|scenario| (scenario.leases || !leases) && (scenario.tls || !tls));
    if scenarios.is_empty() {
        eprintln!("error: none of these scenarios can run with `--short`, `--leases` or `--tls`");
        return ExitCode::from(2);
    }
    let transport = if tls { Transport::Tls } else { Transport::Plain };
    let plan = Plan { seed: seed.unwrap_or_else(now), budget, scenarios, short, leases, transport, first };
    eprintln!("attacks with seed {}", plan.seed);
    let report = run(&plan, &|line| {
        use std::io::Write;
        let _ = writeln!(stderr(), "{line}");
    });
    if let Some(directory) = Path::new(&library).parent() {
        let _ = fs::remove_dir_all(directory);
    }
    println!("{report}");
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
