//! Tables, for a terminal and for Markdown.

use crate::bars::Bar;
use crate::contestant::Kind;
use crate::report::wrap::paragraph;
use crate::report::{CaseReport, Report};
use crate::sample::{Outcome, Sample};

/// Rows of cells, and notes below them.
#[derive(Debug, Default)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

/// One column: its heading, and the cell of each contestant.
type Column = (&'static str, Cell);
type Cell = Box<dyn Fn(&Outcome) -> Option<String>>;

/// Returns the table of one case, without its empty columns.
#[must_use]
pub fn case_table(report: &Report, case: &CaseReport) -> Table {
    let mut table = Table { header: vec![String::new()], ..Table::default() };
    table.rows = case.outcomes.iter().map(|outcome| vec![outcome.contestant.clone().into_owned()]).collect();
    for (heading, cell) in columns(report, case) {
        let cells: Vec<_> = case.outcomes.iter().map(&cell).collect();
        if cells.iter().any(Option::is_some) {
            table.header.push(heading.to_owned());
            for (row, cell) in table.rows.iter_mut().zip(cells) {
                row.push(cell.unwrap_or_else(|| "–".to_owned()));
            }
        }
    }
    for outcome in &case.outcomes {
        if let Some(failure) = &outcome.failure {
            table.notes.push(format!("{} is left out: {failure}", outcome.contestant));
        } else if let Some(note) = &outcome.note {
            table.notes.push(format!("{}: {note}", outcome.contestant));
        }
    }
    table
}

fn columns(report: &Report, case: &CaseReport) -> Vec<Column> {
    let best = report.best_exact_peer(&case.name).cloned();
    let in_process = case.name.starts_with("local") || case.name == "attribute";
    let late = case.name == "waiting";
    let filled = case.name.starts_with("bytes");
    let speed = figure(move |sample| (!late && !filled && sample.per_second > 0.0).then(|| count(sample.per_second)));
    let latency =
        move |of: fn(&Sample) -> f64| figure(move |sample| (!filled && of(sample) > 0.0).then(|| micros(of(sample))));
    let versus = move |outcome: &Outcome| {
        let best = best.as_ref().filter(|_| !filled && outcome.is_usable())?;
        Some(format!("{:.2} ×", outcome.ratio_to(best, |sample| sample.per_second)?))
    };
    vec![
        ("decisions/s", speed),
        ("ns a decision", figure(move |sample| in_process.then(|| format!("{:.1}", 1e9 / sample.per_second)))),
        ("of the best exact peer", Box::new(versus)),
        ("p50 µs", latency(|sample| sample.p50_us)),
        ("p99 µs", latency(|sample| sample.p99_us)),
        ("max µs", latency(|sample| sample.max_us)),
        ("Redis µs", figure(|sample| sample.server_us.map(|us| format!("{us:.2}")))),
        ("commands", figure(|sample| sample.commands.map(|commands| format!("{commands:.3}")))),
        (if late { "bytes a call" } else { "bytes a key" }, figure(|sample| sample.bytes.map(count))),
        ("instructions", figure(|sample| sample.instructions.map(count))),
        (
            "denied",
            figure(move |sample| (!late && sample.per_second > 0.0).then(|| format!("{:.1} %", sample.denied * 100.0))),
        ),
        ("limit kept", Box::new(kept)),
    ]
}

fn figure(of: impl Fn(&Sample) -> Option<String> + 'static) -> Cell {
    Box::new(move |outcome| if outcome.is_usable() { of(&outcome.median) } else { None })
}

fn kept(outcome: &Outcome) -> Option<String> {
    let most = outcome.most_in_a_window.filter(|_| outcome.kind != Kind::Floor)?;
    Some(if outcome.kept { "yes".to_owned() } else { format!("NO: {most} in a window") })
}

/// Returns the table of the goals.
#[must_use]
pub fn bar_table(report: &Report) -> Table {
    let header = ["case", "bar", ""].map(str::to_owned).to_vec();
    let row = |bar: &Bar| vec![bar.row.clone().into_owned(), bar.bar.clone(), verdict(bar)];
    let met = report.bars.iter().filter(|bar| bar.met == Some(true)).count();
    let measured = report.bars.iter().filter(|bar| bar.met.is_some()).count();
    let notes = vec![format!("{met} of {} bars met, {measured} measured", report.bars.len())];
    Table { header, rows: report.bars.iter().map(row).collect(), notes }
}

fn verdict(bar: &Bar) -> String {
    let figures = bar.measured.map(|measured| format!("{} of {}", figure_of_bar(measured), bar.bound));
    match (bar.met, figures) {
        (Some(true), Some(figures)) => format!("met: {figures}"),
        (Some(false), Some(figures)) => format!("not met: {figures}"),
        (Some(_), None) => "not met".to_owned(),
        (None, _) => "not measured".to_owned(),
    }
}

fn figure_of_bar(figure: f64) -> String {
    if figure >= 100.0 {
        count(figure)
    } else if figure >= 0.1 {
        format!("{figure:.2}")
    } else {
        format!("{figure:.5}")
    }
}

/// Formats a number with a blank between thousands.
pub(crate) fn count(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn micros(us: f64) -> String {
    if us < 10.0 { format!("{us:.2}") } else { count(us) }
}

impl Table {
    pub(crate) fn new(header: &[&str], rows: Vec<Vec<String>>, notes: Vec<String>) -> Self {
        Self { header: header.iter().map(|&heading| heading.to_owned()).collect(), rows, notes }
    }

    /// Returns the table in columns: text to the left, figures to the right.
    #[must_use]
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.header]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.header.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells =
                cells.map(
                    |(column, (cell, width))| {
                        if self.is_text(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                    },
                );
            format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned() + "\n"
        };
        let mut text = line(&self.header);
        text.extend(self.rows.iter().map(line));
        text.extend(self.notes.iter().map(|note| format!("  ({note})\n")));
        text
    }

    /// Returns the table in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let rule = (0..self.header.len()).map(|column| if self.is_text(column) { "---|" } else { "---:|" });
        let mut text = line(&self.header);
        text.push('|');
        text.extend(rule);
        text.push('\n');
        text.extend(self.rows.iter().map(line));
        if !self.notes.is_empty() {
            text.push('\n');
            text.push_str(&paragraph(&format!("{}.", self.notes.join("; "))));
        }
        text
    }

    fn is_text(&self, column: usize) -> bool {
        column == 0
            || matches!(
                self.header[column].as_str(),
                "bar" | "" | "limit kept" | "commands called" | "unit" | "verdict"
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_separates_thousands() {
        let text = |figure| count(figure).replace('\u{202f}', " ");
        assert_eq!([text(7.0), text(999.6), text(1_234_567.0)], ["7", "1 000", "1 234 567"]);
    }

    #[test]
    fn columns_are_aligned() {
        let table = Table {
            header: vec![String::new(), "decisions/s".to_owned()],
            rows: vec![vec!["a".to_owned(), "1".to_owned()], vec!["long".to_owned(), "22".to_owned()]],
            notes: vec!["a: well".to_owned()],
        };
        assert_eq!(table.text(), "        decisions/s\n  a               1\n  long           22\n  (a: well)\n");
        assert_eq!(table.markdown(), "|  | decisions/s |\n|---|---:|\n| a | 1 |\n| long | 22 |\n\na: well.\n");
    }
}
