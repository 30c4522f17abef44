//! The operations that write to a counter.

use crate::algorithm::{AlgorithmInput, CounterState, Outcome};

/// An operation on a counter that takes permits.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriteOp {
    /// Takes the permits if they fit.
    Decide,
    /// Takes the permits even beyond the limit.
    Record,
    /// Changes the stamp of permits taken at `stamp` to now.
    Restamp { stamp: u64 },
}

impl WriteOp {
    pub(super) fn apply(self, state: &mut CounterState, input: &AlgorithmInput) -> Outcome {
        match self {
            Self::Decide => return state.decide(input),
            Self::Record => state.record(input),
            Self::Restamp { stamp } => state.restamp(input, stamp),
        }
        state.peek(&AlgorithmInput { cost: 0, pending: 0, ..*input })
    }

    /// Returns true if an operation with this outcome has taken permits.
    pub(super) fn consumed(self, input: &AlgorithmInput, outcome: &Outcome) -> bool {
        input.cost > 0 && (outcome.allowed || !matches!(self, Self::Decide))
    }

    /// Returns the operation for a counter that cannot refund.
    ///
    /// A restamp becomes a record: the permits at the old stamp stay until they expire.
    pub(super) fn without_refund(self) -> Self {
        match self {
            Self::Restamp { .. } => Self::Record,
            other => other,
        }
    }
}
