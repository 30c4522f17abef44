//! The report as text.

use std::fmt::Write;
use std::time::Duration;

use super::{Miss, Report, Row, StormReport};

/// A row that was run.
#[derive(Debug)]
pub struct Measured {
    /// Which.
    pub row: Row,
    /// What came of it.
    pub report: Report,
    /// Where it fell short.
    pub misses: Vec<Miss>,
}

const HEAD: &str = "\
| fault (name) | longest call | over-admission | back to exact after | bar | stand-in's last word (relapses) | limit used before / \
meanwhile / after | connection attempts (at once) | kept |
|---|---|---|---|---|---|---|---|---|
";

/// One line a row.
#[must_use]
pub fn table(measured: &[Measured]) -> String {
    measured.iter().fold(HEAD.to_owned(), |table, measured| table + &line(measured))
}

fn line(Measured { row, report, misses }: &Measured) -> String {
    let millis = |duration: Duration| format!("{:.1} ms", duration.as_secs_f64() * 1e3);
    let mut longest = millis(report.longest);
    if report.longest != report.longest_on_a_running_machine {
        write!(longest, " ({})", millis(report.longest_on_a_running_machine)).expect("writing to a string");
    }
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let [before, meanwhile, after] = [report.share_before, report.share_meanwhile, report.share_after].map(percent);
    let attempts = match (report.attempts, report.most_attempts) {
        (Some(attempts), Some(at_once)) => format!("{attempts} ({at_once})"),
        _ => "not counted".to_owned(),
    };
    let kept = match &misses[..] {
        [] => "yes".to_owned(),
        misses => misses.iter().map(Miss::to_string).collect::<Vec<_>>().join("; "),
    };
    format!(
        "| {} (`{}`) | {longest} | {} of {} | {} | {:?} | {} ({}) | {before} / {meanwhile} / {after} % | {attempts} | {kept} |\n",
        row.fault,
        row.name,
        report.over,
        row.bar.most_over(report),
        report.back.map_or_else(|| "never".to_owned(), millis),
        row.bar.back,
        millis(report.alone),
        report.relapses,
    )
}

/// The whole of `docs/reliability.md`.
#[must_use]
pub fn text(measured: &[Measured], storm: Option<&StormReport>, command: &str, machine: &str) -> String {
    let mut text = include_str!("document/promise.md").replace("{command}", command).replace("{machine}", machine);
    text += &table(measured);
    text += include_str!("document/columns.md");
    if let Some(storm) = storm {
        text += &section(storm);
    }
    text
}

/// What came of the storm, with its heading.
fn section(storm: &StormReport) -> String {
    let StormReport { calls, dropped, by_store, by_standby, faults, wrong, keys, took, back } = storm;
    let faults: Vec<_> = faults.iter().map(|(fault, times)| format!("{times} × {fault}")).collect();
    let wrong = match &wrong[..] {
        [] => "Nothing went wrong".to_owned(),
        wrong => format!("**{} things went wrong**: {}", wrong.len(), wrong.join("; ")),
    };
    format!(
        "\n## A storm\n\n{}\n\n{calls} calls in {took:.1?}: {dropped} were dropped before their answer, the store decided \
         {by_store} and the stand-in {by_standby}. Meanwhile: {}. {wrong}. All of the {keys} keys that were looked at, \
         before each restart and at the end, had a time to live. The store decided again {back:.1?} after the last \
         fault.\n",
        include_str!("document/storm.md").trim_end(),
        faults.join(", "),
    )
}
