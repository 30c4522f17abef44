//! What one contestant showed in one case: round by round, and in the middle.

use serde::{Serialize, Serializer};

use crate::contestant::{Entry, Failure, Kind, Rate};
use crate::kept;
use crate::server::Work;
use crate::tally::Tally;

/// One round, or the median of several.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Sample {
    /// Decisions a second, of all tasks or threads together.
    #[serde(serialize_with = "rounded")]
    pub per_second: f64,
    /// Half of the calls were answered within so many microseconds.
    #[serde(serialize_with = "rounded")]
    pub p50_us: f64,
    /// 99 of 100 were.
    #[serde(serialize_with = "rounded")]
    pub p99_us: f64,
    /// All were.
    #[serde(serialize_with = "rounded")]
    pub max_us: f64,
    /// Share of denied calls, 0 to 1.
    #[serde(serialize_with = "rounded")]
    pub denied: f64,
    /// Redis's own time a decision, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_rounded")]
    pub server_us: Option<f64>,
    /// Commands sent to Redis a decision, not counting those inside scripts.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_rounded")]
    pub commands: Option<f64>,
    /// Bytes a key takes in Redis, or a waiting call in this process.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_rounded")]
    pub bytes: Option<f64>,
    /// Machine instructions a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
}

impl Sample {
    pub(crate) fn of(tally: &mut Tally) -> Self {
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

    /// Each figure's own median.
    #[must_use]
    pub fn median_of(samples: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(samples.iter().map(figure)).unwrap_or_default();
        let of_some = |figure: fn(&Self) -> Option<f64>| median(samples.iter().filter_map(figure));
        Self {
            per_second: of(|sample| sample.per_second),
            p50_us: of(|sample| sample.p50_us),
            p99_us: of(|sample| sample.p99_us),
            max_us: of(|sample| sample.max_us),
            denied: of(|sample| sample.denied),
            server_us: of_some(|sample| sample.server_us),
            commands: of_some(|sample| sample.commands),
            bytes: of_some(|sample| sample.bytes),
            instructions: of_some(|sample| sample.instructions),
        }
    }
}

/// All rounds of one contestant in one case.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Who.
    pub contestant: &'static str,
    /// What it is to the comparison.
    pub kind: Kind,
    /// Round by round.
    pub rounds: Vec<Sample>,
    /// The middle of them.
    pub median: Sample,
    /// The most calls on one key in one window, in any round, where there was a history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_in_a_window: Option<usize>,
    /// Whether that was within the limit.
    pub kept: bool,
    /// Calls that failed, and what the first of them said.
    pub failures: u64,
    /// Why it is not in the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// What else is to be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Outcome {
    pub(crate) fn new(entry: &Entry) -> Self {
        Self::of(entry.name, entry.kind)
    }

    pub(crate) fn of(contestant: &'static str, kind: Kind) -> Self {
        Self {
            contestant,
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

    /// Looks at what was admitted, and at what failed.
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

/// To thousandths: more are noise, and a burden in the repository.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn rounded<S: Serializer>(figure: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((figure * 1e3).round() / 1e3)
}

fn some_rounded<S: Serializer>(figure: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match figure {
        Some(figure) => rounded(figure, serializer),
        None => serializer.serialize_none(),
    }
}

/// The middle, or of an even number the mean of the two in the middle.
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
    fn median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }

    #[test]
    fn percentiles_are_calls_that_were_made() {
        let mut tally = Tally { latencies: (1..=1000).rev().map(|us| us * 1000).collect(), ..Tally::default() };
        let sample = Sample::of(&mut tally);
        assert_eq!((sample.p50_us, sample.p99_us, sample.max_us), (500.0, 990.0, 1000.0));
    }
}
