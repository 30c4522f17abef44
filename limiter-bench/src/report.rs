//! What a comparison showed.

use serde::Serialize;

use crate::bars::Bar;
use crate::contestant::Kind;
use crate::sample::{Outcome, Sample, median};

pub mod charts;
pub mod markdown;
pub mod table;
pub mod wrap;

/// All of it, as the JSON file has it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How it was measured, in a sentence.
    pub measured: String,
    /// Case by case.
    pub cases: Vec<CaseReport>,
    /// The promises, and whether they are kept.
    pub bars: Vec<Bar>,
    /// What went wrong, a line each.
    pub problems: Vec<String>,
}

/// One table.
#[derive(Debug, Serialize)]
pub struct CaseReport {
    /// For `--cases`.
    pub name: &'static str,
    /// As a heading.
    pub title: &'static str,
    /// Everybody who took part.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// One contestant in one case, unless it failed.
    #[must_use]
    pub fn outcome(&self, case: &str, contestant: &str) -> Option<&Outcome> {
        self.case(case)?.outcomes.iter().find(|outcome| outcome.contestant == contestant && outcome.is_usable())
    }

    /// `rate-limited` in one case, unless it failed.
    #[must_use]
    pub fn ours(&self, case: &str) -> Option<&Outcome> {
        self.case(case)?.outcomes.iter().find(|outcome| outcome.kind == Kind::Ours && outcome.is_usable())
    }

    /// One case.
    #[must_use]
    pub fn case(&self, name: &str) -> Option<&CaseReport> {
        self.cases.iter().find(|case| case.name == name)
    }

    /// Whether a contestant kept its limit, in every case that was measured.
    #[must_use]
    pub fn is_exact(&self, contestant: &str) -> bool {
        let outcomes = self.cases.iter().flat_map(|case| &case.outcomes);
        outcomes.filter(|outcome| outcome.contestant == contestant).all(|outcome| outcome.kept)
    }

    /// The fastest peer of a case that kept its limit everywhere.
    #[must_use]
    pub fn best_exact_peer(&self, case: &str) -> Option<&Outcome> {
        let peers = self.case(case)?.outcomes.iter().filter(|outcome| outcome.kind == Kind::Peer);
        let exact = peers.filter(|peer| peer.is_usable() && self.is_exact(peer.contestant));
        exact.max_by(|a, b| a.median.per_second.total_cmp(&b.median.per_second))
    }
}

impl Outcome {
    pub(crate) fn is_usable(&self) -> bool {
        self.failure.is_none() && !self.rounds.is_empty()
    }

    /// One figure as a multiple of another contestant's: the median of the rounds' ratios, since what disturbs a round
    /// disturbs both.
    pub(crate) fn ratio_to(&self, other: &Self, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        let rounds = self.rounds.iter().zip(&other.rounds);
        median(rounds.map(|(own, others)| figure(own) / figure(others)).filter(|ratio| ratio.is_finite()))
    }
}
