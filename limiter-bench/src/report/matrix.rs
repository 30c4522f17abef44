//! Tables of one figure of several cases, a row a contestant.

use crate::report::table::{Table, count, micros};
use crate::report::{CaseReport, Report};
use crate::sample::Sample;

/// The text of a figure.
pub(super) type FigureText = fn(&Sample) -> Option<String>;
/// A heading, the name of a case, and its figure.
pub(super) type CaseColumn = (&'static str, &'static str, FigureText);

/// Returns the table of all contestants in these cases, without the cases that were not measured.
pub(super) fn matrix(report: &Report, columns: &[CaseColumn]) -> Option<Table> {
    let columns: Vec<_> =
        columns.iter().filter_map(|&(heading, case, figure)| Some((heading, report.case(case)?, figure))).collect();
    let mut names: Vec<&str> = Vec::new();
    for outcome in columns.iter().flat_map(|(_, case, _)| &case.outcomes) {
        if !names.contains(&&*outcome.contestant) {
            names.push(&outcome.contestant);
        }
    }
    let row = |name: &&str| {
        let cell = |(_, case, figure): &(_, &CaseReport, FigureText)| {
            let outcome = case.outcomes.iter().find(|outcome| outcome.contestant == **name && outcome.is_usable())?;
            figure(&outcome.median)
        };
        let cells = columns.iter().map(|column| cell(column).unwrap_or_else(|| "–".to_owned()));
        [(*name).to_owned()].into_iter().chain(cells).collect()
    };
    let rows: Vec<_> = names.iter().map(row).collect();
    let header: Vec<_> = [""].into_iter().chain(columns.iter().map(|&(heading, ..)| heading)).collect();
    (!rows.is_empty()).then(|| Table::new(&header, rows, Vec::new()))
}

/// Returns the cases in which each contestant did not keep its limit, and its most calls in the case that finds out.
pub(super) fn limits_kept(report: &Report) -> Option<Table> {
    let judged = |case: &'_ CaseReport, name: &str| {
        case.outcomes.iter().find(|outcome| outcome.contestant == name)?.most_in_a_window
    };
    let mut names: Vec<&str> = Vec::new();
    for outcome in report.cases.iter().flat_map(|case| &case.outcomes) {
        if outcome.most_in_a_window.is_some() && !names.contains(&&*outcome.contestant) {
            names.push(&outcome.contestant);
        }
    }
    let row = |name: &&str| {
        let cases: Vec<_> = report.cases.iter().filter(|case| judged(case, name).is_some()).collect();
        let is_broken =
            |case: &&&CaseReport| case.outcomes.iter().any(|outcome| outcome.contestant == *name && !outcome.kept);
        let broken: Vec<_> = cases.iter().filter(is_broken).map(|case| format!("`{}`", case.name)).collect();
        let kept = if broken.is_empty() { "yes".to_owned() } else { format!("NO: {}", broken.join(", ")) };
        let most = report.case("exact").and_then(|case| judged(case, name));
        let most = most.map_or_else(|| "–".to_owned(), |most| most.to_string());
        vec![(*name).to_owned(), most, cases.len().to_string(), kept]
    };
    let header = ["", "most where 5 are allowed", "cases", "limit kept"];
    (!names.is_empty()).then(|| Table::new(&header, names.iter().map(row).collect(), Vec::new()))
}

/// Returns the figures of `rate-limited` in several cases, a row each with its heading.
pub(super) fn own_figures(report: &Report, rows: &[(&'static str, &'static str)]) -> Option<Table> {
    let row = |&(heading, case): &(&str, &str)| {
        let ours = &report.ours(case)?;
        let ratio = report.best_exact_peer(case).and_then(|peer| ours.ratio_to(peer, |sample| sample.per_second));
        let cells = [
            Some(count(ours.median.per_second)),
            ratio.map(|ratio| format!("{ratio:.2} ×")),
            Some(micros(ours.median.p50_us)),
            Some(micros(ours.median.p99_us)),
            ours.median.server_us.map(|us| format!("{us:.2}")),
            ours.median.commands.map(|commands| format!("{commands:.3}")),
        ];
        let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned()));
        Some([heading.to_owned()].into_iter().chain(cells).collect::<Vec<_>>())
    };
    let rows: Vec<_> = rows.iter().filter_map(row).collect();
    let header = ["", "decisions/s", "of the best exact peer", "p50 µs", "p99 µs", "Redis µs", "commands"];
    (!rows.is_empty()).then(|| Table::new(&header, rows, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Kind;
    use crate::sample::Outcome;

    #[test]
    fn a_case_that_was_not_measured_has_no_column_and_a_missing_figure_a_dash() {
        let mut ours = Outcome::named("ours", Kind::Ours);
        ours.add(Sample { per_second: 2.0, ..Sample::default() });
        let outcomes = vec![ours, Outcome::named("peer", Kind::Peer)];
        let cases = vec![CaseReport { name: "tasks-1".into(), title: "".into(), outcomes }];
        let report = Report { cases, ..Report::default() };
        let speed: FigureText = |sample| Some(sample.per_second.to_string());
        let table = matrix(&report, &[("one task", "tasks-1", speed), ("many", "tasks-512", speed)]).expect("a table");
        assert_eq!(table.markdown(), "|  | one task |\n|---|---:|\n| ours | 2 |\n| peer | – |\n");
        assert!(matrix(&report, &[("many", "tasks-512", speed)]).is_none());
    }
}
