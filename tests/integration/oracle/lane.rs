//! A key with its oracle, and what it is asked.

use std::time::Duration;

use limiter_testkit::Random;
use limiter_testkit::schedule::{AnyOracle, Operation, Schedule, Step};
use rate_limited::{Algorithm, Key, Limit};

/// One key and window, and what it must answer.
pub(super) struct Lane {
    pub(super) key: Key,
    pub(super) oracle: AnyOracle,
    /// All that has happened on it.
    pub(super) schedule: Schedule,
    algorithm: Algorithm,
    window_ms: u64,
}

impl Lane {
    pub(super) fn new(algorithm: Algorithm, index: usize, random: &mut Random) -> Self {
        let window_ms = match algorithm {
            // Never more distinct instants in a window than a log keeps apart.
            Algorithm::SlidingWindow => 2_000,
            _ => random.between(200, 400),
        };
        Self {
            key: Key::new("lane:").part(index),
            oracle: AnyOracle::new(algorithm),
            schedule: Schedule::default(),
            algorithm,
            window_ms,
        }
    }

    /// Notes what is to happen, after so much time.
    pub(super) fn note(&mut self, idle: Duration, step: &Step) {
        let Step { limit, cost } = *step;
        self.schedule.operations.extend([Operation::Wait(idle), Operation::Check { limit, cost }]);
    }

    /// A random call.
    pub(super) fn step(&self, random: &mut Random) -> Step {
        let mut small = |low, high| u32::try_from(random.between(low, high)).expect("small");
        let limit = Limit::new(small(1, 12), Duration::from_millis(self.window_ms)).expect("a limit");
        let limit = limit.with_algorithm(self.algorithm);
        let limit = match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => limit.with_burst(small(1, 12)).expect("a bucket"),
            _ => limit,
        };
        Step { limit, cost: small(0, 5) }
    }
}

/// Time that passes between two rounds: whole milliseconds for the windows, which the oracles of those count in.
pub(super) fn idle(algorithm: Algorithm, random: &mut Random) -> Duration {
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
