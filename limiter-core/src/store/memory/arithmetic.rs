//! The arithmetic that a store counts each algorithm by.

use crate::Algorithm;
use crate::algorithm::State;

/// The choice between exact answers and answers that hold by any clock.
///
/// The edges of a fixed window, and of a sliding counter, are those of one clock. A count that stands in for another
/// clock's can only be right for any edges, and the sliding window's log is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arithmetic {
    /// Each algorithm is counted by its own.
    Own,
    /// Each algorithm is counted by the strictest of its kind.
    Strictest,
}

impl Arithmetic {
    /// Returns a count in which nothing is taken.
    pub(super) fn empty(self, algorithm: Algorithm) -> State {
        State::new(match self {
            Self::Own => algorithm,
            Self::Strictest => strictest(algorithm),
        })
    }
}

/// Returns the algorithm that never admits more than this one, whatever the clock's origin: at most `max` in any window
/// is never more than a fixed window, or a sliding counter, admits.
pub(super) fn strictest(algorithm: Algorithm) -> Algorithm {
    match algorithm {
        Algorithm::SlidingWindow | Algorithm::FixedWindow | Algorithm::SlidingCounter => Algorithm::SlidingWindow,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => algorithm,
    }
}
