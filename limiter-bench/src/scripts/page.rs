//! The tables, and the page docs/performance/scripts.md.

use std::fmt::Write;

use super::measure::ScriptSample;
use super::{ScriptReport, ScriptRow, ScriptTable};
use crate::report::table::{Table, count};
use crate::report::wrap::paragraph;

/// The paragraphs that explain how the figures are measured.
const METHOD: [&str; 2] = [
    "One connection sends script calls one after the other, without a limiter in between. *Redis µs* is the server's \
     own time for a decision, by `INFO commandstats`. It includes other work on the same cores, so compare rows, not \
     machines. A row is the median of the rounds, in which all scripts take turns. *Compared* is the median of the \
     rounds' ratios to `batch.lua`. *Calls* is the number of commands that the script calls for a decision. A script \
     that takes more or fewer permits than it should is left out.",
    "`batch.lua` and `decide.lua` ship. `batch.lua` serves calls that take permits of one counter each, alone or in \
     batches; `decide.lua` serves all other calls. `return 1` is the floor. The ZSET log is the yardstick; it takes \
     one key a call, also where the others take 64.",
];

/// The reasons for the form of the scripts. Its figures are of the date that it names.
const CHOICES: &str = include_str!("choices.md");

/// Returns the whole page.
#[must_use]
pub fn page(report: &ScriptReport) -> String {
    let [method, scripts] = METHOD.map(paragraph);
    let opening = paragraph(&format!(
        "The server's own time for a decision by each shipped script, beside the floor and a published design. The \
         figures are of one run of `cargo run --release -p limiter-bench -- scripts`, which writes this page. {}",
        report.measured
    ));
    let mut page = format!("# The scripts on Redis\n\n{opening}\n{method}\n{scripts}\n{CHOICES}");
    for measured in &report.tables {
        let _ = write!(page, "\n## {}\n\n{}", measured.case.title, table(measured).markdown());
    }
    if !report.problems.is_empty() {
        page.push_str("\n## Failures\n\n");
        for problem in &report.problems {
            let _ = writeln!(page, "- {problem}");
        }
    }
    page
}

/// Returns the table of one case.
#[must_use]
pub fn table(measured: &ScriptTable) -> Table {
    let header = ["", "Redis µs", "compared", "calls", "commands called", "bytes a key"];
    let cells = |row: &ScriptRow| {
        let ratio = measured.reference().and_then(|reference| row.ratio_to(reference));
        [
            Some(row.script.to_owned()),
            row.median(|sample| sample.micros).map(|micros| format!("{micros:.2}")),
            ratio.map(|ratio| format!("{ratio:.2} ×")),
            row.median(ScriptSample::total_calls).map(|calls| format!("{calls:.2}")),
            row.rounds.first().map(commands_called),
            row.median(|sample| sample.bytes).map(count),
        ]
        .map(|cell| cell.unwrap_or_else(|| "–".to_owned()))
        .into()
    };
    let notes =
        measured.rows.iter().filter_map(|row| Some(format!("{} is left out: {}", row.script, row.failure.as_ref()?)));
    Table::new(&header, measured.rows.iter().map(cells).collect(), notes.collect())
}

/// Returns the names of the commands, with the number of calls unless it is 1.
fn commands_called(sample: &ScriptSample) -> String {
    let one = |(name, calls): &(String, f64)| {
        let name = name.to_uppercase();
        if (calls - 1.0).abs() < 0.005 { name } else { format!("{calls:.2} {name}") }
    };
    sample.calls.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_page_has_the_text_of_the_template() {
        let committed = include_str!("../../../docs/performance/scripts.md");
        for text in METHOD.map(paragraph) {
            assert!(committed.contains(&text), "docs/performance/scripts.md should contain\n{text}");
        }
        assert!(committed.contains(CHOICES), "docs/performance/scripts.md should contain choices.md");
    }
}
