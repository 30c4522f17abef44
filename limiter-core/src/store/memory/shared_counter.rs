//! A counter that several keys share.

use crate::algorithm::{AlgorithmInput, CounterState, Outcome};
use crate::store::memory::WriteOp;

/// The permits that several keys have taken, each with a limit of its own.
///
/// The permits of a window algorithm count independently of `max`. Those of a bucket refill at `max` a window. A shared
/// bucket refills at the lowest rate of its keys, or a fast key would refill the permits of a slow one.
#[derive(Clone, Debug)]
pub(super) struct SharedCounter {
    pub(super) state: CounterState,
    /// The lowest `max` of the takes that a bucket still counts.
    min_rate: u32,
}

impl SharedCounter {
    /// Creates a shared counter from a state of which nothing is taken.
    pub(super) fn new(state: CounterState) -> Self {
        Self { state, min_rate: u32::MAX }
    }

    /// Returns true if any permit still counts.
    pub(super) fn is_live(&self, input: &AlgorithmInput) -> bool {
        self.state.expires_at(input.kind.window) > input.floor
    }

    pub(super) fn peek(&self, input: &AlgorithmInput) -> Outcome {
        self.state.peek(&self.with_min_rate(input))
    }

    /// Returns the number of permits that count.
    pub(super) fn used(&self, input: &AlgorithmInput) -> u32 {
        let no_cost = AlgorithmInput { cost: 0, pending: 0, ..*input };
        let outcome = match &self.state {
            // A token bucket reports its debt as permits even while calls are queued.
            CounterState::TokenBucket(bucket) | CounterState::LeakyBucket(bucket) => {
                CounterState::TokenBucket(bucket.clone())
                    .peek(&AlgorithmInput { burst: u32::MAX, ..self.with_min_rate(&no_cost) })
            }
            state => state.peek(&AlgorithmInput { max: u32::MAX, ..no_cost }),
        };
        u32::MAX - outcome.remaining
    }

    /// Applies an operation. Returns its outcome, and whether it has taken permits.
    pub(super) fn apply(&mut self, input: &AlgorithmInput, op: WriteOp) -> (Outcome, bool) {
        if !self.is_live(input) {
            self.state.clear();
            self.min_rate = u32::MAX;
        }
        let input = self.with_min_rate(input);
        // The rate at which the permits have refilled since is unknown, so a bucket gets none back.
        let op = if is_bucket(&self.state) { op.without_refund() } else { op };
        let outcome = op.apply(&mut self.state, &input);
        let consumed = op.consumed(&input, &outcome);
        if consumed && is_bucket(&self.state) {
            self.min_rate = input.max;
        }
        (outcome, consumed)
    }

    /// Returns permits taken at `stamp`, unless this is a bucket, whose takes cannot be distinguished.
    pub(super) fn refund(&mut self, input: &AlgorithmInput, stamp: u64) {
        if self.is_live(input) && !is_bucket(&self.state) {
            self.state.refund(input, stamp);
        }
    }

    fn with_min_rate(&self, input: &AlgorithmInput) -> AlgorithmInput {
        let max = if is_bucket(&self.state) && self.is_live(input) { input.max.min(self.min_rate) } else { input.max };
        AlgorithmInput { max, ..*input }
    }
}

fn is_bucket(state: &CounterState) -> bool {
    matches!(state, CounterState::TokenBucket(_) | CounterState::LeakyBucket(_))
}
