//! Tables, and the page.

use std::fmt::Write;

use super::choices;
use super::measure::Sample;
use super::{Measured, Report, Row};
use crate::report::table::{Table, count};

/// All of a report on one page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut page = format!(
        "# The scripts on Redis, variant by variant\n\n\
         What the server itself takes for a decision, in one run of `cargo run --release -p limiter-bench -- scripts`, which writes\n\
         this page. {}\n\n\
         One connection sends script calls one after the other, without a limiter in between. *Redis µs* is the server's own time\n\
         for a decision, by INFO; what else ran on its cores is in it too, so compare rows, not machines. A row is the median of the\n\
         rounds, in which all take turns; *compared* is the median of the rounds' ratios to the nearest row above that is 1, and of\n\
         ranges in 512 runs to `group.lua` with as many. *Calls* is what the script calls for a decision. A variant that takes more\n\
         or less permits than it should is left out.\n\n\
         `group.lua` and `decide.lua` are what ships: the one is for calls that take permits of one count, alone or in groups, the\n\
         other for all else. What comes below is the floor, the yardstick, which takes one key a call in groups too, `group.lua`\n\
         with another number of runs that are kept apart, and `small`: the arithmetic of `group.lua` with as little around it as\n\
         will do, in which one thing at a time is done in another way. (SET with KEEPTTL alone is no limiter, as its keys expire\n\
         too early.)\n\n\
         ## What was chosen, and why\n\n",
        report.measured
    );
    for choice in choices::all(report) {
        page.push_str(&item(&choice));
    }
    for measured in &report.tables {
        let _ = write!(page, "\n## {}\n\n{}", measured.case.title, table(measured).markdown());
    }
    if !report.problems.is_empty() {
        page.push_str("\n## What went wrong\n\n");
        for problem in &report.problems {
            let _ = writeln!(page, "- {problem}");
        }
    }
    page
}

/// The table of one case.
#[must_use]
pub fn table(measured: &Measured) -> Table {
    let header = ["", "Redis µs", "compared", "calls", "which", "bytes a key"];
    let cells = |row: &Row| {
        let with = row.against.map_or(Some(row), |against| measured.row(against));
        let ratio = with.and_then(|with| row.ratio_to(with));
        [
            Some(row.variant.to_owned()),
            row.figure(|sample| sample.micros).map(|micros| format!("{micros:.2}")),
            ratio.map(|ratio| format!("{ratio:.2} ×")),
            row.figure(Sample::calls).map(|calls| format!("{calls:.2}")),
            row.rounds.first().map(which),
            row.figure(|sample| sample.bytes).map(count),
        ]
        .map(|cell| cell.unwrap_or_else(|| "–".to_owned()))
        .into()
    };
    let notes =
        measured.rows.iter().filter_map(|row| Some(format!("{} is left out: {}", row.variant, row.failure.as_ref()?)));
    Table::new(&header, measured.rows.iter().map(cells).collect(), notes.collect())
}

/// Commands by name, with how many there are unless that is one.
fn which(sample: &Sample) -> String {
    let one = |(name, calls): &(String, f64)| {
        let name = name.to_uppercase();
        if (calls - 1.0).abs() < 0.005 { name } else { format!("{calls:.2} {name}") }
    };
    sample.calls.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// An item of a list, in lines of some length.
fn item(text: &str) -> String {
    const LENGTH: usize = 120;
    let (mut item, mut line) = (String::new(), "-".to_owned());
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() >= LENGTH {
            item += &std::mem::replace(&mut line, " ".to_owned());
            item.push('\n');
        }
        line.push(' ');
        line += word;
    }
    item + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_broken_into_lines_of_all_its_words() {
        let text = "a word ".repeat(40);
        let item = item(&text);
        assert!(
            item.starts_with("- a word")
                && item.lines().skip(1).all(|line| line.starts_with("  a") || line.starts_with("  w"))
        );
        assert!(item.lines().all(|line| line.len() <= 120) && item.lines().count() == 3, "{item}");
        assert_eq!(item[1..].split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
    }
}
