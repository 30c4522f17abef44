//! The bars of a run, and its figures by seconds as text.

use std::fmt::Write;
use std::time::Duration;

use limiter_testkit::stalls::stall_time_between;

use super::record::SecondRow;
use super::{LATE, ScaleReport, group_digits};
use crate::report::table::Table;

/// The most that the 99th percentile of the latency may be, in milliseconds.
const MAX_P99_MS: f64 = 10.0;
/// The most of a core that the full master may use.
const MAX_MASTER: f64 = 0.85;
/// The most by which memory may grow from one window to the next, as a share.
const MAX_GROWTH: f64 = 0.02;

/// A figure with its bar.
#[derive(Debug, Clone)]
pub struct ScaleBar {
    /// The name of the figure.
    pub name: &'static str,
    /// The bar.
    pub bar: String,
    /// The figure.
    pub figure: String,
    /// True if the bar was met, and none if the run was too short.
    pub met: Option<bool>,
}

/// Returns all bars.
#[must_use]
pub fn bars(report: &ScaleReport) -> Vec<ScaleBar> {
    let p99 = report.latencies.percentile_ms(99.0);
    let late = inexcusable(report);
    let stood_still: Duration = report.stalls.iter().map(|(from, to)| *to - *from).sum();
    let failed = report.rows.iter().map(|row| row.failed).sum::<u64>();
    let master = mean(&report.rows, |row| row.cpu.master);
    let growth = growth(&report.rows, report.window);
    let sampled = &report.sampled;
    vec![
        ScaleBar {
            name: "p99 from the planned time",
            bar: format!("below {MAX_P99_MS} ms"),
            figure: format!("{p99:.2} ms"),
            met: Some(p99 < MAX_P99_MS),
        },
        ScaleBar {
            name: "calls late or without a decision",
            bar: "none but while the machine stood still".to_owned(),
            figure: format!(
                "{late} of {} late, {failed} failed; it stood still for {stood_still:.1?} in {} stalls",
                report.late.len(),
                report.stalls.len()
            ),
            met: Some(late == 0 && failed == 0),
        },
        ScaleBar {
            name: "the full master",
            bar: format!("below {:.0} % of a core", MAX_MASTER * 100.0),
            figure: format!("{:.1} %", master * 100.0),
            met: Some(master < MAX_MASTER),
        },
        ScaleBar {
            name: "memory from the last window but one to the last",
            bar: format!("at most {:.0} % more", MAX_GROWTH * 100.0),
            figure: growth.map_or("fewer than three windows".to_owned(), |growth| format!("{:+.2} %", growth * 100.0)),
            met: growth.map(|growth| growth <= MAX_GROWTH),
        },
        ScaleBar {
            name: "sampled windows above their limit",
            bar: "none".to_owned(),
            figure: format!(
                "{} of {} keys, {} admissions; {} keys had a full window",
                sampled.violations.len(),
                group_digits(sampled.keys as u64),
                group_digits(sampled.admissions as u64),
                sampled.full,
            ),
            met: Some(sampled.violations.is_empty() && sampled.keys > 0),
        },
    ]
}

/// Returns the table of the bars.
#[must_use]
pub fn bar_table(report: &ScaleReport) -> Table {
    let verdict = |met| match met {
        Some(true) => "ok",
        Some(false) => "MISSED",
        None => "not measured",
    };
    let row = |bar: ScaleBar| vec![bar.name.to_owned(), bar.bar, bar.figure, verdict(bar.met).to_owned()];
    Table::new(&["", "bar", "measured", ""], bars(report).into_iter().map(row).collect(), notes(report))
}

fn notes(report: &ScaleReport) -> Vec<String> {
    let seconds = report.rows.len().max(1) as f64;
    let sum = |of: fn(&SecondRow) -> u64| report.rows.iter().map(of).sum::<u64>() as f64;
    let (decisions, scripts) = (sum(SecondRow::decisions), sum(|row| row.script_calls));
    let (own, other) = (mean(&report.rows, |row| row.cpu.own), mean(&report.rows, |row| row.cpu.other));
    let [p50, p999, max] = [50.0, 99.9, 100.0].map(|percent| report.latencies.percentile_ms(percent));
    let last = report.rows.last().map(|row| row.master).unwrap_or_default();
    let mut notes = vec![
        format!(
            "Redis {}; {} counts of {:.0} bytes, filled in {:.0?}: {}",
            report.version,
            group_digits(report.filled.counts),
            report.filled.bytes,
            report.filled.took,
            report.filled.why
        ),
        format!(
            "{:.0} decisions a second over {seconds} s, {:.1} % denied, {:.2} script calls a decision; p50 {p50:.2} ms, \
             p99.9 {p999:.2} ms, max {max:.1} ms; late is {LATE:?} and more",
            decisions / seconds,
            sum(|row| row.denied) / decisions.max(1.0) * 100.0,
            scripts / decisions.max(1.0),
        ),
        format!(
            "of {} draws from {} names, {} were of the full shard ({:.2} %)",
            group_digits(report.draws.all),
            group_digits(super::names::USERS.into()),
            group_digits(report.draws.here),
            report.draws.here as f64 / report.draws.all.max(1) as f64 * 100.0
        ),
        format!(
            "{:.1} µs of the master a script call, {:.1} µs of the client a decision; the client used {:.0} % of a core, all \
             else on this machine {:.0} %; in the end {} keys in {:.2} GB",
            mean(&report.rows, |row| row.cpu.master) * seconds / scripts.max(1.0) * 1e6,
            own * seconds / decisions.max(1.0) * 1e6,
            own * 100.0,
            other * 100.0,
            group_digits(last.keys),
            last.used_memory as f64 / 1e9
        ),
    ];
    notes.extend(report.first_failure.iter().map(|failure| format!("the first failure: {failure}")));
    notes.extend(report.sampled.violations.iter().take(5).cloned());
    notes
}

/// Returns the number of late calls that the stalls of the machine do not explain.
fn inexcusable(report: &ScaleReport) -> usize {
    let is_late = |call: &&super::record::LateCall| {
        let stalled = stall_time_between(&report.stalls, call.due, call.ended);
        (call.ended - call.due).saturating_sub(stalled) >= LATE
    };
    report.late.iter().filter(is_late).count()
}

/// Returns the growth of the mean memory from the last window but one to the last. In the first window the load's
/// counts come, and none goes yet.
fn growth(rows: &[SecondRow], window: Duration) -> Option<f64> {
    let window = usize::try_from(window.as_secs()).ok()?;
    let after_first = rows.len().checked_sub(3 * window)?;
    let windows = &rows[after_first + window..];
    let (before, last) = windows.split_at(window);
    let memory = |rows: &[SecondRow]| mean(rows, |row| row.master.used_memory as f64);
    Some(memory(last) / memory(before) - 1.0)
}

fn mean(rows: &[SecondRow], of: impl Fn(&SecondRow) -> f64) -> f64 {
    rows.iter().map(of).sum::<f64>() / rows.len().max(1) as f64
}

/// Returns the figures of all seconds as comma-separated values.
#[must_use]
pub(super) fn csv(report: &ScaleReport) -> String {
    let mut text = "second,allowed,denied,failed,late,script_calls,p50_ms,p99_ms,p99_9_ms,max_ms,master_core,\
                    client_core,other_core,used_memory,keys,expired,stalled_ms\n"
        .to_owned();
    for row in &report.rows {
        let [p50, p99, p999, max] = row.latency_ms;
        let begin = Duration::from_secs(row.second);
        let stalled = stall_time_between(&report.stalls, begin, begin + Duration::from_secs(1));
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{p50:.3},{p99:.3},{p999:.3},{max:.3},{:.3},{:.3},{:.3},{},{},{},{:.1}",
            row.second,
            row.allowed,
            row.denied,
            row.failed,
            row.late,
            row.script_calls,
            row.cpu.master,
            row.cpu.own,
            row.cpu.other,
            row.master.used_memory,
            row.master.keys,
            row.master.expired,
            stalled.as_secs_f64() * 1e3,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::record::LateCall;
    use crate::scale::{CpuShares, Draws, Filled, Histogram, MasterFigures, SampledWindows};

    const WINDOW: Duration = Duration::from_secs(2);

    /// A run of these bytes in its seconds, with nothing that misses a bar.
    fn run(used_memory: &[u64]) -> ScaleReport {
        let row = |(second, &used_memory): (usize, &u64)| SecondRow {
            second: second as u64,
            allowed: 10,
            denied: 0,
            failed: 0,
            late: 0,
            latency_ms: [0.0; 4],
            cpu: CpuShares { master: 0.5, ..CpuShares::default() },
            master: MasterFigures { used_memory, ..MasterFigures::default() },
            script_calls: 0,
        };
        ScaleReport {
            version: "7.0".to_owned(),
            filled: Filled { counts: 1, why: String::new(), bytes: 1.0, took: Duration::ZERO },
            window: WINDOW,
            draws: Draws::default(),
            rows: used_memory.iter().enumerate().map(row).collect(),
            latencies: Histogram::default(),
            late: Vec::new(),
            first_failure: None,
            stalls: Vec::new(),
            sampled: SampledWindows { keys: 1, ..SampledWindows::default() },
        }
    }

    fn verdicts(report: &ScaleReport) -> Vec<Option<bool>> {
        bars(report).iter().map(|bar| bar.met).collect()
    }

    #[test]
    fn each_bar_is_missed_by_its_own_figure() {
        let good = || run(&[50, 80, 100, 100, 101, 101]);
        assert_eq!(verdicts(&good()), [Some(true); 5]);
        let missed = |bar: usize, change: fn(&mut ScaleReport)| {
            let mut report = good();
            change(&mut report);
            let mut expected = [Some(true); 5];
            expected[bar] = Some(false);
            assert_eq!(verdicts(&report), expected);
        };
        missed(0, |report| report.latencies.record(Duration::from_millis(11)));
        missed(1, |report| report.rows[0].failed = 1);
        missed(2, |report| report.rows.iter_mut().for_each(|row| row.cpu.master = 0.86));
        missed(3, |report| report.rows[5].master.used_memory = 110);
        missed(4, |report| report.sampled.violations.push("user of rank 1".to_owned()));
        missed(4, |report| report.sampled.keys = 0);
    }

    #[test]
    fn a_late_call_is_excused_by_a_stall_of_the_machine_alone() {
        let millis = Duration::from_millis;
        let mut report = run(&[1]);
        report.late.push(LateCall { due: millis(1_000), ended: millis(1_120) });
        report.stalls.push((millis(500), millis(600)));
        assert_eq!(bars(&report)[1].met, Some(false));
        report.stalls.push((millis(1_090), millis(1_110)));
        assert_eq!(bars(&report)[1].met, Some(false), "20 of 120 ms");
        report.stalls.push((millis(1_110), millis(1_200)));
        assert_eq!(bars(&report)[1].met, Some(true));
    }

    #[test]
    fn memory_is_not_judged_before_the_third_window() {
        assert_eq!(bars(&run(&[1; 5]))[3].met, None);
        assert_eq!(bars(&run(&[1; 6]))[3].met, Some(true));
    }

    #[test]
    fn each_second_is_a_line_of_figures() {
        let mut report = run(&[7, 8]);
        report.stalls.push((Duration::from_millis(900), Duration::from_millis(1_200)));
        let text = csv(&report);
        let columns = text.lines().next().expect("a heading").split(',').count();
        assert!(text.lines().all(|line| line.split(',').count() == columns), "{text}");
        assert!(text.ends_with("8,0,0,200.0\n"), "{text}");
    }
}
