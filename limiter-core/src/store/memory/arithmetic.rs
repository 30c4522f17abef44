//! The choice of the arithmetic with which a store counts each algorithm.

use crate::Algorithm;
use crate::algorithm::CounterState;

/// The choice between the algorithm itself and one that is valid for every clock.
///
/// The edges of a fixed window, and of a sliding counter, depend on the clock's origin. A mirror counts for a store
/// with another clock. It uses the sliding window's log, which never admits too much wherever the edges are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arithmetic {
    /// Each algorithm has its own counter.
    Own,
    /// Each algorithm has the counter of [`strictest`].
    Strictest,
}

impl Arithmetic {
    /// Creates a counter of which nothing is taken.
    pub(super) fn empty_counter(self, algorithm: Algorithm) -> CounterState {
        CounterState::new(match self {
            Self::Own => algorithm,
            Self::Strictest => strictest(algorithm),
        })
    }
}

/// Returns an algorithm that never admits more than the given one, whatever the clock's origin. The sliding window
/// admits at most `max` in any window, so it never admits more than a fixed window or a sliding counter.
pub(super) fn strictest(algorithm: Algorithm) -> Algorithm {
    match algorithm {
        Algorithm::SlidingWindow | Algorithm::FixedWindow | Algorithm::SlidingCounter => Algorithm::SlidingWindow,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => algorithm,
    }
}
