//! The figures of one contestant in one case: those of each round, and their medians.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::contestant::{Entry, Failure, Kind, Rate};
use crate::kept;
use crate::server::Work;
use crate::tally::Tally;

/// The figures of one round, or the medians of several rounds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Decisions a second, of all tasks or threads together.
    #[serde(serialize_with = "rounded", deserialize_with = "or_infinite")]
    pub per_second: f64,
    /// The median latency of calls, in microseconds.
    #[serde(serialize_with = "rounded")]
    pub p50_us: f64,
    /// The 99th percentile of the latency, in microseconds.
    #[serde(serialize_with = "rounded")]
    pub p99_us: f64,
    /// The greatest latency, in microseconds.
    #[serde(serialize_with = "rounded")]
    pub max_us: f64,
    /// The share of denied calls, from 0 to 1.
    #[serde(serialize_with = "rounded")]
    pub denied: f64,
    /// Redis's own time a decision, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_rounded")]
    pub server_us: Option<f64>,
    /// Commands sent to Redis a decision, not counting those inside scripts.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_rounded")]
    pub commands: Option<f64>,
    /// Bytes of a key in Redis, or of a waiting call in this process.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_rounded")]
    pub bytes: Option<f64>,
    /// Machine instructions a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
}

impl Sample {
    pub(crate) fn from_tally(tally: &mut Tally) -> Self {
        tally.latencies.sort_unstable();
        let latency = |permille: usize| {
            let last = tally.latencies.len().saturating_sub(1);
            tally.latencies.get(last * permille / 1000).map_or(0.0, |&nanos| f64::from(nanos) / 1e3)
        };
        Self {
            per_second: tally.decisions as f64 / tally.took.as_secs_f64(),
            p50_us: latency(500),
            p99_us: latency(990),
            max_us: latency(1000),
            denied: tally.denied as f64 / tally.decisions.max(1) as f64,
            ..Self::default()
        }
    }

    pub(crate) fn with_work(mut self, before: Work, after: Work, decisions: u64) -> Self {
        let decisions = decisions.max(1) as f64;
        self.server_us = Some((after.micros - before.micros) as f64 / decisions);
        self.commands = Some((after.sent - before.sent) as f64 / decisions);
        self
    }

    /// Returns the median of each figure.
    #[must_use]
    pub fn median_of(samples: &[Self]) -> Self {
        let required = |figure: fn(&Self) -> f64| median(samples.iter().map(figure)).unwrap_or_default();
        let optional = |figure: fn(&Self) -> Option<f64>| median(samples.iter().filter_map(figure));
        Self {
            per_second: required(|sample| sample.per_second),
            p50_us: required(|sample| sample.p50_us),
            p99_us: required(|sample| sample.p99_us),
            max_us: required(|sample| sample.max_us),
            denied: required(|sample| sample.denied),
            server_us: optional(|sample| sample.server_us),
            commands: optional(|sample| sample.commands),
            bytes: optional(|sample| sample.bytes),
            instructions: optional(|sample| sample.instructions),
        }
    }
}

/// All rounds of one contestant in one case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The name of the contestant.
    pub contestant: Cow<'static, str>,
    /// The role in the comparison.
    pub kind: Kind,
    /// One sample a round.
    pub rounds: Vec<Sample>,
    /// The medians of the rounds.
    pub median: Sample,
    /// The most calls on one key in one window, in any round, if a history was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_in_a_window: Option<usize>,
    /// True if that was within the limit.
    pub kept: bool,
    /// The number of calls that failed.
    pub failures: u64,
    /// The reason why it is not in the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// A note below the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Outcome {
    pub(crate) fn new(entry: &Entry) -> Self {
        Self::named(entry.name, entry.kind)
    }

    pub(crate) fn named(contestant: &'static str, kind: Kind) -> Self {
        Self {
            contestant: contestant.into(),
            kind,
            rounds: Vec::new(),
            median: Sample::default(),
            most_in_a_window: None,
            kept: true,
            failures: 0,
            failure: None,
            note: None,
        }
    }

    pub(crate) fn add(&mut self, sample: Sample) {
        self.rounds.push(sample);
        self.median = Sample::median_of(&self.rounds);
    }

    /// Records the admissions and the failures of a tally.
    pub(crate) fn judge(&mut self, tally: &Tally, rate: Rate) {
        if self.kind != Kind::Floor && !tally.admissions.is_empty() {
            let most = kept::most_in_a_window(&tally.admissions, rate);
            self.most_in_a_window = self.most_in_a_window.max(Some(most));
            self.kept &= most <= rate.max as usize;
        }
        self.failures += tally.failures;
        if let Some(failure) = &tally.first_failure {
            self.note = Some(format!("{} calls failed, the first: {failure}", self.failures));
        }
        if tally.failures * 100 > tally.decisions {
            self.failure = tally.first_failure.clone();
        }
    }
}

/// Rounds to thousandths. More digits are noise, and make the committed file larger.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn rounded<S: Serializer>(figure: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((figure * 1e3).round() / 1e3)
}

fn some_rounded<S: Serializer>(figure: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match figure {
        Some(figure) => rounded(figure, serializer),
        None => serializer.serialize_none(),
    }
}

/// Reads a figure that JSON has as null: a rate without a duration.
fn or_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

/// Returns the median. For an even number of values it is the mean of the two in the middle.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[middle - 1], upper) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }

    #[test]
    fn percentiles_are_latencies_of_calls() {
        let mut tally = Tally { latencies: (1..=1000).rev().map(|us| us * 1000).collect(), ..Tally::default() };
        let sample = Sample::from_tally(&mut tally);
        assert_eq!((sample.p50_us, sample.p99_us, sample.max_us), (500.0, 990.0, 1000.0));
    }
}
