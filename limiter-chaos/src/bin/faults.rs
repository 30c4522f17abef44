//! Runs the fault bench, prints its table and writes `docs/reliability.md`.

use std::fs;
use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use limiter_chaos::Transport;
use limiter_chaos::faults::{
    Allowance, FLOODS, FloodReport, MeasuredRow, Pace, Storm, StormReport, document, flood, lease_table, rows, run,
    storm, tables,
};
use limiter_testkit::RedisServer;

const COMMAND: &str = "cargo run --release -p limiter-chaos --bin faults";
const DEFAULT_OUTPUT: &str = "docs/reliability.md";
const STORM_NAME: &str = "storm";
const FLOOD_NAME: &str = "flood";

const ALLOWANCE: Allowance = Allowance { slack: Duration::from_millis(20), relapses: 0 };

/// Injects faults into a real Redis while tasks call a limiter, and reports what the callers observe.
///
/// The program prints a table and writes docs/reliability.md. It exits with 1 if the limiter missed a bar.
#[derive(Parser)]
#[command(name = "faults")]
struct FaultArguments {
    /// Run with shorter faults, and a tenth of the storm's calls
    #[arg(long)]
    quick: bool,

    /// Run the rows with leases: the tasks call one limit that is leased. Neither storm nor flood is run
    #[arg(long)]
    leases: bool,

    /// Run the rows and the storm with TLS. The flood is not run
    #[arg(long)]
    tls: bool,

    /// Run only these rows
    #[arg(long = "row", value_name = "NAME", num_args = 1.., value_parser = row_names())]
    rows: Vec<String>,

    /// The file to write; by default docs/reliability.md, and none with --quick, --leases, --tls or --row
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn row_names() -> PossibleValuesParser {
    PossibleValuesParser::new(rows().into_iter().map(|row| row.name).chain([STORM_NAME, FLOOD_NAME]))
}

fn main() -> ExitCode {
    let arguments = match FaultArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => error.exit(), // the help
        Err(error) => {
            // The first paragraph of the message, on one line.
            let text = error.to_string();
            let lines = text.lines().take_while(|line| !line.starts_with("Usage") && !line.starts_with("For more"));
            let words: Vec<_> = lines.flat_map(str::split_whitespace).collect();
            eprintln!("{} (see --help)", words.join(" "));
            return ExitCode::from(2);
        }
    };
    let out = arguments.out.clone().or_else(|| {
        let is_full_run = !arguments.quick && !arguments.leases && !arguments.tls && arguments.rows.is_empty();
        is_full_run.then(|| DEFAULT_OUTPUT.into())
    });
    if let Some(out) = out.as_ref().filter(|out| out.is_dir()) {
        eprintln!("error: `--out` must be a file to write, got the directory {}", out.display());
        return ExitCode::from(2);
    }
    if let Some(directory) = out.as_ref().and_then(|out| out.parent()).filter(|parent| !parent.as_os_str().is_empty())
        && !directory.is_dir()
    {
        eprintln!("error: there is no directory {}: run this from the root of the repository", directory.display());
        return ExitCode::from(2);
    }

    let is_selected = |name: &str| arguments.rows.is_empty() || arguments.rows.iter().any(|row| row == name);
    let before = load_average();
    let mut measured = Vec::new();
    let selected = rows().into_iter().filter(|row| is_selected(row.name));
    let selected = selected.map(|row| if arguments.leases { row.with_leases() } else { row });
    let selected: Vec<_> = selected.map(|row| if arguments.tls { row.with_tls() } else { row }).collect();
    let pace = if arguments.quick { Pace::QUICK } else { Pace::FULL };
    for (index, row) in selected.iter().enumerate() {
        let report =
            run(row, &pace, &|phase| progress(&format!("{}/{} {} {phase}", index + 1, selected.len(), row.name)));
        let misses = row.misses(&report, &ALLOWANCE);
        measured.push(MeasuredRow { row: *row, report, misses });
    }
    let runs_storm = is_selected(STORM_NAME) && !arguments.leases;
    let storm_report = runs_storm.then(|| {
        let calls = if arguments.quick { 100_000 } else { 1_000_000 };
        let transport = if arguments.tls { Transport::Tls } else { Transport::Plain };
        storm(&Storm { calls, seed: 1, transport }, &|done| progress(&format!("{STORM_NAME} {done}")))
    });
    let floods: Vec<_> = if is_selected(FLOOD_NAME) && !arguments.leases && !arguments.tls {
        progress(FLOOD_NAME);
        FLOODS.map(flood).into()
    } else {
        Vec::new()
    };
    progress("");

    let machine = machine(&before);
    let (table, text) = if arguments.leases {
        let table = lease_table(&measured);
        (table.clone(), format!("`{}`: {machine}\n\n{table}", command(&arguments)))
    } else {
        let document = document(&measured, storm_report.as_ref(), &command(&arguments), &machine);
        (tables(&measured), document + &flood_section(&floods))
    };
    println!("{machine}\n\n{table}");
    if let Some(storm) = &storm_report {
        println!("{storm:#?}");
    }
    floods.iter().for_each(|report| println!("{}", flood_line(report)));
    if let Some(out) = out {
        if let Err(error) = fs::write(&out, &text) {
            println!("{text}");
            eprintln!("error: {} cannot be written: {error}", out.display());
            return ExitCode::from(2);
        }
        println!("written to {}", out.display());
    }
    let storm_failed =
        storm_report.is_some_and(|storm| !storm.wrong.is_empty() || storm.recovery > StormReport::MAX_RECOVERY);
    let missed_floods = floods.iter().filter(|report| !report.is_met()).count();
    let missed = measured.iter().filter(|measured| !measured.misses.is_empty()).count()
        + usize::from(storm_failed)
        + missed_floods;
    if missed > 0 {
        eprintln!("{missed} of {} missed a bar", measured.len() + usize::from(runs_storm) + floods.len());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Returns the section about floods, with its heading, or an empty text if none was run.
fn flood_section(floods: &[FloodReport]) -> String {
    if floods.is_empty() {
        return String::new();
    }
    let lines: String = floods.iter().map(|report| format!("- {}.\n", flood_line(report))).collect();
    format!(
        "\n## Many calls at once\n\n\
         These calls are made at once to a stopped server. Each line has the slowest call of the median of five runs, its\n\
         bar, and the slowest call of each run. The bar is the deadline of 100 ms and an allowance for two idle cores.\n\n\
         {lines}"
    )
}

/// Returns the result of a flood on one line.
fn flood_line(report: &FloodReport) -> String {
    let verdict = if report.is_met() { "met" } else { "MISSED" };
    let (calls, median, bar) = (report.flood.calls, report.median(), report.bar());
    format!("{calls} calls: slowest call {median:.1?}, bar {bar:?} ({verdict}); runs {:.1?}", report.longest)
}

/// Returns the command that this run was started with.
fn command(arguments: &FaultArguments) -> String {
    let quick = arguments.quick.then(|| "--quick".to_owned());
    let leases = arguments.leases.then(|| "--leases".to_owned());
    let tls = arguments.tls.then(|| "--tls".to_owned());
    let rows = (!arguments.rows.is_empty()).then(|| format!("--row {}", arguments.rows.join(" ")));
    let out = arguments.out.as_ref().map(|out| format!("--out {}", out.display()));
    let given: Vec<_> = [quick, leases, tls, rows, out].into_iter().flatten().collect();
    if given.is_empty() { COMMAND.to_owned() } else { format!("{COMMAND} -- {}", given.join(" ")) }
}

/// Shows the progress on one line of a terminal, which each call overwrites.
fn progress(line: &str) {
    if stderr().is_terminal() {
        // The padding erases the rest of a longer line.
        let _ = write!(stderr(), "\r{line:<70}\r{line}");
    }
}

/// Returns a description of the machine. Its load average is included because it affects every time measured.
fn machine(before: &str) -> String {
    let cores = available_parallelism().map_or_else(|_| "unknown".to_owned(), |cores| cores.to_string());
    let (major, minor) = RedisServer::start().version();
    format!("Redis {major}.{minor}, {cores} cores; load average {before} before and {} after", load_average())
}

/// Returns the load averages of one, five and fifteen minutes, on systems that have them.
fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let words: Vec<_> = text.split_whitespace().take(3).collect();
    if words.is_empty() { "unknown".to_owned() } else { words.join(", ") }
}
