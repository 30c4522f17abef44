//! The figures of a run, for people and as JSON.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::tally::Tally;
use crate::arguments::BenchArguments;
use crate::failure::Failure;
use crate::output::{Output, Style};

/// The quantiles of the report, by their names.
const QUANTILES: [(&str, &str, f64); 3] = [("p50", "p50", 0.5), ("p99", "p99", 0.99), ("p99.9", "p99_9", 0.999)];

/// The result of a run.
pub(super) struct Report<'a> {
    pub(super) arguments: &'a BenchArguments,
    pub(super) tally: &'a Tally,
    /// The time from the start to the last decision.
    pub(super) elapsed: Duration,
    /// True if SIGINT ended the run.
    pub(super) was_interrupted: bool,
}

impl Report<'_> {
    /// Writes the figures to standard output.
    pub(super) fn write(&self, output: &Output) -> Result<(), Failure> {
        if output.is_json() { output.json(&self.as_json()) } else { self.write_text(output) }
    }

    fn decisions_per_second(&self) -> u64 {
        let nanos = self.elapsed.as_nanos().max(1);
        u64::try_from(u128::from(self.tally.decisions()) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
    }

    fn as_json(&self) -> Value {
        let Self { arguments, tally, .. } = self;
        let mut latencies: Map<_, _> = QUANTILES
            .iter()
            .map(|(_, name, share)| ((*name).to_owned(), json!(micros(tally.latencies.quantile(*share)))))
            .collect();
        latencies.insert("max".to_owned(), json!(micros(tally.latencies.max())));
        let errors: Map<_, _> =
            tally.errors.iter().map(|(kind, failed)| ((*kind).to_owned(), json!(failed.count))).collect();
        json!({
            "tasks": arguments.tasks,
            "keys": arguments.keys,
            "limit": arguments.limit.to_string(),
            "elapsed_ms": u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
            "interrupted": self.was_interrupted,
            "decisions": tally.decisions(),
            "decisions_per_second": self.decisions_per_second(),
            "allowed": tally.allowed,
            "denied": tally.denied,
            "errors": errors,
            "latency_us": latencies,
        })
    }

    fn write_text(&self, output: &Output) -> Result<(), Failure> {
        let Self { arguments, tally, elapsed, was_interrupted } = self;
        let row = |name: &str, value: String| output.line(format_args!("{name:<13} {value}"));
        output.line(format_args!(
            "{} tasks, {} keys, {}, {:.1} s{}",
            arguments.tasks,
            grouped(arguments.keys.into()),
            arguments.limit,
            elapsed.as_secs_f64(),
            if *was_interrupted { ", interrupted" } else { "" }
        ))?;
        let rate = output.paint(Style::Bold, grouped(self.decisions_per_second()));
        row("decisions/s", format!("{rate}, each by the store: no denial is cached"))?;
        row("allowed", grouped(tally.allowed))?;
        row("denied", grouped(tally.denied))?;
        let errors: Vec<_> =
            tally.errors.iter().map(|(kind, failed)| format!("{} {kind}", grouped(failed.count))).collect();
        let has_errors = !errors.is_empty();
        let errors = if has_errors { errors.join(", ") } else { "0".to_owned() };
        row("errors", if has_errors { output.paint(Style::Red, errors) } else { errors })?;
        for (name, _, share) in QUANTILES {
            row(name, shown(tally.latencies.quantile(share)))?;
        }
        row("max", shown(tally.latencies.max()))
    }
}

fn micros(latency: Duration) -> u64 {
    u64::try_from(latency.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Writes a latency with three digits: `412 µs`, `1.93 ms`, `2.50 s`.
fn shown(latency: Duration) -> String {
    let (value, unit) = match latency.as_nanos() {
        0..1_000 => return format!("{} ns", latency.as_nanos()),
        1_000..1_000_000 => (latency.as_secs_f64() * 1e6, "µs"),
        1_000_000..1_000_000_000 => (latency.as_secs_f64() * 1e3, "ms"),
        _ => (latency.as_secs_f64(), "s"),
    };
    let decimals = if value >= 100.0 { 0 } else { usize::from(value < 10.0) + 1 };
    format!("{value:.decimals$} {unit}")
}

/// Writes a number in groups of three digits: `1 234 567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
        let cases = [(0, "0 ns"), (999, "999 ns"), (1_000, "1.00 µs"), (412_300, "412 µs"), (1_930_000, "1.93 ms")];
        for (nanos, text) in cases {
            assert_eq!(shown(Duration::from_nanos(nanos)), text);
        }
        assert_eq!(shown(Duration::from_millis(25_000)), "25.0 s");
        assert_eq!(micros(Duration::from_nanos(1_001)), 2);
    }
}
