//! The report as Markdown.

use std::fmt::Write;
use std::time::Duration;

use super::{FullestWindow, Miss, Row, RowReport, StormReport, WindowKind, WorkloadReport};

/// A row with its results.
#[derive(Debug)]
pub struct MeasuredRow {
    /// The row.
    pub row: Row,
    /// Its report.
    pub report: RowReport,
    /// The bars that it missed.
    pub misses: Vec<Miss>,
}

const TABLE_HEAD: &str = "\
| fault (name) | longest call | recovery | recovery bar | last standby decision (relapses) \
| limit used before / during / after (`leaky_bucket`) | connection attempts (at once) | kept |
|---|---|---|---|---|---|---|---|
";

const WINDOW_TABLE_HEAD: &str = "\
| name | `sliding_window` | `fixed_window` | …, in the server's windows | `sliding_counter` | `token_bucket` | `leaky_bucket` \
| `5/300ms`, `10/h` |
|---|---|---|---|---|---|---|---|
";

/// Returns two tables with one line per row: the worst figures of all workloads, and the fullest window of each.
#[must_use]
pub fn tables(measured: &[MeasuredRow]) -> String {
    let rows = measured.iter().fold(TABLE_HEAD.to_owned(), |table, measured| table + &table_line(measured));
    let windows =
        measured.iter().fold(WINDOW_TABLE_HEAD.to_owned(), |table, measured| table + &window_table_line(measured));
    rows + include_str!("document/windows.md") + &windows
}

const LEASE_TABLE_HEAD: &str = "\
| fault (name) | fullest window | admitted by leases / by script calls / by the standby limiter | longest call | recovery \
| last standby decision (relapses) | limit used before / during / after | kept |
|---|---|---|---|---|---|---|---|
";

/// Returns a table of rows with leases.
#[must_use]
pub fn lease_table(measured: &[MeasuredRow]) -> String {
    let mut table = LEASE_TABLE_HEAD.to_owned();
    for MeasuredRow { row, report, misses } in measured {
        for workload in &report.workloads {
            let windows: Vec<_> = workload.fullest.iter().map(|fullest| window_cell(row, fullest, workload)).collect();
            let WorkloadReport { by_lease, by_store, by_standby, relapses, .. } = workload;
            let recovery = workload.recovery.map_or_else(|| "never".to_owned(), millis);
            writeln!(
                table,
                "| {} (`{}`) | {} | {by_lease} / {by_store} / {by_standby} | {} ({}) | {recovery} | {} ({relapses}) \
                 | {:.1} / {:.1} / {:.1} % | {} |",
                row.fault,
                row.name,
                windows.join(", "),
                millis(workload.longest),
                millis(workload.longest_without_stalls),
                millis(workload.last_standby_decision),
                workload.share_before * 100.0,
                workload.share_during * 100.0,
                workload.share_after * 100.0,
                kept(misses),
            )
            .expect("writing to a string");
        }
    }
    table
}

fn kept(misses: &[Miss]) -> String {
    match misses {
        [] => "yes".to_owned(),
        misses => misses.iter().map(Miss::to_string).collect::<Vec<_>>().join("; "),
    }
}

fn window_cell(row: &Row, fullest: &FullestWindow, workload: &WorkloadReport) -> String {
    let more = match row.max_excess(workload, fullest) {
        0 => String::new(),
        more => format!(" (+{more})"),
    };
    format!("{} of {}{more}", fullest.permits, fullest.bound)
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

fn table_line(MeasuredRow { row, report, misses }: &MeasuredRow) -> String {
    let workloads = &report.workloads;
    let max = |figure: fn(&WorkloadReport) -> Duration| workloads.iter().map(figure).max().unwrap_or_default();
    let (with_stalls, without_stalls) =
        (max(|workload| workload.longest), max(|workload| workload.longest_without_stalls));
    let mut longest = millis(with_stalls);
    if with_stalls != without_stalls {
        write!(longest, " ({})", millis(without_stalls)).expect("writing to a string");
    }
    let recovery: Option<Vec<_>> = workloads.iter().map(|workload| workload.recovery).collect();
    let recovery = recovery.and_then(|times| times.into_iter().max()).map_or_else(|| "never".to_owned(), millis);
    let relapses: usize = workloads.iter().map(|workload| workload.relapses).sum();
    let attempts = match (report.attempts, report.max_concurrent_attempts) {
        (Some(attempts), Some(at_once)) => format!("{attempts} ({at_once})"),
        _ => "not counted".to_owned(),
    };
    let kept = kept(misses);
    format!(
        "| {} (`{}`) | {longest} | {recovery} | {:?} | {} ({relapses}) | {} | {attempts} | {kept} |\n",
        row.fault,
        row.name,
        row.bar.max_recovery,
        millis(max(|workload| workload.last_standby_decision)),
        used_shares(workloads),
    )
}

/// Returns the least used shares of the workloads with the highest bar, and in brackets those of the workloads with
/// another bar.
fn used_shares(workloads: &[WorkloadReport]) -> String {
    let highest = workloads.iter().map(|workload| workload.min_share).fold(0.0, f64::max);
    let min_shares = |is_of: &dyn Fn(&WorkloadReport) -> bool| {
        let share = |share: fn(&WorkloadReport) -> f64| {
            let lowest = workloads.iter().filter(|workload| is_of(workload)).map(share).fold(f64::INFINITY, f64::min);
            format!("{:.1}", lowest * 100.0)
        };
        [
            share(|workload| workload.share_before),
            share(|workload| workload.share_during),
            share(|workload| workload.share_after),
        ]
        .join(" / ")
    };
    let has = |share: f64, bar: f64| (share - bar).abs() < f64::EPSILON;
    let high = min_shares(&|workload| has(workload.min_share, highest));
    let low = min_shares(&|workload| workload.min_share > 0.0 && !has(workload.min_share, highest));
    format!("{high} % ({low} %)")
}

fn window_table_line(MeasuredRow { row, report, .. }: &MeasuredRow) -> String {
    let cell = |fullest: &FullestWindow, workload: &WorkloadReport| window_cell(row, fullest, workload);
    let mut line = format!("| `{}` ", row.name);
    for workload in &report.workloads {
        let any = workload.fullest.iter().filter(|fullest| fullest.windows == WindowKind::Any);
        let any: Vec<_> = any.map(|fullest| cell(fullest, workload)).collect();
        write!(line, "| {} ", any.join(", ")).expect("writing to a string");
        if workload.name == "fixed_window" {
            let by_server_clock = workload.fullest.iter().find(|fullest| fullest.windows == WindowKind::ServerClock);
            let by_server_clock =
                by_server_clock.map_or_else(|| "the clock was stepped".to_owned(), |fullest| cell(fullest, workload));
            write!(line, "| {by_server_clock} ").expect("writing to a string");
        }
    }
    if report.workloads.len() == 5 {
        line.push_str("| ");
    }
    line + "|\n"
}

/// Returns `docs/reliability.md`, without the section about floods.
#[must_use]
pub fn document(measured: &[MeasuredRow], storm: Option<&StormReport>, command: &str, machine: &str) -> String {
    let mut text = include_str!("document/promise.md").replace("{command}", command).replace("{machine}", machine);
    text += &tables(measured);
    text += include_str!("document/columns.md");
    if let Some(storm) = storm {
        text += &storm_section(storm);
    }
    text
}

/// Returns the section about the storm, with its heading.
fn storm_section(storm: &StormReport) -> String {
    let StormReport { calls, dropped, by_store, by_standby, faults, wrong, keys, took, recovery } = storm;
    let faults: Vec<_> = faults.iter().map(|(fault, times)| format!("{times} × {fault}")).collect();
    let rest = calls.saturating_sub(dropped + by_store + by_standby);
    let share = 100.0 * rest as f64 / *calls as f64;
    let (rest_kind, errors) = match &wrong[..] {
        [] => ("refunds, which get no decision", "none".to_owned()),
        wrong => ("refunds or calls with an error", format!("**{}**: {}", wrong.len(), wrong.join("; "))),
    };
    format!(
        "\n## A storm\n\n{}\n\n\
         - {calls} calls in {took:.1?}; {dropped} futures were dropped before they completed.\n\
         - Decisions: {by_store} by the store, {by_standby} by the standby limiter.\n\
         - The remaining {rest} calls ({share:.1} %) were {rest_kind}.\n\
         - Faults: {}.\n\
         - Errors: {errors}.\n\
         - {keys} keys were checked for an expiry, before each restart and at the end.\n\
         - The store decided again {recovery:.1?} after the last fault.\n",
        include_str!("document/storm.md").trim_end(),
        faults.join(", "),
    )
}
