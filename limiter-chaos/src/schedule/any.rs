//! One type for the oracles of all algorithms.

use limiter_testkit::{
    Charged, FixedWindowOracle, LeakyBucketOracle, Oracle, SlidingCounterOracle, TokenBucketOracle, Verdict,
};
use rate_limited::{Algorithm, Layout, Limit};

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The limit of the call.
    pub limit: Limit,
    /// The permits of the call.
    pub cost: u32,
}

/// The oracle of one algorithm, in microseconds.
#[derive(Clone, Debug)]
pub struct AnyOracle(OracleKind);

#[derive(Clone, Debug)]
enum OracleKind {
    SlidingWindow(Oracle),
    FixedWindow(FixedWindowOracle),
    SlidingCounter(SlidingCounterOracle),
    TokenBucket(TokenBucketOracle),
    LeakyBucket(LeakyBucketOracle),
}

impl AnyOracle {
    /// Creates an oracle without a history.
    ///
    /// # Panics
    ///
    /// There is no oracle for the algorithm.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::SlidingWindow => OracleKind::SlidingWindow(Oracle::new()),
            Algorithm::FixedWindow => OracleKind::FixedWindow(FixedWindowOracle::new()),
            Algorithm::SlidingCounter => OracleKind::SlidingCounter(SlidingCounterOracle::new()),
            Algorithm::TokenBucket => OracleKind::TokenBucket(TokenBucketOracle::new()),
            Algorithm::LeakyBucket => OracleKind::LeakyBucket(LeakyBucketOracle::new()),
            other => panic!("there is no oracle for {other:?}"),
        })
    }

    /// Decides a call, and records the permits of an allowed one.
    pub fn check(&mut self, now_us: u64, step: &Step) -> Verdict {
        let Step { limit, cost } = *step;
        let window_ms = window_ms(limit);
        let (max, rates) = (limit.max(), (limit.max(), limit.burst()));
        let (now_ms, window_us) = (now_us / 1000, window_ms * 1000);
        let in_us = |verdict: Verdict| Verdict {
            retry_after: verdict.retry_after.map(|wait| wait * 1000),
            reset_after: verdict.reset_after * 1000,
            ..verdict
        };
        match &mut self.0 {
            OracleKind::SlidingWindow(oracle) => in_us(oracle.check(now_ms, window_ms, max, cost)),
            OracleKind::FixedWindow(oracle) => in_us(oracle.check(now_ms, window_ms, max, cost)),
            OracleKind::SlidingCounter(oracle) => in_us(oracle.check(now_ms, window_ms, max, cost)),
            OracleKind::TokenBucket(oracle) => oracle.check(now_us, window_us, rates, cost),
            OracleKind::LeakyBucket(oracle) => oracle.check(now_us, window_us, rates, (cost, 0)).0,
        }
    }

    /// Takes permits whether they fit or not, up to the bounds of a counter.
    pub fn charge(&mut self, now_us: u64, step: &Step) -> Charged {
        let Step { limit, cost } = *step;
        let window_ms = window_ms(limit);
        let (max, rates) = (limit.max(), (limit.max(), limit.burst()));
        let (now_ms, window_us) = (now_us / 1000, window_ms * 1000);
        let in_us = |charged: Charged| Charged { reset_after: charged.reset_after * 1000, ..charged };
        match &mut self.0 {
            OracleKind::SlidingWindow(oracle) => {
                let most = if limit.layout() == Layout::Zset { MAX_SET_ENTRIES } else { u32::MAX };
                in_us(oracle.charge(now_ms, window_ms, max, (cost, most)))
            }
            OracleKind::FixedWindow(oracle) => in_us(oracle.charge(now_ms, window_ms, max, cost)),
            OracleKind::SlidingCounter(oracle) => in_us(oracle.charge(now_ms, window_ms, max, cost)),
            OracleKind::TokenBucket(oracle) => oracle.charge(now_us, window_us, rates, cost),
            OracleKind::LeakyBucket(oracle) => oracle.charge(now_us, window_us, rates, cost),
        }
    }

    /// Returns the expected result of a peek at a call of cost 1, with the counts before it.
    #[must_use]
    pub fn look(&self, now_us: u64, limit: Limit) -> Verdict {
        let verdict_for = |cost| self.clone().check(now_us, &Step { limit, cost });
        let one = verdict_for(1);
        Verdict { allowed: one.allowed, retry_after: one.retry_after, ..verdict_for(0) }
    }

    /// Refunds a call made at `stamp_us`, in the way of the limit's layout.
    pub fn refund(&mut self, now_us: u64, step: &Step, stamp_us: u64) {
        let Step { limit, cost } = *step;
        let window_ms = window_ms(limit);
        let (now_ms, stamp_ms, max) = (now_us / 1000, stamp_us / 1000, limit.max());
        match &mut self.0 {
            OracleKind::SlidingWindow(oracle) if limit.layout() == Layout::Zset => {
                oracle.refund_own(now_ms, window_ms, stamp_ms, cost);
            }
            OracleKind::SlidingWindow(oracle) => oracle.refund(now_ms, window_ms, stamp_ms, cost),
            OracleKind::FixedWindow(oracle) => oracle.refund(now_ms, window_ms, stamp_ms, cost),
            OracleKind::SlidingCounter(oracle) => oracle.refund(now_ms, window_ms, stamp_ms, cost),
            OracleKind::TokenBucket(oracle) => oracle.refund(now_us, window_ms * 1000, max, (stamp_us, cost)),
            OracleKind::LeakyBucket(oracle) => oracle.refund(now_us, window_ms * 1000, max, (stamp_us, cost)),
        }
    }
}

/// The most entries that one call adds to a sorted set.
const MAX_SET_ENTRIES: u32 = 10_000;

fn window_ms(limit: Limit) -> u64 {
    u64::try_from(limit.window().as_millis()).expect("a limit's window")
}
