//! The oracles of all algorithms, as one type.

use limiter_testkit::{FixedWindowOracle, LeakyBucketOracle, Oracle, SlidingCounterOracle, TokenBucketOracle, Verdict};
use rate_limited::{Algorithm, Limit};

use super::lane::Step;

/// The oracle of one algorithm, in microseconds.
#[derive(Clone)]
pub(super) enum AnyOracle {
    SlidingWindow(Oracle),
    FixedWindow(FixedWindowOracle),
    SlidingCounter(SlidingCounterOracle),
    TokenBucket(TokenBucketOracle),
    LeakyBucket(LeakyBucketOracle),
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

    /// What a look says: whether a call of cost 1 would be allowed, and what there is before it.
    pub(super) fn look(&self, now_us: u64, limit: Limit) -> Verdict {
        let ask = |cost| self.clone().check(now_us, &Step { limit, cost });
        let one = ask(1);
        Verdict { allowed: one.allowed, retry_after: one.retry_after, ..ask(0) }
    }

    /// Gives back what a call took at an instant.
    pub(super) fn refund(&mut self, now_us: u64, step: &Step, stamp_us: u64) {
        let Step { limit, cost } = *step;
        let window_ms = u64::try_from(limit.window().as_millis()).expect("a limit's window");
        let (now_ms, stamp_ms, max) = (now_us / 1000, stamp_us / 1000, limit.max());
        match self {
            Self::SlidingWindow(oracle) => oracle.refund(now_ms, window_ms, stamp_ms, cost),
            Self::FixedWindow(oracle) => oracle.refund(now_ms, window_ms, stamp_ms, cost),
            Self::SlidingCounter(oracle) => oracle.refund(now_ms, window_ms, stamp_ms, cost),
            Self::TokenBucket(oracle) => oracle.refund(now_us, window_ms * 1000, max, (stamp_us, cost)),
            Self::LeakyBucket(oracle) => oracle.refund(now_us, window_ms * 1000, max, (stamp_us, cost)),
        }
    }
}
