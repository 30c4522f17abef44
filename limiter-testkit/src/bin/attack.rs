//! Attacks the limiter with random calls and faults, and says what did not hold.

use std::io::{self, stderr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, mem};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use limiter_testkit::ForkLibrary;
use limiter_testkit::attack::{Budget, Plan, run, scenarios};

/// Attacks the limiter with random calls and faults, and exits with 1 if a promise is not kept.
///
/// Each scenario runs in rounds, and the parameters of a round follow from the seed, the scenario and the round's number.
/// A violation is printed with the arguments that run its round again. What the machine's timing decides is not the same
/// then, so a violation of concurrent calls may need some rounds to show again. Only safety is judged, and not speed.
/// A panic on any thread is a violation. A hang is one too: it ends the program with a list of its threads.
///
/// It needs `redis-server`, and `cc` for clocks that step and for processes that fork.
#[derive(Parser)]
#[command(name = "attack")]
struct Arguments {
    /// Decides all parameters of all rounds; by default the time of day
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// How long to go on; the last round may take a minute more
    #[arg(long, value_name = "M", default_value_t = 10.0)]
    minutes: f64,

    /// So many rounds of each scenario, instead of --minutes
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    rounds: Option<u64>,

    /// This round of each scenario alone
    #[arg(long, value_name = "N", conflicts_with_all = ["minutes", "rounds"])]
    round: Option<u64>,

    /// Only these scenarios
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = names())]
    only: Vec<String>,

    /// Rounds as short as the test suite has them, and only scenarios without a cluster or sentinels
    #[arg(long)]
    short: bool,

    /// End with the first violation
    #[arg(long)]
    first: bool,

    /// Print the scenarios, and attack nothing
    #[arg(long)]
    list: bool,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(scenarios().into_iter().map(|scenario| scenario.name))
}

/// Names the library to fork with, for a process that has it loaded.
const LIBRARY: &str = "LIMITER_ATTACK_LIBRARY";

/// Replaces this process by one of the same program that has the library to fork with. Returns if that fails.
fn load_library() -> io::Error {
    let library = ForkLibrary::build();
    let (name, path) = library.variable();
    // It has to outlast this process: the next one removes it.
    mem::forget(library);
    let program = env::current_exe().expect("this program's path");
    Command::new(program).args(env::args_os().skip(1)).env(name, &path).env(LIBRARY, &path).exec()
}

fn main() -> ExitCode {
    let Arguments { seed, minutes, rounds, round, only, short, first, list } = Arguments::parse();
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
    let Some(library) = env::var_os(LIBRARY) else {
        eprintln!("error: this program does not run again: {}", load_library());
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
    let plan = Plan { seed: seed.unwrap_or_else(now), budget, scenarios, short, first };
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
