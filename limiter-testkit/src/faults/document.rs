//! The report as text.

use std::fmt::Write;
use std::time::Duration;

use super::{Fullest, Miss, Report, Row, RowReport, StormReport, Windows};

/// A row that was run.
#[derive(Debug)]
pub struct Measured {
    /// Which.
    pub row: Row,
    /// What came of it.
    pub report: RowReport,
    /// Where it fell short.
    pub misses: Vec<Miss>,
}

const HEAD: &str = "\
| fault (name) | longest call | back to exact after | bar | stand-in's last word (relapses) | limit used before / meanwhile / after \
(`leaky_bucket`) | connection attempts (at once) | kept |
|---|---|---|---|---|---|---|---|
";

const WINDOWS_HEAD: &str = "\
| fault (name) | `sliding_window` | `fixed_window` | …, in the server's windows | `sliding_counter` | `token_bucket` | `leaky_bucket` | \
`5/300ms`, `10/h` |
|---|---|---|---|---|---|---|---|
";

/// Two tables, of one line a row: the worst figures of all subjects, and the fullest window of each.
#[must_use]
pub fn tables(measured: &[Measured]) -> String {
    let rows = measured.iter().fold(HEAD.to_owned(), |table, measured| table + &line(measured));
    let windows = measured.iter().fold(WINDOWS_HEAD.to_owned(), |table, measured| table + &windows_line(measured));
    rows + include_str!("document/windows.md") + &windows
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

fn line(Measured { row, report, misses }: &Measured) -> String {
    let subjects = &report.subjects;
    let max = |figure: fn(&Report) -> Duration| subjects.iter().map(figure).max().unwrap_or_default();
    let (raw, net) = (max(|subject| subject.longest), max(|subject| subject.longest_on_a_running_machine));
    let mut longest = millis(raw);
    if raw != net {
        write!(longest, " ({})", millis(net)).expect("writing to a string");
    }
    let back: Option<Vec<_>> = subjects.iter().map(|subject| subject.back).collect();
    let back = back.and_then(|back| back.into_iter().max()).map_or_else(|| "never".to_owned(), millis);
    let relapses: usize = subjects.iter().map(|subject| subject.relapses).sum();
    let attempts = match (report.attempts, report.most_attempts) {
        (Some(attempts), Some(at_once)) => format!("{attempts} ({at_once})"),
        _ => "not counted".to_owned(),
    };
    let kept = match &misses[..] {
        [] => "yes".to_owned(),
        misses => misses.iter().map(Miss::to_string).collect::<Vec<_>>().join("; "),
    };
    format!(
        "| {} (`{}`) | {longest} | {back} | {:?} | {} ({relapses}) | {} | {attempts} | {kept} |\n",
        row.fault,
        row.name,
        row.bar.back,
        millis(max(|subject| subject.alone)),
        shares(subjects),
    )
}

/// The least parts of the limits that were used: of those with the highest bar, and in brackets of those with another one.
fn shares(subjects: &[Report]) -> String {
    let highest = subjects.iter().map(|subject| subject.least_share).fold(0.0, f64::max);
    let least = |is_of: &dyn Fn(&Report) -> bool| {
        let share = |share: fn(&Report) -> f64| {
            let least = subjects.iter().filter(|subject| is_of(subject)).map(share).fold(f64::INFINITY, f64::min);
            format!("{:.1}", least * 100.0)
        };
        [
            share(|subject| subject.share_before),
            share(|subject| subject.share_meanwhile),
            share(|subject| subject.share_after),
        ]
        .join(" / ")
    };
    let has = |share: f64, bar: f64| (share - bar).abs() < f64::EPSILON;
    let high = least(&|subject| has(subject.least_share, highest));
    let low = least(&|subject| subject.least_share > 0.0 && !has(subject.least_share, highest));
    format!("{high} % ({low} %)")
}

fn windows_line(Measured { row, report, .. }: &Measured) -> String {
    let cell = |fullest: &Fullest, subject: &Report| {
        let more = match row.most_over(subject, fullest) {
            0 => String::new(),
            more => format!(" (+{more})"),
        };
        format!("{} of {}{more}", fullest.most, fullest.bound)
    };
    let mut line = format!("| {} (`{}`) ", row.fault, row.name);
    for subject in &report.subjects {
        let any = subject.fullest.iter().filter(|fullest| fullest.windows == Windows::Any);
        let any: Vec<_> = any.map(|fullest| cell(fullest, subject)).collect();
        write!(line, "| {} ", any.join(", ")).expect("writing to a string");
        if subject.name == "fixed_window" {
            let of_server = subject.fullest.iter().find(|fullest| fullest.windows == Windows::OfServer);
            let of_server =
                of_server.map_or_else(|| "the clock was stepped".to_owned(), |fullest| cell(fullest, subject));
            write!(line, "| {of_server} ").expect("writing to a string");
        }
    }
    if report.subjects.len() == 5 {
        line.push_str("| ");
    }
    line + "|\n"
}

/// The whole of `docs/reliability.md`.
#[must_use]
pub fn text(measured: &[Measured], storm: Option<&StormReport>, command: &str, machine: &str) -> String {
    let mut text = include_str!("document/promise.md").replace("{command}", command).replace("{machine}", machine);
    text += &tables(measured);
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
