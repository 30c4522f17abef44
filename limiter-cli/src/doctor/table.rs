//! The findings as a table.

use comfy_table::{Cell, Color, Table};

use super::Results;
use super::finding::{Finding, Status};
use crate::failure::Failure;
use crate::output::{Output, visible};

/// Writes the findings, each with its fix below it, and their numbers by status.
pub(super) fn write(results: &Results, output: &Output) -> Result<(), Failure> {
    output.print(table(results, output))?;
    let count = |status| results.iter().filter(|(_, finding)| finding.status == status).count();
    output.line(format_args!(
        "\n{} checks: {} ok, {} warn, {} fail, {} unknown",
        results.len(),
        count(Status::Ok),
        count(Status::Warn),
        count(Status::Fail),
        count(Status::Unknown),
    ))
}

/// Builds the table. Styles are those of cells: the table would count the letters of escape sequences.
fn table(results: &Results, output: &Output) -> Table {
    let mut table = output.table(&["CHECK", "STATUS", "FINDING"]);
    for (check, Finding { status, finding, fix }) in results {
        let word = Cell::new(status.as_str()).fg(color(*status));
        table.add_row([Cell::new(check), word, Cell::new(visible(finding))]);
        if let Some(fix) = fix {
            table.add_row(["", "", &format!("fix: {}", visible(fix))]);
        }
    }
    table
}

fn color(status: Status) -> Color {
    match status {
        Status::Ok => Color::DarkGreen,
        Status::Unknown => Color::DarkGrey,
        Status::Warn => Color::DarkYellow,
        Status::Fail => Color::DarkRed,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::output::lines as lines_of;

    /// Removes escape sequences, which end with `m`.
    fn without_styles(line: &str) -> String {
        let mut parts = line.split('\u{1b}');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
    }

    #[test]
    fn columns_are_aligned_with_and_without_colours() {
        let results = vec![("connect", Finding::ok("there")), ("persistence", Finding::fail("full", "free space"))];
        let lines = |color: &str| -> Vec<String> {
            let output = Output::before_parsing([color].into_iter().map(OsString::from));
            lines_of(table(&results, &output))
        };
        let plain = lines("--color=never");
        assert_eq!(
            plain,
            [
                "CHECK        STATUS  FINDING",
                "connect      ok      there",
                "persistence  fail    full",
                "                     fix: free space",
            ]
        );
        let styled = lines("--color=always");
        assert!(styled.iter().any(|line| line.contains('\u{1b}')), "{styled:?}");
        let shown: Vec<_> = styled.iter().map(|line| without_styles(line).trim_end().to_owned()).collect();
        assert_eq!(shown, plain, "{styled:?}");
    }
}
