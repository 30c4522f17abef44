//! The page docs/performance.md, in the order of a reader's questions.

use std::fmt::Write;

use crate::report::charts::Chart;
use crate::report::matrix::{CaseColumn, FigureText, limits_kept, matrix, own_figures};
use crate::report::table::{Table, bar_table, case_table, count, micros};
use crate::report::wrap::paragraph;
use crate::report::{Report, summary};

/// The links to the other pages.
const PAGES: &str = "Every case with all its columns is in [performance/details.md](performance/details.md). The \
                     server's time for each script alone is in [performance/scripts.md](performance/scripts.md).";

/// One question of a reader, with its answer.
struct Question {
    heading: &'static str,
    /// The paragraph before the tables.
    text: &'static str,
    tables: fn(&Report) -> Vec<Option<Table>>,
    /// The names of its charts.
    charts: &'static [&'static str],
}

const NANOS: FigureText = |sample| Some(format!("{:.1}", 1e9 / sample.per_second));
const SPEED: FigureText = |sample| Some(count(sample.per_second));
const P50: FigureText = |sample| Some(micros(sample.p50_us));
const P99: FigureText = |sample| Some(micros(sample.p99_us));
const MAX: FigureText = |sample| Some(micros(sample.max_us));
const SERVER: FigureText = |sample| sample.server_us.map(|us| format!("{us:.2}"));
const SENT: FigureText = |sample| sample.commands.map(|commands| format!("{commands:.3}"));
const BYTES: FigureText = |sample| sample.bytes.map(count);
const INSTRUCTIONS: FigureText = |sample| sample.instructions.map(count);

const QUESTIONS: [Question; 9] = [
    Question {
        heading: "How fast is a decision in memory?",
        text: "Nanoseconds a decision. Two threads count together: 50 ns are 100 ns on each. A key of the first two \
               columns allows 100\u{202f}000 calls a second. A key of the others allows 100, so nearly all calls are \
               denied.",
        tables: |report| {
            let spun: [CaseColumn; 4] = [
                ("1 000 keys, 1 thread", "local-keys", NANOS),
                ("1 000 keys, 2 threads", "local-keys-2", NANOS),
                ("denied, 1 thread", "local-denied", NANOS),
                ("denied, 2 threads", "local-denied-2", NANOS),
            ];
            let annotated: [CaseColumn; 3] = [
                ("constant key, ns a decision", "attribute", NANOS),
                ("p50 µs", "attribute", P50),
                ("p99 µs", "attribute", P99),
            ];
            let instructions: [CaseColumn; 1] = [("instructions a decision", "instructions", INSTRUCTIONS)];
            [&spun[..], &annotated, &instructions].map(|columns| matrix(report, columns)).into()
        },
        charts: &[],
    },
    Question {
        heading: "How fast is a decision through Redis?",
        text: "One task makes one call after the other, so its latency is that of a round trip: the two bare calls \
               are the floor. The limit is 100\u{202f}000 a second on each of 1\u{202f}000 keys.",
        tables: |report| {
            let columns: [CaseColumn; 6] = [
                ("decisions/s", "tasks-1", SPEED),
                ("p50 µs", "tasks-1", P50),
                ("p99 µs", "tasks-1", P99),
                ("max µs", "tasks-1", MAX),
                ("Redis µs", "tasks-1", SERVER),
                ("commands", "tasks-1", SENT),
            ];
            vec![matrix(report, &columns)]
        },
        charts: &[],
    },
    Question {
        heading: "How fast are many tasks?",
        text: "Decisions a second. Calls of several tasks share batches, so a process sends far fewer commands than it \
               has decisions. The first columns have 1\u{202f}000 keys of 100\u{202f}000/s. `200 000 keys` has 64 tasks. `5/10 s` \
               has 512 tasks on 200\u{202f}000 keys. The last columns have one key whose limit is never reached.",
        tables: |report| {
            let columns: [CaseColumn; 7] = [
                ("8 tasks", "tasks-8", SPEED),
                ("64 tasks", "tasks-64", SPEED),
                ("512 tasks", "tasks-512", SPEED),
                ("200 000 keys", "keys-200000", SPEED),
                ("5/10 s", "many-keys", SPEED),
                ("one key, 64 tasks", "one-key-64", SPEED),
                ("one key, 512 tasks", "one-key-512", SPEED),
            ];
            let own = [
                ("1 task", "tasks-1"),
                ("8 tasks", "tasks-8"),
                ("64 tasks", "tasks-64"),
                ("512 tasks", "tasks-512"),
                ("64 tasks, 200 000 keys", "keys-200000"),
                ("512 tasks, 200 000 keys, 5/10 s", "many-keys"),
                ("64 tasks, one key", "one-key-64"),
                ("512 tasks, one key", "one-key-512"),
                ("64 tasks, 50 % denied", "denied-50"),
                ("64 tasks, one key, 99 % denied", "denied-99"),
            ];
            vec![matrix(report, &columns), own_figures(report, &own)]
        },
        charts: &["tasks", "keys"],
    },
    Question {
        heading: "How fast is a denial?",
        text: "Decisions a second of 64 tasks. In the first column half of the calls are denied: each of 200\u{202f}000 keys \
               allows 5 in 10 seconds and is called 10 times in a row. The others have one key of the limit in the \
               heading. A process remembers a denial until a permit returns, and sends no command for it.",
        tables: |report| {
            let columns: [CaseColumn; 5] = [
                ("50 % denied", "denied-50", SPEED),
                ("100/s", "denied-99", SPEED),
                ("1 000/s", "max-1000", SPEED),
                ("10 000/s", "max-10000", SPEED),
                ("100 000/s", "max-100000", SPEED),
            ];
            vec![matrix(report, &columns)]
        },
        charts: &["max", "server"],
    },
    Question {
        heading: "How fast is a call with a lease?",
        text: "With [leases](leases.md) a process takes permits of a busy key ahead. The first columns have one key \
               whose limit is never reached, in decisions a second. `4 instances` has 16 tasks in each, which share \
               a key of 1\u{202f}000\u{202f}000/s.",
        tables: |report| {
            let columns: [CaseColumn; 6] = [
                ("1 task", "lease-1", SPEED),
                ("64 tasks", "lease-64", SPEED),
                ("512 tasks", "lease-512", SPEED),
                ("4 instances", "lease-4-instances", SPEED),
                ("p50 µs, 64 tasks", "lease-64", P50),
                ("p99 µs, 64 tasks", "lease-64", P99),
            ];
            vec![matrix(report, &columns)]
        },
        charts: &[],
    },
    Question {
        heading: "What does a waiting call cost?",
        text: "10\u{202f}000 tasks wait for a permit, each on a key of its own. The delay counts from the promised instant.",
        tables: |report| vec![report.case("waiting").map(|case| case_table(report, case))],
        charts: &[],
    },
    Question {
        heading: "How many bytes does a key take in Redis?",
        text: "With 5 permits in use: the growth of the server's memory by 10\u{202f}000 keys, divided by their number. With \
               more: `MEMORY USAGE` of one key. A contestant without a figure had not taken all permits after 8 \
               seconds. Redis 8.2.3 needs less than 7.0: 134 bytes for a key of rate-limited with 5 permits instead \
               of 174, and 80 by `MEMORY USAGE` instead of 104 (2026-11-27).",
        tables: |report| {
            let columns: [CaseColumn; 4] = [
                ("5 permits", "bytes-5", BYTES),
                ("1 000", "bytes-1000", BYTES),
                ("10 000", "bytes-10000", BYTES),
                ("100 000", "bytes-100000", BYTES),
            ];
            vec![matrix(report, &columns)]
        },
        charts: &["bytes"],
    },
    Question {
        heading: "Which of them keep the limit?",
        text: "Each window of the recorded admissions is checked. The first figure is of a limit of 5 a second, with \
               64 calls at once and then 40 a second. *Cases* is the number of those with a record, and a NO names \
               the cases in which a window had more admissions than the limit allows.",
        tables: |report| vec![limits_kept(report)],
        charts: &[],
    },
    Question {
        heading: "Which goals are met?",
        text: "They were set for a machine with 2 cores.",
        tables: |report| vec![Some(bar_table(report))],
        charts: &[],
    },
];

/// The explanation of the run, before the versions and the amount of work.
const METHOD: &str = "All figures on this page are of one run of `cargo run --release -p limiter-bench -- compare`, \
                      which writes the page in about a quarter of an hour. With `--quick` it takes less than a minute. \
                      The cases with leases need `--features limiter-bench/leases,rate-limited/leases`. \
                      `cargo run --release -p limiter-bench -- cases` lists the cases, and `cargo bench -p \
                      limiter-bench` times the paths in process by themselves. `limiter-bench pages` writes the pages \
                      anew from `docs/performance/results.json`, which has the figures of every round.";

/// The explanation of the columns.
const COLUMNS: &str = "Compare rows, not machines: client and server share the cores, and other work there is in the \
                       figures too. A row is the median of the rounds, in which all contestants take turns. A ratio is \
                       the median of the rounds' ratios. A peer is *exact* if it kept every limit. *Redis µs* is the server's own time for a decision. *Commands* is the number of commands \
                       sent for a decision, without those inside scripts. *Limit kept* is checked against the history \
                       of admissions. *ZSET*, *HASH* and *LIST* are published designs, through the Redis client of \
                       rate-limited.";

/// Returns the whole page, with its charts.
#[must_use]
pub fn page(report: &Report, charts: &[Chart]) -> String {
    let mut page = "# Performance\n\n".to_owned();
    let summary = summary::sentences(report).join(" ");
    if !summary.is_empty() {
        page.push_str(&format!("{}\n", paragraph(&summary)));
    }
    page.push_str(&paragraph(PAGES));
    for question in &QUESTIONS {
        let tables: Vec<_> = (question.tables)(report).into_iter().flatten().collect();
        if tables.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## {}\n\n{}", question.heading, paragraph(question.text));
        for table in tables {
            let _ = write!(page, "\n{}", table.markdown());
        }
        for chart in charts.iter().filter(|chart| question.charts.contains(&chart.name)) {
            let _ = write!(page, "\n![{}](performance/{}.svg)\n", chart.title, chart.name);
        }
    }
    if !report.problems.is_empty() {
        page.push_str("\n## What failed?\n\n");
        for problem in &report.problems {
            let _ = writeln!(page, "- {problem}");
        }
    }
    let commit = if report.commit.is_empty() { String::new() } else { format!(" Measured: commit {}.", report.commit) };
    let method = paragraph(&format!("{METHOD} {}{commit}", report.measured));
    page.push_str(&format!("\n## How was it measured?\n\n{method}\n{}", paragraph(COLUMNS)));
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{charts, details};

    const RESULTS: &str = include_str!("../../../docs/performance/results.json");

    #[test]
    fn committed_pages_are_those_of_the_committed_results() {
        let report: Report = serde_json::from_str(RESULTS).expect("docs/performance/results.json has a report");
        let pages = [
            ("performance.md", page(&report, &charts::ALL), include_str!("../../../docs/performance.md")),
            ("performance/details.md", details::page(&report), include_str!("../../../docs/performance/details.md")),
        ];
        for (name, written, committed) in pages {
            assert!(written == committed, "docs/{name} differs: `cargo run -p limiter-bench -- pages` writes it");
        }
    }

    #[test]
    fn every_chart_stands_below_one_question() {
        for chart in charts::ALL {
            let count = QUESTIONS.iter().filter(|question| question.charts.contains(&chart.name)).count();
            assert_eq!(count, 1, "{}", chart.name);
        }
    }
}
