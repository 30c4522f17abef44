//! What is done to a count.

use crate::algorithm::{AlgorithmInput, Outcome, State};

#[derive(Clone, Copy, Debug)]
pub(super) enum WriteOp {
    /// Takes the permits if they fit.
    Decide,
    /// Takes the permits whether they fit or not.
    Record,
    /// Makes what was taken at `stamp` count from now.
    Renew { stamp: u64 },
}

impl WriteOp {
    pub(super) fn on(self, state: &mut State, ask: &AlgorithmInput) -> Outcome {
        match self {
            Self::Decide => return state.decide(ask),
            Self::Record => state.record(ask),
            Self::Renew { stamp } => state.renew(ask, stamp),
        }
        state.peek(&AlgorithmInput { cost: 0, pending: 0, ..*ask })
    }

    /// Whether it has taken anything, by what it said.
    pub(super) fn consumed(self, ask: &AlgorithmInput, outcome: &Outcome) -> bool {
        ask.cost > 0 && (outcome.allowed || !matches!(self, Self::Decide))
    }

    /// The same, where what was taken before cannot be given back: it counts longer.
    pub(super) fn without_refund(self) -> Self {
        match self {
            Self::Renew { .. } => Self::Record,
            other => other,
        }
    }
}
