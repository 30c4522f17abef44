//! A key with its oracle, and what it is asked.

use std::time::Duration;

use limiter_testkit::{
    FixedWindowOracle, LeakyBucketOracle, Oracle, Random, SlidingCounterOracle, TokenBucketOracle, Verdict,
};
use rate_limited::{Algorithm, Key, Limit};

/// One key and window, and what it must answer.
pub(super) struct Lane {
    pub(super) key: Key,
    pub(super) oracle: AnyOracle,
    algorithm: Algorithm,
    window_ms: u64,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) limit: Limit,
    pub(super) cost: u32,
}

/// The oracle of one algorithm, in microseconds.
#[derive(Clone)]
pub(super) enum AnyOracle {
    SlidingWindow(Oracle),
    FixedWindow(FixedWindowOracle),
    SlidingCounter(SlidingCounterOracle),
    TokenBucket(TokenBucketOracle),
    LeakyBucket(LeakyBucketOracle),
}

impl Lane {
    pub(super) fn new(algorithm: Algorithm, index: usize, random: &mut Random) -> Self {
        let window_ms = match algorithm {
            // Never more distinct instants in a window than a log keeps apart.
            Algorithm::SlidingWindow => 2_000,
            _ => random.between(200, 400),
        };
        Self { key: Key::new("lane:").part(index), oracle: AnyOracle::new(algorithm), algorithm, window_ms }
    }
}

impl Step {
    pub(super) fn random(lane: &Lane, random: &mut Random) -> Self {
        let mut small = |low, high| u32::try_from(random.between(low, high)).expect("small");
        let limit = Limit::new(small(1, 12), Duration::from_millis(lane.window_ms)).expect("a limit");
        let limit = limit.with_algorithm(lane.algorithm);
        let limit = match lane.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => limit.with_burst(small(1, 12)).expect("a bucket"),
            _ => limit,
        };
        Self { limit, cost: small(0, 5) }
    }
}

impl AnyOracle {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::SlidingWindow => Self::SlidingWindow(Oracle::new()),
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindowOracle::new()),
            Algorithm::SlidingCounter => Self::SlidingCounter(SlidingCounterOracle::new()),
            Algorithm::TokenBucket => Self::TokenBucket(TokenBucketOracle::new()),
            Algorithm::LeakyBucket => Self::LeakyBucket(LeakyBucketOracle::new()),
            other => panic!("there is no oracle for {other:?}"),
        }
    }

    pub(super) fn check(&mut self, now_us: u64, step: &Step) -> Verdict {
        let Step { limit, cost } = *step;
        let window_ms = u64::try_from(limit.window().as_millis()).expect("a limit's window");
        let (max, rates) = (limit.max(), (limit.max(), limit.burst()));
        let (now_ms, window_us) = (now_us / 1000, window_ms * 1000);
        let in_us = |verdict: Verdict| Verdict {
            retry_after: verdict.retry_after.map(|wait| wait * 1000),
            reset_after: verdict.reset_after * 1000,
            ..verdict
        };
        match self {
            Self::SlidingWindow(oracle) => in_us(oracle.check(now_ms, window_ms, max, cost)),
            Self::FixedWindow(oracle) => in_us(oracle.check(now_ms, window_ms, max, cost)),
            Self::SlidingCounter(oracle) => in_us(oracle.check(now_ms, window_ms, max, cost)),
            Self::TokenBucket(oracle) => oracle.check(now_us, window_us, rates, cost),
            Self::LeakyBucket(oracle) => oracle.check(now_us, window_us, rates, (cost, 0)).0,
        }
    }
}

/// Time that passes between two rounds: whole milliseconds for the windows, which the oracles of those count in. On
/// Redis keys expire by the real clock, which must not overtake this one by the half second they have to spare.
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
