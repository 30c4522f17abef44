//! What one run of a contestant showed.

use std::time::Duration;

use crate::contestant::{Failure, Verdict};
use crate::kept::Admitted;

/// Counts, latencies and admissions.
#[derive(Debug, Default)]
pub struct Tally {
    /// Calls that were answered.
    pub decisions: u64,
    /// Those of them that were denied.
    pub denied: u64,
    /// Calls that failed.
    pub failures: u64,
    /// What the first of them said.
    pub first_failure: Option<Failure>,
    /// Of calls, or of a sample of them, in nanoseconds.
    pub latencies: Vec<u32>,
    /// What was allowed, where it can matter.
    pub admissions: Vec<Admitted>,
    /// From the first call to the last answer.
    pub took: Duration,
}

impl Tally {
    pub(crate) fn count(&mut self, verdict: Verdict) {
        self.decisions += 1;
        self.denied += u64::from(verdict == Verdict::Denied);
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failures += 1;
        self.first_failure.get_or_insert(failure);
    }

    pub(crate) fn time(&mut self, latency: Duration) {
        self.latencies.push(u32::try_from(latency.as_nanos()).unwrap_or(u32::MAX));
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.decisions += other.decisions;
        self.denied += other.denied;
        self.failures += other.failures;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.latencies.extend(other.latencies);
        self.admissions.extend(other.admissions);
        self.took = self.took.max(other.took);
    }
}
