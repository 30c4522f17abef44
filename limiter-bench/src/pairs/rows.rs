//! The rows of a comparison: the figures of `rate-limited` in each case of `compare`, and cases that need newer parts
//! of the API.
//!
//! A case that an older commit cannot build is behind a feature of this package. `scripts/pairs` leaves the feature out
//! of both builds then, and names the case.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cases::{self, Case, How};
use crate::contestant::Failure;
use crate::measure::{Pace, Stage};
use crate::progress::Progress;
use crate::sample::Outcome;
use crate::server::Server;

#[cfg(feature = "row-overloaded")]
mod overloaded;

/// The unit of rows that callgrind counts.
pub const INSTRUCTIONS: &str = "instructions";

/// One figure of a sample. Less is better.
#[derive(Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The name of its row.
    pub row: String,
    /// The unit of its value.
    pub unit: String,
    /// The value.
    pub value: f64,
}

/// The most time for filling keys with permits.
const MAX_FILL_TIME: Duration = Duration::from_secs(8);
/// The time for which a limiter runs for one figure.
const SAMPLE_TIME: Duration = Duration::from_millis(400);

/// Returns the names of the groups of rows that this build has.
#[must_use]
pub fn groups() -> Vec<&'static str> {
    let newer: &[&str] = &[
        #[cfg(feature = "row-overloaded")]
        overloaded::NAME,
    ];
    measured().map(|case| case.name).chain(newer.iter().copied()).collect()
}

fn measured() -> impl Iterator<Item = Case> {
    cases::ALL.into_iter().filter(|case| !matches!(case.how, How::Exactness))
}

/// Measures one group of rows once.
///
/// # Errors
///
/// There is no such group, or it cannot be measured.
pub async fn sample(group: &str) -> Result<Vec<Figure>, Failure> {
    #[cfg(feature = "row-overloaded")]
    if group == overloaded::NAME {
        return overloaded::sample(SAMPLE_TIME).map(|figure| vec![figure]);
    }
    let case = measured().find(|case| case.name == group).ok_or_else(|| format!("there is no row {group}"))?;
    let needs_server = case.needs_redis() || matches!(case.how, How::Waiting);
    let server = if needs_server { Some(Server::start()?) } else { None };
    let pace =
        Pace { rounds: 1, sample: SAMPLE_TIME, fill: MAX_FILL_TIME, time: None, few_bytes: true, ours_only: true };
    let progress = Progress::new(1, None);
    let stage = Stage { server: server.as_ref(), pace, progress: &progress };
    let outcomes = stage.measure(&case).await;
    let is_only = outcomes.len() == 1;
    outcomes.iter().map(|outcome| figure(&case, outcome, is_only)).collect()
}

fn figure(case: &Case, outcome: &Outcome, is_only: bool) -> Result<Figure, Failure> {
    let row = if is_only { case.name.to_owned() } else { format!("{}: {}", case.name, outcome.contestant) };
    if let Some(failure) = &outcome.failure {
        return Err(format!("{row}: {failure}"));
    }
    if !outcome.kept {
        return Err(format!("{row}: the limit was not kept"));
    }
    let sample = &outcome.median;
    let (unit, value) = match case.how {
        How::Bytes { .. } | How::Waiting => ("bytes", sample.bytes),
        How::Instructions => (INSTRUCTIONS, sample.instructions),
        _ => ("ns", (sample.per_second > 0.0).then(|| 1e9 / sample.per_second)),
    };
    let reason = || outcome.note.clone().unwrap_or_else(|| "there is no figure".to_owned());
    let value = value.ok_or_else(|| format!("{row}: {}", reason()))?;
    Ok(Figure { row, unit: unit.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Kind;

    #[test]
    fn a_figure_that_is_missing_is_a_failure_with_its_reason() {
        let case = cases::ALL.into_iter().find(|case| case.name == "instructions").expect("the case");
        let mut outcome = Outcome::named("callgrind", Kind::Ours);
        outcome.note = Some("left out, there is no valgrind here".to_owned());
        let failure = figure(&case, &outcome, true).expect_err("no figure");
        assert_eq!(failure, "instructions: left out, there is no valgrind here");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_row_in_process_has_one_figure() {
        let figures = sample("local-denied").await.expect("figures");
        assert_eq!(figures.len(), 1);
        assert!(figures[0].row == "local-denied" && figures[0].unit == "ns" && figures[0].value > 0.0);
    }
}
