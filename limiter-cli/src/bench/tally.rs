//! The counts of a run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rate_limited::{Decision, Error};

use super::latencies::Latencies;

/// Parts of the counts, so that tasks on several threads seldom wait for each other.
const SHARDS: usize = 16;

/// The decisions and failures of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Failures by their kind.
    pub(super) errors: BTreeMap<&'static str, Failed>,
    /// Latencies of decisions, without those of failures.
    pub(super) latencies: Latencies,
}

/// Failures of one kind.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) count: u64,
    pub(super) first: Error,
}

impl Tally {
    /// Adds a result.
    pub(super) fn add(&mut self, result: &Result<Decision, Error>, latency: Duration) {
        match result {
            Ok(decision) => {
                let count = if decision.is_allowed() { &mut self.allowed } else { &mut self.denied };
                *count += 1;
                self.latencies.record(latency);
            }
            Err(error) => self.add_failures(error.kind().as_str(), error, 1),
        }
    }

    pub(super) fn decisions(&self) -> u64 {
        self.allowed + self.denied
    }

    fn merge(&mut self, other: &Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        for (kind, Failed { count, first }) in &other.errors {
            self.add_failures(kind, first, *count);
        }
        self.latencies.merge(&other.latencies);
    }

    fn add_failures(&mut self, kind: &'static str, error: &Error, count: u64) {
        self.errors.entry(kind).or_insert_with(|| Failed { count: 0, first: error.clone() }).count += count;
    }
}

/// Counts that all tasks of a run share.
#[derive(Debug)]
pub(super) struct Tallies(Vec<Mutex<Tally>>);

impl Tallies {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    /// Adds a result of the task of this number.
    pub(super) fn add(&self, task: usize, result: &Result<Decision, Error>, latency: Duration) {
        let shard = &self.0[task % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner).add(result, latency);
    }

    /// Returns the decisions so far.
    pub(super) fn decisions(&self) -> u64 {
        self.0.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).decisions()).sum()
    }

    /// Returns the sum of all counts.
    pub(super) fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.0.iter().for_each(|shard| total.merge(&shard.lock().unwrap_or_else(PoisonError::into_inner)));
        total
    }
}

#[cfg(test)]
mod tests {
    use rate_limited::{Key, Limit, Limiter};

    use super::*;

    #[test]
    fn results_of_all_tasks_are_counted_by_their_kind() {
        let limit: Limit = "2/h".parse().expect("a limit");
        let (limiter, key) = (Limiter::memory(), Key::new("counted"));
        let tallies = Tallies::new();
        for task in 0..20 {
            tallies.add(task, &limiter.check_blocking(&key, &limit), Duration::from_millis(3));
        }
        let error = "nonsense".parse::<Limit>().expect_err("no limit");
        tallies.add(20, &Err(error), Duration::from_secs(9));
        let total = tallies.total();
        assert_eq!((total.allowed, total.denied, total.decisions(), tallies.decisions()), (2, 18, 20, 20));
        let errors: Vec<_> = total.errors.iter().map(|(kind, failed)| (*kind, failed.count)).collect();
        assert_eq!(errors, [("invalid_limit", 1)]);
        assert!(total.latencies.max() < Duration::from_secs(1), "failures have no latency");
    }
}
