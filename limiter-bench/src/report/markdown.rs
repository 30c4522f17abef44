//! The page.

use std::fmt::Write;

use crate::report::charts::Chart;
use crate::report::{Report, table};

/// All of a report on one page, with its charts.
#[must_use]
pub fn page(report: &Report, charts: &[Chart]) -> String {
    let mut page = format!(
        "# Performance\n\n\
         Side by side with the other limiters for Rust and with the published designs for Redis, in one run of\n\
         `cargo run --release -p limiter-bench -- compare`, which writes this page and takes about a quarter of an hour\n\
         (with `--quick` less than a minute; `cargo run --release -p limiter-bench -- cases` lists what there is, and\n\
         `cargo bench -p limiter-bench` times the paths in process by themselves). {}\n\n\
         Compare rows, not machines: client and server share the cores, and what else ran there is in the figures too. A row is the\n\
         median of the rounds, in which everybody takes turns; a ratio is the median of the rounds' ratios. *Redis µs* is the\n\
         server's own time for a decision, *commands* is what was sent for one, not counting what scripts call. *Limit kept* is\n\
         judged from the history of admissions: NO means that more was let through in one window than the limit allows.\n\n\
         What the scripts themselves take, variant by variant, is in [performance/scripts.md](performance/scripts.md).\n\n\
         ## Goals, and how far they are met\n\n",
        report.measured
    );
    let mut write = |text: &str| page.push_str(text);
    write(&table::of_bars(report).markdown());
    if !charts.is_empty() {
        write("\n## How costs grow\n");
    }
    for chart in charts {
        write(&format!("\n![{}](performance/{}.svg)\n", chart.title, chart.name));
    }
    write("\n## Case by case\n");
    for case in &report.cases {
        write(&format!("\n### {}\n\n`{}`\n\n", case.title, case.name));
        write(&table::of_case(report, case).markdown());
    }
    if !report.problems.is_empty() {
        write("\n## What went wrong\n\n");
        for problem in &report.problems {
            let _ = writeln!(page, "- {problem}");
        }
    }
    page
}
