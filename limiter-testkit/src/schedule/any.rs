//! The oracles of all algorithms, as one type.

use rate_limited::{Algorithm, Layout, Limit};

use crate::oracle::{FixedWindowOracle, LeakyBucketOracle, Oracle, SlidingCounterOracle, TokenBucketOracle, Verdict};

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The limit that the call gives.
    pub limit: Limit,
    /// Permits.
    pub cost: u32,
}

/// The oracle of one algorithm, in microseconds.
#[derive(Clone, Debug)]
pub struct AnyOracle(Kind);

#[derive(Clone, Debug)]
enum Kind {
    SlidingWindow(Oracle),
    FixedWindow(FixedWindowOracle),
    SlidingCounter(SlidingCounterOracle),
    TokenBucket(TokenBucketOracle),
    LeakyBucket(LeakyBucketOracle),
}

impl AnyOracle {
    /// An oracle with nothing taken.
    ///
    /// # Panics
    ///
    /// There is none for the algorithm.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::SlidingWindow => Kind::SlidingWindow(Oracle::new()),
            Algorithm::FixedWindow => Kind::FixedWindow(FixedWindowOracle::new()),
            Algorithm::SlidingCounter => Kind::SlidingCounter(SlidingCounterOracle::new()),
            Algorithm::TokenBucket => Kind::TokenBucket(TokenBucketOracle::new()),
            Algorithm::LeakyBucket => Kind::LeakyBucket(LeakyBucketOracle::new()),
            other => panic!("there is no oracle for {other:?}"),
        })
    }

    /// Decides, and records the permits of an allowed call.
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
            Kind::SlidingWindow(oracle) => in_us(oracle.check(now_ms, window_ms, max, cost)),
            Kind::FixedWindow(oracle) => in_us(oracle.check(now_ms, window_ms, max, cost)),
            Kind::SlidingCounter(oracle) => in_us(oracle.check(now_ms, window_ms, max, cost)),
            Kind::TokenBucket(oracle) => oracle.check(now_us, window_us, rates, cost),
            Kind::LeakyBucket(oracle) => oracle.check(now_us, window_us, rates, (cost, 0)).0,
        }
    }

    /// Returns the answer to a look: whether a call of cost 1 would be allowed, and what there is before it.
    #[must_use]
    pub fn look(&self, now_us: u64, limit: Limit) -> Verdict {
        let ask = |cost| self.clone().check(now_us, &Step { limit, cost });
        let one = ask(1);
        Verdict { allowed: one.allowed, retry_after: one.retry_after, ..ask(0) }
    }

    /// Gives back what a call took at an instant, as the limit's layout does it.
    pub fn refund(&mut self, now_us: u64, step: &Step, stamp_us: u64) {
        let Step { limit, cost } = *step;
        let window_ms = window_ms(limit);
        let (now_ms, stamp_ms, max) = (now_us / 1000, stamp_us / 1000, limit.max());
        match &mut self.0 {
            Kind::SlidingWindow(oracle) if limit.layout() == Layout::Zset => {
                oracle.refund_own(now_ms, window_ms, stamp_ms, cost);
            }
            Kind::SlidingWindow(oracle) => oracle.refund(now_ms, window_ms, stamp_ms, cost),
            Kind::FixedWindow(oracle) => oracle.refund(now_ms, window_ms, stamp_ms, cost),
            Kind::SlidingCounter(oracle) => oracle.refund(now_ms, window_ms, stamp_ms, cost),
            Kind::TokenBucket(oracle) => oracle.refund(now_us, window_ms * 1000, max, (stamp_us, cost)),
            Kind::LeakyBucket(oracle) => oracle.refund(now_us, window_ms * 1000, max, (stamp_us, cost)),
        }
    }
}

fn window_ms(limit: Limit) -> u64 {
    u64::try_from(limit.window().as_millis()).expect("a limit's window")
}
