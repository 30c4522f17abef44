//! A counter that several keys share.

use crate::algorithm::{AlgorithmInput, CounterKind, CounterState, Outcome};
use crate::store::memory::WriteOp;

/// The permits that several keys have taken, each with a limit of its own.
///
/// All permits count for the longest window of the keys, so none counts shorter than in a counter of the key's own.
/// Those of a bucket refill at the lowest `max` of the keys, or a fast key would refill the permits of a slow one.
#[derive(Clone, Debug)]
pub(super) struct SharedCounter {
    state: CounterState,
    /// The longest window of the takes that still count, in milliseconds.
    window: u64,
    /// The lowest `max` of the takes that a bucket still counts.
    min_rate: u32,
}

impl SharedCounter {
    /// Creates a shared counter from a state of which nothing is taken.
    pub(super) fn new(state: CounterState) -> Self {
        Self { state, window: 0, min_rate: u32::MAX }
    }

    /// Returns true if any permit still counts.
    pub(super) fn is_live(&self, input: &AlgorithmInput) -> bool {
        self.state.expires_at(self.window) > input.floor
    }

    pub(super) fn peek(&self, input: &AlgorithmInput) -> Outcome {
        match self.adapted(input) {
            Some(adapted) => adapted.state.peek(&adapted.shared_input(input)),
            None => self.state.peek(&self.shared_input(input)),
        }
    }

    /// Returns the number of permits that count.
    pub(super) fn used(&self, input: &AlgorithmInput) -> u32 {
        let input = AlgorithmInput { cost: 0, pending: 0, ..self.shared_input(input) };
        let outcome = match &self.state {
            // A token bucket reports its debt as permits even while calls are queued.
            CounterState::TokenBucket(bucket) | CounterState::LeakyBucket(bucket) => {
                CounterState::TokenBucket(bucket.clone()).peek(&AlgorithmInput { burst: u32::MAX, ..input })
            }
            state => state.peek(&AlgorithmInput { max: u32::MAX, ..input }),
        };
        u32::MAX - outcome.remaining
    }

    /// Applies an operation. Returns its outcome, and whether it has taken permits.
    pub(super) fn apply(&mut self, input: &AlgorithmInput, op: WriteOp) -> (Outcome, bool) {
        let Some(mut adapted) = self.adapted(input) else { return self.apply_adapted(input, op) };
        let (outcome, consumed) = adapted.apply_adapted(input, op);
        if consumed {
            *self = adapted;
        }
        (outcome, consumed)
    }

    fn apply_adapted(&mut self, input: &AlgorithmInput, op: WriteOp) -> (Outcome, bool) {
        let input = self.shared_input(input);
        // The rate at which the permits have refilled since is unknown, so a bucket gets none back.
        let op = if self.is_bucket() { op.without_refund() } else { op };
        let outcome = op.apply(&mut self.state, &input);
        let consumed = op.consumed(&input, &outcome);
        if consumed {
            self.min_rate = self.min_rate.min(input.max);
        }
        (outcome, consumed)
    }

    /// Returns permits taken at `stamp`, unless this is a bucket, whose takes cannot be distinguished.
    pub(super) fn refund(&mut self, input: &AlgorithmInput, stamp: u64) {
        if self.is_live(input) && !self.is_bucket() {
            self.state.refund(&self.shared_input(input), stamp);
        }
    }

    /// Returns the counter to use for an input with a longer window, or if no permit counts any more; otherwise `None`.
    /// Permits that count are as if taken now.
    fn adapted(&self, input: &AlgorithmInput) -> Option<Self> {
        let window = input.kind.window;
        let is_live = self.is_live(input);
        if is_live && window <= self.window {
            return None;
        }
        let mut adapted = Self { window, ..self.clone() };
        adapted.state.clear();
        if is_live {
            adapted.state.record(&AlgorithmInput { cost: self.used(input), ..adapted.shared_input(input) });
        } else {
            adapted.min_rate = u32::MAX;
        }
        Some(adapted)
    }

    /// Returns the input with the window of this counter, and for a bucket with its rate.
    fn shared_input(&self, input: &AlgorithmInput) -> AlgorithmInput {
        let max = if self.is_bucket() { input.max.min(self.min_rate) } else { input.max };
        AlgorithmInput { max, kind: CounterKind { window: self.window, ..input.kind }, ..*input }
    }

    fn is_bucket(&self) -> bool {
        matches!(self.state, CounterState::TokenBucket(_) | CounterState::LeakyBucket(_))
    }
}
