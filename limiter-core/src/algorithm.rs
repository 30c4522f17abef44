//! The arithmetic of the limits: pure, in whole numbers, without a clock or a store.
//!
//! The memory store runs it. The Redis scripts implement the same arithmetic in Lua and are tested against it. The
//! window algorithms count in milliseconds: stamps round up and cut-offs round down. The buckets count in microseconds
//! and fractions of a permit, so they represent every rate exactly.

use std::time::Duration;

use crate::{Algorithm, Limit};
use bucket::Bucket;
pub(crate) use calendar_period::CalendarTime;
use calendar_period::PeriodCounter;
use fixed_window::WindowCounter;
use sliding_counter::WindowPair;
use sliding_window::Log;

mod bucket;
mod calendar_period;
mod fixed_window;
mod leaky_bucket;
mod sliding_counter;
mod sliding_window;
mod token_bucket;

/// The input of one decision: the instant, the limit, and the permits that are requested of one counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlgorithmInput {
    /// The clock in milliseconds, rounded down.
    pub(crate) floor: u64,
    /// The clock in milliseconds, rounded up: equal to `floor`, or one more.
    pub(crate) ceil: u64,
    /// The clock in microseconds, which is the resolution of the buckets.
    pub(crate) micros: u64,
    pub(crate) kind: CounterKind,
    pub(crate) max: u32,
    /// The capacity of a bucket, in permits.
    pub(crate) burst: u32,
    pub(crate) cost: u32,
    /// Permits that earlier requests of the same decision take from the same counter. In a refund: the permits of the
    /// call that it still holds afterwards.
    pub(crate) pending: u32,
    /// The longest delay that the call accepts, in microseconds. Only the leaky bucket delays calls.
    pub(crate) max_wait: u64,
    /// Present for a limit of the calendar.
    pub(crate) calendar: Option<CalendarTime>,
}

/// The part of a limit that selects a counter: one key has a separate counter for each algorithm and window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CounterKind {
    pub(crate) algorithm: Algorithm,
    /// The length in milliseconds.
    pub(crate) window: u64,
}

impl From<Limit> for CounterKind {
    fn from(limit: Limit) -> Self {
        Self { algorithm: limit.algorithm(), window: limit.window_millis() }
    }
}

/// The result of a decision. Instants are microseconds of the caller's clock, or milliseconds inside the modules of the
/// window algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) allowed: bool,
    /// Permits left after the decision.
    pub(crate) remaining: u32,
    /// The instant at which `cost` fits if no other call takes permits; `None` if it never fits.
    pub(crate) retry_at: Option<u64>,
    /// The instant at which all permits are free again if no call takes any.
    pub(crate) reset_at: u64,
    /// The time in microseconds that an allowed call has to wait for its turn.
    pub(crate) delay: u64,
}

impl Outcome {
    #[inline(always)]
    fn millis_to_micros(self) -> Self {
        Self { retry_at: self.retry_at.map(|at| at * 1000), reset_at: self.reset_at * 1000, ..self }
    }
}

/// The permits of a counter that are left, or that count beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterLevel {
    pub(crate) remaining: u32,
    /// Permits beyond the limit: above `max` in a window, above what a bucket holds.
    pub(crate) overdrawn: u32,
    /// The instant at which all permits are free again if no call takes any, in microseconds.
    pub(crate) reset_at: u64,
}

/// A counter: the permits taken from it, in the form that its algorithm needs.
#[derive(Clone, Debug)]
pub(crate) enum CounterState {
    SlidingWindow(Log),
    FixedWindow(WindowCounter),
    SlidingCounter(WindowPair),
    TokenBucket(Bucket),
    LeakyBucket(Bucket),
    Calendar(PeriodCounter),
}

impl CounterState {
    /// Creates a counter of which nothing is taken.
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            // No plan brings calls at once here. They would be denied after `max`.
            Algorithm::SlidingWindow | Algorithm::Concurrent => Self::SlidingWindow(Log::default()),
            Algorithm::FixedWindow => Self::FixedWindow(WindowCounter::default()),
            Algorithm::SlidingCounter => Self::SlidingCounter(WindowPair::default()),
            Algorithm::TokenBucket => Self::TokenBucket(Bucket::default()),
            Algorithm::LeakyBucket => Self::LeakyBucket(Bucket::default()),
            Algorithm::Calendar => Self::Calendar(PeriodCounter::default()),
        }
    }

    /// Removes all permits taken.
    pub(crate) fn clear(&mut self) {
        match self {
            Self::SlidingWindow(log) => *log = Log::default(),
            Self::FixedWindow(counter) => *counter = WindowCounter::default(),
            Self::SlidingCounter(pair) => *pair = WindowPair::default(),
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => *bucket = Bucket::default(),
            Self::Calendar(counter) => *counter = PeriodCounter::default(),
        }
    }

    /// Decides, and takes the permits if they fit.
    pub(crate) fn decide(&mut self, input: &AlgorithmInput) -> Outcome {
        if let Self::SlidingWindow(log) = self {
            return log.decide(input).millis_to_micros();
        }
        let outcome = self.peek(input);
        if !outcome.allowed || input.cost == 0 {
            return outcome;
        }
        self.record(input);
        let after = self.peek(&AlgorithmInput { cost: 0, pending: 0, ..*input });
        Outcome { remaining: after.remaining, reset_at: after.reset_at, ..outcome }
    }

    /// Makes the decision of [`decide`](CounterState::decide) in the common case; `None` in every other case.
    #[inline(always)]
    pub(crate) fn decide_fast_path(&mut self, input: &AlgorithmInput) -> Option<Outcome> {
        match self {
            Self::SlidingWindow(log) => log.decide_fast_path(input).map(Outcome::millis_to_micros),
            _ => None,
        }
    }

    /// Returns the outcome that [`decide`](CounterState::decide) would have, and takes nothing. Its `remaining` is the
    /// number of permits before the call.
    pub(crate) fn peek(&self, input: &AlgorithmInput) -> Outcome {
        match self {
            Self::SlidingWindow(log) => log.peek(input).millis_to_micros(),
            Self::FixedWindow(counter) => counter.peek(input).millis_to_micros(),
            Self::SlidingCounter(pair) => pair.peek(input).millis_to_micros(),
            Self::TokenBucket(bucket) => token_bucket::peek(bucket, input),
            Self::LeakyBucket(bucket) => leaky_bucket::peek(bucket, input),
            Self::Calendar(counter) => counter.peek(input),
        }
    }

    /// Takes permits that another store has admitted, even beyond the limit. The counter saturates at `u32::MAX`.
    pub(crate) fn record(&mut self, input: &AlgorithmInput) {
        if input.cost == 0 {
            return;
        }
        match self {
            Self::SlidingWindow(log) => log.record(input),
            Self::FixedWindow(counter) => counter.record(input),
            Self::SlidingCounter(pair) => pair.record(input),
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => bucket.take(input),
            Self::Calendar(counter) => counter.record(input),
        }
    }

    /// The permits that are left, or that count beyond the limit.
    pub(crate) fn level(&self, input: &AlgorithmInput) -> CounterLevel {
        let Outcome { remaining, reset_at, .. } = self.peek(&AlgorithmInput { cost: 0, pending: 0, ..*input });
        let overdrawn = self.used(input).saturating_sub(capacity(input));
        CounterLevel { remaining, overdrawn: u32::try_from(overdrawn).unwrap_or(u32::MAX), reset_at }
    }

    /// The permits that can be [recorded](Self::record) without a loss, also beyond the limit: `u32::MAX` in all, and in a
    /// bucket as many beyond the limit as it holds.
    pub(crate) fn room(&self, input: &AlgorithmInput) -> u32 {
        let most = match input.kind.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => capacity(input) + u64::from(input.burst),
            _ => u32::MAX.into(),
        };
        u32::try_from(most.saturating_sub(self.used(input))).unwrap_or(u32::MAX)
    }

    /// The permits that count now. A part of one counts as a whole.
    pub(crate) fn used(&self, input: &AlgorithmInput) -> u64 {
        match self {
            Self::SlidingWindow(log) => log.used(input).into(),
            Self::FixedWindow(counter) => counter.used(input).into(),
            Self::SlidingCounter(pair) => pair.used(input),
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => bucket.used(input),
            Self::Calendar(counter) => counter.used(input).into(),
        }
    }

    /// Changes the stamp of permits taken at `stamp` to now.
    pub(crate) fn restamp(&mut self, input: &AlgorithmInput, stamp: u64) {
        if let Self::LeakyBucket(bucket) = self {
            // A refund does nothing once a later turn was granted.
            bucket.restamp(input, stamp);
        } else {
            // The refund comes first: recorded first, the permits would be lost by saturation in a counter near
            // `u32::MAX`.
            self.refund(input, stamp);
            self.record(input);
        }
    }

    /// Returns `cost` permits of a call that took them at `stamp`, in microseconds. The call keeps `pending` permits.
    /// Afterwards no more permits are free than if it had taken only those.
    pub(crate) fn refund(&mut self, input: &AlgorithmInput, stamp: u64) {
        match self {
            Self::SlidingWindow(log) => log.refund(input, stamp.div_ceil(1000)),
            Self::FixedWindow(counter) => counter.refund(input, stamp / 1000),
            Self::SlidingCounter(pair) => pair.refund(input, stamp / 1000),
            Self::TokenBucket(bucket) => token_bucket::refund(bucket, input, stamp),
            Self::LeakyBucket(bucket) => leaky_bucket::refund(bucket, input, stamp),
            Self::Calendar(counter) => counter.refund(input, stamp / 1000),
        }
    }

    /// Ends the present period of the calendar after this time: another store has fixed its end.
    pub(crate) fn end_period_after(&mut self, input: &AlgorithmInput, time: Duration) {
        if let Self::Calendar(counter) = self {
            counter.end_after(input, time);
        }
    }

    /// The start of the present period of the calendar, in milliseconds of the wall clock. `None` for a counter without one.
    pub(crate) fn period_start(&self, input: &AlgorithmInput) -> Option<u64> {
        if let Self::Calendar(counter) = self { Some(counter.period_start(input)) } else { None }
    }

    /// Returns the first millisecond at which no permit counts any more.
    pub(crate) fn expires_at(&self, window: u64) -> u64 {
        match self {
            Self::SlidingWindow(log) => log.expires_at(window),
            Self::FixedWindow(counter) => counter.expires_at(window),
            Self::SlidingCounter(pair) => pair.expires_at(window),
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => bucket.expires_at(),
            Self::Calendar(counter) => counter.expires_at(),
        }
    }
}

/// The permits that count while a limit is used up, and not exceeded.
fn capacity(input: &AlgorithmInput) -> u64 {
    match input.kind.algorithm {
        Algorithm::TokenBucket => input.burst.into(),
        // One permit passes while `burst` are queued.
        Algorithm::LeakyBucket => u64::from(input.burst) + 1,
        _ => input.max.into(),
    }
}

#[cfg(test)]
mod tests;
