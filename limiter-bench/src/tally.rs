//! The results of one run of a contestant.

use std::time::Duration;

use crate::contestant::{Failure, Verdict};
use crate::kept::Admitted;

/// Counts, latencies and admissions.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of calls that were decided.
    pub decisions: u64,
    /// The number of decided calls that were denied.
    pub denied: u64,
    /// The number of calls that failed.
    pub failures: u64,
    /// The first failure.
    pub first_failure: Option<Failure>,
    /// Latencies of calls, or of a part of them, in nanoseconds.
    pub latencies: Vec<u32>,
    /// Admissions, if they are recorded.
    pub admissions: Vec<Admitted>,
    /// The time from the first call to the last decision.
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

    pub(crate) fn record_latency(&mut self, latency: Duration) {
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
