//! A count that several keys share.

use crate::algorithm::{AlgorithmInput, Outcome, State};
use crate::store::memory::WriteOp;

/// What keys take that know nothing of each other, each by a limit of its own.
///
/// A window algorithm counts what was taken, whatever the `max` it was taken by. In a bucket it flows back at a rate:
/// here at that of the slowest of those who have taken, or a quick one would give a slow one its permits back.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) state: State,
    /// The lowest `max` by which something was taken from a bucket that still counts.
    slowest: u32,
}

impl Common {
    /// A count in which nothing is taken, as `state`.
    pub(super) fn new(state: State) -> Self {
        Self { state, slowest: u32::MAX }
    }

    /// Whether anything that was taken still counts.
    pub(super) fn counts(&self, ask: &AlgorithmInput) -> bool {
        self.state.expires_at(ask.span.window) > ask.floor
    }

    pub(super) fn look(&self, ask: &AlgorithmInput) -> Outcome {
        self.state.peek(&self.ask(ask))
    }

    /// Permits that count.
    pub(super) fn used(&self, ask: &AlgorithmInput) -> u32 {
        let everything = AlgorithmInput { cost: 0, pending: 0, ..*ask };
        let left = match &self.state {
            // Seen as a token bucket, what is missing can be told whoever is in line.
            State::TokenBucket(bucket) | State::LeakyBucket(bucket) => {
                State::TokenBucket(bucket.clone()).peek(&AlgorithmInput { burst: u32::MAX, ..self.ask(&everything) })
            }
            state => state.peek(&AlgorithmInput { max: u32::MAX, ..everything }),
        };
        u32::MAX - left.remaining
    }

    /// Does it, and gives whether that has taken anything.
    pub(super) fn take(&mut self, ask: &AlgorithmInput, op: WriteOp) -> (Outcome, bool) {
        if !self.counts(ask) {
            self.state.clear();
            self.slowest = u32::MAX;
        }
        let ask = self.ask(ask);
        // What has flowed back since at which rate is not known, so nothing is given back.
        let op = if is_bucket(&self.state) { op.without_refund() } else { op };
        let outcome = op.on(&mut self.state, &ask);
        let consumed = op.consumed(&ask, &outcome);
        if consumed && is_bucket(&self.state) {
            self.slowest = ask.max;
        }
        (outcome, consumed)
    }

    /// Gives back what was taken at `stamp`, if that can be told from what others have taken.
    pub(super) fn refund(&mut self, ask: &AlgorithmInput, stamp: u64) {
        if self.counts(ask) && !is_bucket(&self.state) {
            self.state.refund(ask, stamp);
        }
    }

    fn ask(&self, ask: &AlgorithmInput) -> AlgorithmInput {
        let max = if is_bucket(&self.state) && self.counts(ask) { ask.max.min(self.slowest) } else { ask.max };
        AlgorithmInput { max, ..*ask }
    }
}

fn is_bucket(state: &State) -> bool {
    matches!(state, State::TokenBucket(_) | State::LeakyBucket(_))
}
