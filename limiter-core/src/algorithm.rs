//! The arithmetic of the limits: pure, in whole numbers, without a clock or a store.
//!
//! The memory store runs it; the scripts say the same in Lua and are tested against it. The window algorithms count in
//! milliseconds, where stamps round up and cut-offs round down; the buckets count in microseconds and fractions of a
//! permit, so that no rate is too high or too odd for them.

use crate::{Algorithm, Limit};
use bucket::Bucket;
use fixed_window::Counter;
use sliding_counter::Counters;
use sliding_window::Log;

mod bucket;
mod fixed_window;
mod leaky_bucket;
mod sliding_counter;
mod sliding_window;
mod token_bucket;

/// One request to a count: may `cost` permits be taken now?
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlgorithmInput {
    /// Milliseconds of the clock that have begun.
    pub(crate) floor: u64,
    /// The next whole millisecond: equal to `floor`, or one more.
    pub(crate) ceil: u64,
    /// The same instant in microseconds, which are the clock's resolution for the buckets.
    pub(crate) micros: u64,
    pub(crate) span: CounterKind,
    pub(crate) max: u32,
    /// What a bucket holds.
    pub(crate) burst: u32,
    pub(crate) cost: u32,
    /// Permits that the same decision takes of the same count before these.
    pub(crate) pending: u32,
    /// Microseconds that the call may wait for its turn, in an algorithm that gives turns.
    pub(crate) max_wait: u64,
}

/// What is counted apart under one key: another algorithm or window has a history of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CounterKind {
    pub(crate) algorithm: Algorithm,
    /// Milliseconds.
    pub(crate) window: u64,
}

impl From<Limit> for CounterKind {
    fn from(limit: Limit) -> Self {
        Self { algorithm: limit.algorithm(), window: limit.window_millis() }
    }
}

/// The answer, in instants of the clock that asked: microseconds, or in the window algorithms' own modules
/// milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) allowed: bool,
    /// Permits left after the decision.
    pub(crate) remaining: u32,
    /// When `cost` would fit if nobody else calls; `None` if it never will.
    pub(crate) retry_at: Option<u64>,
    /// When nothing would count any more if nobody calls.
    pub(crate) reset_at: u64,
    /// Microseconds until the turn that an allowed call was given.
    pub(crate) delay: u64,
}

impl Outcome {
    #[inline(always)]
    fn of_millis(self) -> Self {
        Self { retry_at: self.retry_at.map(|at| at * 1000), reset_at: self.reset_at * 1000, ..self }
    }
}

/// What has been taken, by one of the algorithms.
#[derive(Clone, Debug)]
pub(crate) enum State {
    SlidingWindow(Log),
    FixedWindow(Counter),
    SlidingCounter(Counters),
    TokenBucket(Bucket),
    LeakyBucket(Bucket),
}

impl State {
    /// Nothing taken.
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::SlidingWindow => Self::SlidingWindow(Log::default()),
            Algorithm::FixedWindow => Self::FixedWindow(Counter::default()),
            Algorithm::SlidingCounter => Self::SlidingCounter(Counters::default()),
            Algorithm::TokenBucket => Self::TokenBucket(Bucket::default()),
            Algorithm::LeakyBucket => Self::LeakyBucket(Bucket::default()),
        }
    }

    /// Forgets all that was taken.
    pub(crate) fn clear(&mut self) {
        match self {
            Self::SlidingWindow(log) => *log = Log::default(),
            Self::FixedWindow(counter) => *counter = Counter::default(),
            Self::SlidingCounter(counters) => *counters = Counters::default(),
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => *bucket = Bucket::default(),
        }
    }

    /// Decides, and takes the permits if they fit.
    pub(crate) fn decide(&mut self, ask: &AlgorithmInput) -> Outcome {
        if let Self::SlidingWindow(log) = self {
            return log.decide(ask).of_millis();
        }
        let outcome = self.peek(ask);
        if !outcome.allowed || ask.cost == 0 {
            return outcome;
        }
        self.record(ask);
        let left = self.peek(&AlgorithmInput { cost: 0, pending: 0, ..*ask });
        Outcome { remaining: left.remaining, reset_at: left.reset_at, ..outcome }
    }

    /// The same for what most calls to a busy key come to, in a few steps; nothing if it is not that.
    #[inline(always)]
    pub(crate) fn join(&mut self, ask: &AlgorithmInput) -> Option<Outcome> {
        match self {
            Self::SlidingWindow(log) => log.join(ask).map(Outcome::of_millis),
            _ => None,
        }
    }

    /// What [`decide`](State::decide) would say, taking nothing: `remaining` is what is left before the call.
    pub(crate) fn peek(&self, ask: &AlgorithmInput) -> Outcome {
        match self {
            Self::SlidingWindow(log) => log.peek(ask).of_millis(),
            Self::FixedWindow(counter) => counter.peek(ask).of_millis(),
            Self::SlidingCounter(counters) => counters.peek(ask).of_millis(),
            Self::TokenBucket(bucket) => token_bucket::peek(bucket, ask),
            Self::LeakyBucket(bucket) => leaky_bucket::peek(bucket, ask),
        }
    }

    /// Takes the permits whether they fit or not: somebody else has admitted them. A count saturates at `u32::MAX`.
    pub(crate) fn record(&mut self, ask: &AlgorithmInput) {
        if ask.cost == 0 {
            return;
        }
        match self {
            Self::SlidingWindow(log) => log.record(ask),
            Self::FixedWindow(counter) => counter.record(ask),
            Self::SlidingCounter(counters) => counters.record(ask),
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => bucket.take(ask),
        }
    }

    /// Makes what was taken at `stamp` count from now.
    pub(crate) fn renew(&mut self, ask: &AlgorithmInput, stamp: u64) {
        if let Self::LeakyBucket(bucket) = self {
            // A turn that others follow could not be given back.
            bucket.renew(ask, stamp);
        } else {
            // In this order a count that is full to the end of `u32` loses nothing.
            self.refund(ask, stamp);
            self.record(ask);
        }
    }

    /// Gives back permits that were taken at `stamp`, in microseconds: never more than what would be there if they had
    /// not been taken.
    pub(crate) fn refund(&mut self, ask: &AlgorithmInput, stamp: u64) {
        match self {
            Self::SlidingWindow(log) => log.refund(ask, stamp.div_ceil(1000)),
            Self::FixedWindow(counter) => counter.refund(ask, stamp / 1000),
            Self::SlidingCounter(counters) => counters.refund(ask, stamp / 1000),
            Self::TokenBucket(bucket) => token_bucket::refund(bucket, ask, stamp),
            Self::LeakyBucket(bucket) => leaky_bucket::refund(bucket, ask, stamp),
        }
    }

    /// The millisecond from which on nothing counts.
    pub(crate) fn expires_at(&self, window: u64) -> u64 {
        match self {
            Self::SlidingWindow(log) => log.expires_at(window),
            Self::FixedWindow(counter) => counter.expires_at(window),
            Self::SlidingCounter(counters) => counters.expires_at(window),
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => bucket.expires_at(),
        }
    }
}

#[cfg(test)]
mod tests;
