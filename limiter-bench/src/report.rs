//! The results of a comparison.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::bars::Bar;
use crate::contestant::Kind;
use crate::sample::{Outcome, Sample, median};

pub mod charts;
pub mod details;
pub mod markdown;
mod matrix;
mod summary;
pub mod table;
pub mod wrap;

/// The results of a comparison, in the form of the JSON file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// One sentence about the machine, the amount of work and the versions.
    pub measured: String,
    /// The commit that was measured, and its date; empty if the run was outside of a repository.
    #[serde(default)]
    pub commit: String,
    /// The results of each case.
    pub cases: Vec<CaseReport>,
    /// The goals, and whether they are met.
    pub bars: Vec<Bar>,
    /// Failures, a line each.
    pub problems: Vec<String>,
}

/// The results of one case.
#[derive(Debug, Serialize, Deserialize)]
pub struct CaseReport {
    /// The name for `--cases`.
    pub name: Cow<'static, str>,
    /// The heading.
    pub title: Cow<'static, str>,
    /// One outcome a contestant.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Returns the outcome of one contestant in one case, unless it failed.
    #[must_use]
    pub fn outcome(&self, case: &str, contestant: &str) -> Option<&Outcome> {
        self.case(case)?.outcomes.iter().find(|outcome| outcome.contestant == contestant && outcome.is_usable())
    }

    /// Returns the outcome of `rate-limited` in one case, unless it failed.
    #[must_use]
    pub fn ours(&self, case: &str) -> Option<&Outcome> {
        self.case(case)?.outcomes.iter().find(|outcome| outcome.kind == Kind::Ours && outcome.is_usable())
    }

    /// Returns the results of one case.
    #[must_use]
    pub fn case(&self, name: &str) -> Option<&CaseReport> {
        self.cases.iter().find(|case| case.name == name)
    }

    /// Returns whether a contestant kept its limit in every case that was measured.
    #[must_use]
    pub fn is_exact(&self, contestant: &str) -> bool {
        let outcomes = self.cases.iter().flat_map(|case| &case.outcomes);
        outcomes.filter(|outcome| outcome.contestant == contestant).all(|outcome| outcome.kept)
    }

    /// Returns the fastest peer of a case among those that kept every limit.
    #[must_use]
    pub fn best_exact_peer(&self, case: &str) -> Option<&Outcome> {
        let peers = self.case(case)?.outcomes.iter().filter(|outcome| outcome.kind == Kind::Peer);
        let exact = peers.filter(|peer| peer.is_usable() && self.is_exact(&peer.contestant));
        exact.max_by(|a, b| a.median.per_second.total_cmp(&b.median.per_second))
    }
}

impl Outcome {
    pub(crate) fn is_usable(&self) -> bool {
        self.failure.is_none() && !self.rounds.is_empty()
    }

    /// Returns a figure as a multiple of another contestant's: the median of the rounds' ratios, because a disturbance
    /// affects both contestants of a round.
    pub(crate) fn ratio_to(&self, other: &Self, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        let rounds = self.rounds.iter().zip(&other.rounds);
        median(rounds.map(|(own, others)| figure(own) / figure(others)).filter(|ratio| ratio.is_finite()))
    }
}
