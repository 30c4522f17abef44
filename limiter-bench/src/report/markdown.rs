//! The page docs/performance.md.

use std::fmt::Write;

use crate::report::charts::Chart;
use crate::report::wrap::paragraph;
use crate::report::{Report, summary, table};

/// The explanation of the figures, before the versions and the amount of work.
const METHOD: &str = "All figures on this page are of one run of `cargo run --release -p limiter-bench -- compare`, \
                      which writes the page in about a quarter of an hour. With `--quick` it takes less than a minute. \
                      The cases with leases need `--features limiter-bench/leases,rate-limited/leases`. \
                      `cargo run --release -p limiter-bench -- cases` lists the cases, and `cargo bench -p \
                      limiter-bench` times the paths in process by themselves.";

/// The explanation of the columns.
const COLUMNS: &str = "Compare rows, not machines: client and server share the cores, and other work there is in the \
                       figures too. A row is the median of the rounds, in which all contestants take turns. A ratio is \
                       the median of the rounds' ratios. *Redis µs* is the server's own time for a decision. \
                       *Commands* is the number of commands sent for a decision, without those inside scripts. *Limit \
                       kept* is checked against the history of admissions: NO means that one window had more \
                       admissions than the limit allows. A peer is *exact* if it kept every limit.";

/// The link to the figures of the scripts.
const SCRIPTS: &str = "The server's time for each script alone is in [performance/scripts.md](performance/scripts.md).";

/// Returns the whole page, with its charts.
#[must_use]
pub fn page(report: &Report, charts: &[Chart]) -> String {
    let mut page = "# Performance\n\n".to_owned();
    let summary = summary::sentences(report).join(" ");
    if !summary.is_empty() {
        page.push_str(&format!("{}\n", paragraph(&summary)));
    }
    let method = paragraph(&format!("{METHOD} {}", report.measured));
    page.push_str(&format!("## How it was measured\n\n{method}\n{}\n{}", paragraph(COLUMNS), paragraph(SCRIPTS)));
    if !charts.is_empty() {
        page.push_str("\n## Growth of costs\n");
    }
    for chart in charts {
        page.push_str(&format!("\n![{}](performance/{}.svg)\n", chart.title, chart.name));
    }
    page.push_str("\n## Case by case\n");
    for case in &report.cases {
        page.push_str(&format!("\n### {}\n\n`{}`\n\n", case.title, case.name));
        page.push_str(&table::case_table(report, case).markdown());
    }
    if !report.problems.is_empty() {
        page.push_str("\n## Failures\n\n");
        for problem in &report.problems {
            let _ = writeln!(page, "- {problem}");
        }
    }
    page.push_str("\n## Goals\n\n");
    page.push_str(&table::bar_table(report).markdown());
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_page_has_the_text_of_the_template() {
        let committed = include_str!("../../../docs/performance.md");
        let committed = committed.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in [METHOD, COLUMNS, SCRIPTS] {
            assert!(committed.contains(text), "docs/performance.md should contain\n{text}");
        }
    }
}
