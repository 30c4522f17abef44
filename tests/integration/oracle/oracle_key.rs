//! A key with its oracle and its random calls.

use std::time::Duration;

use limiter_chaos::schedule::{AnyOracle, Operation, Schedule, Step};
use limiter_testkit::Random;
use rate_limited::{Algorithm, Key, Limit};

/// One key and window, with the oracle that gives the expected decisions.
pub(super) struct OracleKey {
    pub(super) key: Key,
    pub(super) oracle: AnyOracle,
    /// All operations on the key so far.
    pub(super) schedule: Schedule,
    algorithm: Algorithm,
    window_ms: u64,
}

impl OracleKey {
    pub(super) fn new(algorithm: Algorithm, index: usize, random: &mut Random) -> Self {
        let window_ms = match algorithm {
            // Never more distinct instants in a window than a log distinguishes.
            Algorithm::SlidingWindow => 2_000,
            _ => random.between(200, 400),
        };
        Self {
            key: Key::new("key:").part(index),
            oracle: AnyOracle::new(algorithm),
            schedule: Schedule::default(),
            algorithm,
            window_ms,
        }
    }

    /// Records a pause and the call that follows it.
    pub(super) fn record(&mut self, random_pause: Duration, random_step: &Step) {
        let Step { limit, cost } = *random_step;
        self.schedule.operations.extend([Operation::Wait(random_pause), Operation::Check { limit, cost }]);
    }

    /// Returns a random call.
    pub(super) fn random_step(&self, random: &mut Random) -> Step {
        let mut between = |low, high| u32::try_from(random.between(low, high)).expect("small");
        let limit = Limit::new(between(1, 12), Duration::from_millis(self.window_ms)).expect("a limit");
        let limit = limit.with_algorithm(self.algorithm);
        let limit = match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => limit.with_burst(between(1, 12)).expect("a bucket"),
            _ => limit,
        };
        Step { limit, cost: between(0, 5) }
    }
}

/// Returns the pause between two rounds: whole milliseconds for windows, because their oracles count in milliseconds.
pub(super) fn random_pause(algorithm: Algorithm, random: &mut Random) -> Duration {
    match algorithm {
        Algorithm::SlidingWindow => Duration::from_millis(match random.below(30) {
            0 => random.below(4_000),
            _ => random.between(16, 90),
        }),
        Algorithm::FixedWindow | Algorithm::SlidingCounter => Duration::from_millis(match random.below(20) {
            0 => random.below(900),
            _ => random.below(60),
        }),
        _ => Duration::from_micros(match random.below(20) {
            0 => random.below(900_000),
            _ => random.below(60_000),
        }),
    }
}
