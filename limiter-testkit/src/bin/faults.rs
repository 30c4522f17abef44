//! Runs the fault bench, prints its table and writes `docs/reliability.md`.

use std::fs;
use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use limiter_testkit::RedisServer;
use limiter_testkit::faults::{
    Allowance, FLOODS, FloodReport, Measured, Pace, Storm, StormReport, flood, rows, run, storm, tables, text,
};

const COMMAND: &str = "cargo run --release -p limiter-testkit --bin faults";
const DOCUMENT: &str = "docs/reliability.md";
const STORM: &str = "storm";
const FLOOD: &str = "flood";

const ALLOWANCE: Allowance = Allowance { slack: Duration::from_millis(20), relapses: 0 };

/// Does to a real Redis what can happen to it, while tasks call a limiter, and reports what they noticed.
///
/// Prints a table, and writes docs/reliability.md. Exits with 1 if the limiter fell short somewhere.
#[derive(Parser)]
#[command(name = "faults")]
struct Arguments {
    /// Shorter faults, and a tenth of the storm's calls
    #[arg(long)]
    quick: bool,

    /// Only these
    #[arg(long = "row", value_name = "NAME", num_args = 1.., value_parser = names())]
    rows: Vec<String>,

    /// The file to write; by default docs/reliability.md, and none with --quick or --row
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(rows().into_iter().map(|row| row.name).chain([STORM, FLOOD]))
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => error.exit(), // the help that was asked for
        Err(error) => {
            // Its first paragraph, on one line.
            let text = error.to_string();
            let lines = text.lines().take_while(|line| !line.starts_with("Usage") && !line.starts_with("For more"));
            let words: Vec<_> = lines.flat_map(str::split_whitespace).collect();
            eprintln!("{} (--help tells more)", words.join(" "));
            return ExitCode::from(2);
        }
    };
    let out = arguments.out.clone().or_else(|| {
        let whole = !arguments.quick && arguments.rows.is_empty();
        whole.then(|| DOCUMENT.into())
    });
    if let Some(out) = out.as_ref().filter(|out| out.is_dir()) {
        eprintln!("error: --out names a file to write, and {} is a directory", out.display());
        return ExitCode::from(2);
    }
    if let Some(directory) = out.as_ref().and_then(|out| out.parent()).filter(|parent| !parent.as_os_str().is_empty())
        && !directory.is_dir()
    {
        eprintln!("error: there is no directory {}: run this from the root of the repository", directory.display());
        return ExitCode::from(2);
    }

    let is_asked_for = |name: &str| arguments.rows.is_empty() || arguments.rows.iter().any(|row| row == name);
    let before = load_average();
    let mut measured = Vec::new();
    let asked: Vec<_> = rows().into_iter().filter(|row| is_asked_for(row.name)).collect();
    let pace = if arguments.quick { Pace::QUICK } else { Pace::FULL };
    for (index, row) in asked.iter().enumerate() {
        let report = run(row, &pace, &|phase| progress(&format!("{}/{} {} {phase}", index + 1, asked.len(), row.name)));
        let misses = row.misses(&report, &ALLOWANCE);
        measured.push(Measured { row: *row, report, misses });
    }
    let stormed = is_asked_for(STORM).then(|| {
        let calls = if arguments.quick { 100_000 } else { 1_000_000 };
        storm(&Storm { calls, seed: 1 }, &|how_far| progress(&format!("{STORM} {how_far}")))
    });
    let floods: Vec<_> = if is_asked_for(FLOOD) {
        progress(FLOOD);
        FLOODS.map(flood).into()
    } else {
        Vec::new()
    };
    progress("");

    let machine = machine(&before);
    let text = text(&measured, stormed.as_ref(), &command(&arguments), &machine) + &flood_section(&floods);
    println!("{machine}\n\n{}", tables(&measured));
    if let Some(storm) = &stormed {
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
    let wrong = stormed.is_some_and(|storm| !storm.wrong.is_empty() || storm.back > StormReport::BACK);
    let slow = floods.iter().filter(|report| !report.is_kept()).count();
    let missed = measured.iter().filter(|measured| !measured.misses.is_empty()).count() + usize::from(wrong) + slow;
    if missed > 0 {
        eprintln!("{missed} of {} fell short", measured.len() + usize::from(is_asked_for(STORM)) + floods.len());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The floods with their heading; nothing if none was run.
fn flood_section(floods: &[FloodReport]) -> String {
    if floods.is_empty() {
        return String::new();
    }
    let lines: String = floods.iter().map(|report| format!("- {}.\n", flood_line(report))).collect();
    format!(
        "\n## Many calls at once\n\nThe median of five runs, and all of them. The bar is for two idle cores.\n\n{lines}"
    )
}

/// The result of a flood, on one line.
fn flood_line(report: &FloodReport) -> String {
    let kept = if report.is_kept() { "kept" } else { "NOT KEPT" };
    let (calls, median, bar) = (report.flood.calls, report.median(), report.bar());
    format!(
        "{calls} calls at once to a stopped server: the slowest took {median:.1?} of {bar:?} ({kept}); {:.1?}",
        report.longest
    )
}

/// As it was called.
fn command(arguments: &Arguments) -> String {
    let quick = arguments.quick.then(|| "--quick".to_owned());
    let rows = (!arguments.rows.is_empty()).then(|| format!("--row {}", arguments.rows.join(" ")));
    let out = arguments.out.as_ref().map(|out| format!("--out {}", out.display()));
    let given: Vec<_> = [quick, rows, out].into_iter().flatten().collect();
    if given.is_empty() { COMMAND.to_owned() } else { format!("{COMMAND} -- {}", given.join(" ")) }
}

/// One line that is written over and over, where somebody looks.
fn progress(line: &str) {
    if stderr().is_terminal() {
        // What is left of a longer line is blotted out.
        let _ = write!(stderr(), "\r{line:<70}\r{line}");
    }
}

/// What it was measured on. How busy others kept it matters for every time here.
fn machine(before: &str) -> String {
    let cores = available_parallelism().map_or_else(|_| "unknown".to_owned(), |cores| cores.to_string());
    let (major, minor) = RedisServer::start().version();
    format!("Redis {major}.{minor}, {cores} cores; load average {before} before and {} after", load_average())
}

/// Of the last one, five and fifteen minutes, where the system tells.
fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let words: Vec<_> = text.split_whitespace().take(3).collect();
    if words.is_empty() { "unknown".to_owned() } else { words.join(", ") }
}
