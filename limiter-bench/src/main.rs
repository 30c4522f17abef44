//! The command `limiter-bench`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use limiter_bench::cases;
use limiter_bench::compare::{self, Plan};
use limiter_bench::contestant::{Failure, failed};
#[cfg(feature = "layer")]
use limiter_bench::layer;
use limiter_bench::layouts;
use limiter_bench::measure::{Pace, spin_path, wait_here};
use limiter_bench::pairs;
use limiter_bench::report::{Report, charts, details, markdown, table};
#[cfg(feature = "scale")]
use limiter_bench::scale::{self, ScalePlan};
#[cfg(feature = "scripts")]
use limiter_bench::scripts;
#[cfg(feature = "slots")]
use limiter_bench::{server::Server, slots};
use tokio::runtime::{self, Runtime};

/// Compare `rate-limited` with its peers and with the published designs.
#[derive(Parser)]
#[command(name = "limiter-bench")]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all contestants side by side, on a Redis of its own
    ///
    /// Exits with 0 if all was measured, with 1 if something could not be, with 2 if there is nothing to do.
    Compare(Compare),
    /// List the cases of `compare`
    Cases,
    /// Measure the bytes of a key with 1 to 20 permits, of the sliding window and of two published layouts
    Bytes(Bytes),
    /// Measure the bytes of a key on one server, in a process of its own, for `bytes`
    #[command(hide = true)]
    BytesHere { keys: u32 },
    /// Write the pages and the charts of `compare` anew from the results of the last run
    Pages(Pages),
    /// Measure the layer for services with a store in memory, called in process
    #[cfg(feature = "layer")]
    Layer(LayerRounds),
    /// Measure the scripts that ship, without a limiter around them, on a Redis of its own
    ///
    /// Exits with 0 if all was measured, with 1 if something could not be, with 2 if nothing could be.
    #[cfg(feature = "scripts")]
    Scripts(Scripts),
    /// Run one master of a cluster at its full size: many counts, then decisions about 10⁹ users
    ///
    /// Exits with 0 if all bars were met, with 1 if one was not, with 2 if there was no run.
    #[cfg(feature = "scale")]
    Scale(Scale),
    /// Measure limits of concurrent calls, in several processes, on a Redis of its own
    ///
    /// Exits with 0 if all was measured, with 2 if something could not be.
    #[cfg(feature = "slots")]
    Slots(SlotRounds),
    /// Hold slots in a process of its own, for `slots`
    #[cfg(feature = "slots")]
    #[command(hide = true)]
    SlotsHere {
        url: String,
        start: u64,
        #[command(flatten)]
        crew: slots::processes::Crew,
    },
    /// Compare with a build of this bench from another commit, row by row: `scripts/pairs COMMIT` makes it
    ///
    /// Exits with 0 if no row is worse, with 1 if one is or could not be measured, with 2 if nothing could.
    Pairs(Pairs),
    /// List the groups of rows that this build has, for `pairs`
    #[command(hide = true)]
    PairRows,
    /// Measure one sample of a group of rows and print it as JSON, for `pairs`
    #[command(hide = true)]
    PairSample { group: String },
    /// Make many calls that wait, in a process of its own, for `compare`
    #[command(hide = true)]
    WaitHere { url: Option<String> },
    /// Make many calls on one path under callgrind, for `compare`
    #[command(hide = true)]
    SpinPath { path: String, calls: u64 },
}

#[derive(Args)]
struct Compare {
    /// The cases that the bars need, in less than a minute
    #[arg(long)]
    quick: bool,
    /// Only these cases, separated by commas, and `exact`, which finds the exact peers: see `limiter-bench cases`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    cases: Option<Vec<String>>,
    /// Rounds of each case [default: 5, quick: 3]
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u8).range(1..))]
    rounds: Option<u8>,
    /// Directory for performance.md and performance/ [default: docs, if all cases run in full; else none]
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct Bytes {
    /// Keys of each layout
    #[arg(long, value_name = "KEYS", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    keys: u32,
    /// Programs of servers, separated by commas [default: redis-server, and all that are in target/servers]
    #[arg(long, value_name = "PROGRAMS", value_delimiter = ',')]
    servers: Vec<PathBuf>,
}

#[derive(Args)]
struct Pages {
    /// Directory with performance/results.json, for performance.md and performance/
    #[arg(long, value_name = "DIRECTORY", default_value = "docs")]
    out: PathBuf,
}

#[cfg(feature = "layer")]
#[derive(Args)]
struct LayerRounds {
    /// Rounds. Each service is measured once in each
    #[arg(long, value_name = "ROUNDS", default_value_t = 15, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
}

#[cfg(feature = "scripts")]
#[derive(Args)]
struct Scripts {
    /// Few keys and decisions
    #[arg(long)]
    quick: bool,
    /// Rounds of each case [default: 5, quick: 2]
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u8).range(1..))]
    rounds: Option<u8>,
    /// Directory for performance/scripts.md [default: docs, if measured in full; else none]
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

#[cfg(feature = "scale")]
#[derive(Args)]
struct Scale {
    /// Counts that the full master holds before the load [default: as many of 66 666 666 as fit into memory]
    #[arg(long, value_name = "COUNTS", value_parser = clap::value_parser!(u64).range(1..=66_666_666))]
    counts: Option<u64>,
    /// Minutes of the load
    #[arg(long, value_name = "MINUTES", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=60))]
    minutes: u8,
    /// Decisions a second of the full master's keys
    #[arg(long, value_name = "RATE", default_value_t = 67_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Seconds of the window of the load's limits
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u16).range(1..=3600))]
    window: u16,
    /// Pack the counts into this number of hashes [default: a key for each count]
    #[arg(long, value_name = "BUCKETS")]
    packed: Option<u32>,
    /// Directory for seconds.csv, latency.svg and memory.svg
    #[arg(long, value_name = "DIRECTORY", default_value = "target/scale")]
    out: PathBuf,
}

#[cfg(feature = "slots")]
#[derive(Args)]
struct SlotRounds {
    /// Rounds of each row
    #[arg(long, value_name = "ROUNDS", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Only rows whose names have this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

#[derive(Args)]
struct Pairs {
    /// The program that was built from the other commit
    #[arg(long, value_name = "PROGRAM")]
    against: PathBuf,
    /// Samples of each build in each row
    #[arg(long, value_name = "PAIRS", default_value_t = 9, value_parser = clap::value_parser!(u8).range(1..))]
    pairs: u8,
    /// Only these groups of rows, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    rows: Vec<String>,
}

/// The directory of charts and figures, beside the page.
const FIGURES_DIRECTORY: &str = "performance";

fn main() -> ExitCode {
    #[cfg(feature = "metrics")]
    limiter_bench::recorder::install();
    let result = match Options::parse().command {
        Command::Compare(options) => compare(&options),
        Command::Cases => {
            let lines = cases::ALL.iter().map(|case| format!("{:<16} {}\n", case.name, case.title));
            print(&lines.collect::<String>());
            Ok(ExitCode::SUCCESS)
        }
        Command::Bytes(options) => compare_bytes(&options),
        Command::BytesHere { keys } => print_bytes(keys),
        Command::Pages(options) => write_pages_anew(&options),
        #[cfg(feature = "layer")]
        Command::Layer(options) => measure_layer(&options),
        #[cfg(feature = "scripts")]
        Command::Scripts(options) => measure_scripts(&options),
        #[cfg(feature = "scale")]
        Command::Scale(options) => run_at_scale(&options),
        #[cfg(feature = "slots")]
        Command::Slots(options) => measure_slots(&options),
        #[cfg(feature = "slots")]
        Command::SlotsHere { url, start, crew } => hold_slots(&url, start, crew),
        Command::Pairs(options) => compare_builds(options),
        Command::PairRows => {
            print(&pairs::rows::groups().iter().map(|group| format!("{group}\n")).collect::<String>());
            Ok(ExitCode::SUCCESS)
        }
        Command::PairSample { group } => sample_for_pair(&group),
        Command::WaitHere { url } => print_waited(url),
        Command::SpinPath { path, calls } => spin_path(&path, calls).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("limiter-bench: {failure}");
        ExitCode::from(2)
    })
}

fn compare(options: &Compare) -> Result<ExitCode, Failure> {
    let (cases, unknown) = match &options.cases {
        Some(names) => cases::named(names),
        None => (cases::ALL.into_iter().filter(|case| case.quick || !options.quick).collect(), Vec::new()),
    };
    let unknown = (!unknown.is_empty()).then(|| {
        let names = unknown.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        format!("there is no case {names}: `limiter-bench cases` lists them")
    });
    if let Some(unknown) = &unknown {
        if cases.is_empty() {
            return Err(unknown.clone());
        }
        eprintln!("limiter-bench: {unknown}");
    }

    // A run of some cases, or a short run, must not replace the page of a full run.
    let full = options.cases.is_none() && !options.quick && options.rounds.is_none();
    let out = output_directory(options.out.as_ref(), full)?;

    let pace = pace(options);
    let report = runtime()?.block_on(compare::run(Plan { cases, pace }));
    for case in &report.cases {
        print(&format!("\n{} ({})\n{}", case.title, case.name, table::case_table(&report, case).text()));
    }
    print(&format!("\nGoals\n{}\n{}\n", table::bar_table(&report).text(), report.measured));

    if let Some(out) = out {
        write(&report, &out).map_err(|failure| unwritable(&out, failure))?;
        print(&format!("written: {}\n", out.join("performance.md").display()));
    }
    Ok(if report.problems.is_empty() && unknown.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn compare_bytes(options: &Bytes) -> Result<ExitCode, Failure> {
    let servers = if options.servers.is_empty() { layouts::known_servers() } else { options.servers.clone() };
    for server in &servers {
        let measured = layouts::measure_on(server, options.keys)?;
        print(&format!("\n{}, bytes a key, {} keys\n{}", measured.server, options.keys, measured.table().text()));
    }
    Ok(ExitCode::SUCCESS)
}

fn print_bytes(keys: u32) -> Result<ExitCode, Failure> {
    let measured = runtime()?.block_on(layouts::measure_here(keys))?;
    print(&serde_json::to_string(&measured).map_err(failed)?);
    Ok(ExitCode::SUCCESS)
}

fn write_pages_anew(options: &Pages) -> Result<ExitCode, Failure> {
    let results = options.out.join(FIGURES_DIRECTORY).join("results.json");
    let unreadable = |failure: &dyn std::fmt::Display| format!("{} cannot be read: {failure}", results.display());
    let json = fs::read_to_string(&results).map_err(|error| unreadable(&error))?;
    let report = serde_json::from_str(&json).map_err(|error| unreadable(&error))?;
    write_pages(&report, &options.out).map_err(|failure| unwritable(&options.out, failure))?;
    print(&format!("written: {}\n", options.out.join("performance.md").display()));
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "layer")]
fn measure_layer(options: &LayerRounds) -> Result<ExitCode, Failure> {
    let rows = layer::measure(options.rounds.into())?;
    print("a request, median of all rounds\n");
    for row in &rows {
        let (nanos, base) = (row.nanos(), rows[row.base].nanos());
        print(&format!("{:<32} {nanos:>6.0} ns {:>+7.0} ns\n", row.name, nanos - base));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "scripts")]
fn measure_scripts(options: &Scripts) -> Result<ExitCode, Failure> {
    let out = output_directory(options.out.as_ref(), !options.quick && options.rounds.is_none())?;
    let (rounds, keys, decisions) = if options.quick { (2, 20_000, 10_240) } else { (5, 200_000, 102_400) };
    let rounds = options.rounds.map_or(rounds, usize::from);
    let report = scripts::run(scripts::ScriptPlan { rounds, keys, decisions })?;
    for measured in &report.tables {
        print(&format!("\n{}\n{}", measured.case.title, scripts::page::table(measured).text()));
    }
    print(&format!("\n{}\n", report.measured));
    if let Some(out) = out {
        let page = out.join(FIGURES_DIRECTORY).join("scripts.md");
        fs::write(&page, scripts::page::page(&report)).map_err(|failure| unwritable(&out, failure))?;
        print(&format!("written: {}\n", page.display()));
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(feature = "scale")]
fn run_at_scale(options: &Scale) -> Result<ExitCode, Failure> {
    // An unwritable directory is an error now, not after ten minutes.
    fs::create_dir_all(&options.out).map_err(|error| unwritable(&options.out, error))?;
    let report = scale::run(&ScalePlan {
        counts: options.counts,
        load: Duration::from_secs(60 * u64::from(options.minutes)),
        rate: options.rate,
        window: Duration::from_secs(options.window.into()),
        packed: options.packed,
    })?;
    scale::write(&report, &options.out).map_err(|failure| unwritable(&options.out, failure))?;
    print(&format!("\n{}\nwritten: {}\n", scale::bar_table(&report).text(), options.out.display()));
    let missed = scale::bars(&report).iter().any(|bar| bar.met == Some(false));
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(feature = "slots")]
fn measure_slots(options: &SlotRounds) -> Result<ExitCode, Failure> {
    let server = Server::start()?;
    print("the median of all rounds, and what is wanted\n");
    for row in slots::rows().iter().filter(|row| row.name.contains(&options.only)) {
        let figure = row.measure(&server, options.rounds.into())?;
        let (word, bar) = match row.bar {
            slots::SlotBar::Most(bar) => ("at most", bar),
            slots::SlotBar::Least(bar) => ("at least", bar),
        };
        let missed = if row.bar.is_kept(figure) { "" } else { "  missed" };
        print(&format!("{:<56} {figure:>8.2} {:<3} {word} {bar}{missed}\n", row.name, row.unit));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "slots")]
fn hold_slots(url: &str, start: u64, crew: slots::processes::Crew) -> Result<ExitCode, Failure> {
    let held = runtime()?.block_on(slots::processes::hold_here(url, start, crew))?;
    print(&serde_json::to_string(&held).map_err(failed)?);
    Ok(ExitCode::SUCCESS)
}

fn compare_builds(options: Pairs) -> Result<ExitCode, Failure> {
    let plan = pairs::PairPlan { against: options.against, pairs: options.pairs.into(), only: options.rows };
    let report = pairs::run(&plan)?;
    print(&report.table().text());
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn sample_for_pair(group: &str) -> Result<ExitCode, Failure> {
    let figures = runtime()?.block_on(pairs::rows::sample(group))?;
    print(&serde_json::to_string(&figures).map_err(failed)?);
    Ok(ExitCode::SUCCESS)
}

/// Returns the directory for the results, if they are to be written, and creates it.
fn output_directory(given: Option<&PathBuf>, full: bool) -> Result<Option<PathBuf>, Failure> {
    let out = given.cloned().or_else(|| full.then(|| PathBuf::from("docs")));
    if let Some(out) = &out {
        // An unwritable directory is an error now, not after ten minutes.
        fs::create_dir_all(out.join(FIGURES_DIRECTORY)).map_err(|error| unwritable(out, error))?;
    }
    Ok(out)
}

fn pace(options: &Compare) -> Pace {
    let (rounds, sample, fill) = if options.quick { (3, 60, 8_000) } else { (5, 400, 8_000) };
    Pace {
        rounds: options.rounds.map_or(rounds, usize::from),
        sample: Duration::from_millis(sample),
        fill: Duration::from_millis(fill),
        time: options.quick.then_some(Duration::from_secs(50)),
        few_bytes: options.quick,
        ours_only: false,
    }
}

fn write(report: &Report, out: &Path) -> Result<(), Failure> {
    let json = serde_json::to_string(report).map_err(failed)?;
    // One line for each contestant in each case, so that two runs can be compared by lines.
    let json = json.replace("{\"contestant\"", "\n{\"contestant\"").replace("{\"name\"", "\n{\"name\"");
    // The pages are written from this text, so that the figures of a later `pages` are the same.
    let report = serde_json::from_str(&json).map_err(failed)?;
    fs::write(out.join(FIGURES_DIRECTORY).join("results.json"), json + "\n").map_err(failed)?;
    write_pages(&report, out)
}

fn write_pages(report: &Report, out: &Path) -> Result<(), Failure> {
    let directory = out.join(FIGURES_DIRECTORY);
    let mut drawn = Vec::new();
    for chart in charts::ALL {
        if chart.draw(report, &directory)? {
            drawn.push(chart);
        }
    }
    fs::write(directory.join("details.md"), details::page(report)).map_err(failed)?;
    fs::write(out.join("performance.md"), markdown::page(report, &drawn)).map_err(failed)
}

fn unwritable(out: &Path, failure: impl std::fmt::Display) -> Failure {
    format!("{} cannot be written: {failure}", out.display())
}

fn print_waited(url: Option<String>) -> Result<ExitCode, Failure> {
    let waited = runtime()?.block_on(wait_here(url))?;
    print(&serde_json::to_string(&waited).map_err(failed)?);
    Ok(ExitCode::SUCCESS)
}

/// Builds a runtime with two workers, as many as the machine has for which the bars were set.
fn runtime() -> Result<Runtime, Failure> {
    runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(failed)
}

/// Prints to standard output. Exits if the reader has closed the pipe.
fn print(text: &str) {
    if io::stdout().write_all(text.as_bytes()).is_err() {
        std::process::exit(0);
    }
}
