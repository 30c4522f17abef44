//! The page docs/performance/details.md: each case with all its columns.

use crate::report::wrap::paragraph;
use crate::report::{Report, table};

/// The opening of the page, before the versions and the amount of work.
pub(super) const OPENING: &str = "All contestants and all columns of each case. The main page, \
                                  [performance.md](../performance.md), has the figures by question and [explains the \
                                  columns](../performance.md#how-was-it-measured). The name below a heading is that \
                                  for `--cases`.";

/// Returns the whole page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut page = format!("# Performance case by case\n\n{}", paragraph(OPENING));
    for case in &report.cases {
        page.push_str(&format!("\n## {}\n\n`{}`\n\n", case.title, case.name));
        page.push_str(&table::case_table(report, case).markdown());
    }
    page
}
