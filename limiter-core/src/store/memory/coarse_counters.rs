//! Counters that keys with different windows share.
//!
//! A counter is for one class of windows: up to 2 048 ms, and from there on by factors of four. The window algorithms
//! share the strictest of them, the sliding window. Permits that one key takes count for all keys of the counter, for
//! the longest of their windows. So a new key may be denied early, but no key is admitted too much.

use crate::Algorithm;
use crate::algorithm::{AlgorithmInput, CounterKind, CounterState, Outcome};
use crate::store::memory::WriteOp;
use crate::store::memory::arithmetic::{Arithmetic, strictest};
use crate::store::memory::shared_counter::SharedCounter;

/// A fixed array of shared counters, indexed by algorithm, window class and hash.
#[derive(Debug)]
pub(super) struct CoarseCounters {
    /// Empty until the first operation.
    counters: Vec<SharedCounter>,
    /// The number of counters of each algorithm and class.
    slots: usize,
    /// The arithmetic of the exact counters.
    arithmetic: Arithmetic,
}

const ALGORITHMS: [Algorithm; 3] = [Algorithm::SlidingWindow, Algorithm::TokenBucket, Algorithm::LeakyBucket];
const WINDOW_CLASSES: usize = 13;
const COUNTERS_PER_SLOT: usize = ALGORITHMS.len() * WINDOW_CLASSES;
/// The longest window of the first class, in milliseconds. That of the last class exceeds every window of a limit.
const SHORTEST_WINDOW_MILLIS: u64 = 2048;

impl CoarseCounters {
    /// Creates at most `counters` counters, but at least one for each algorithm and class.
    pub(super) fn new(counters: usize, arithmetic: Arithmetic) -> Self {
        Self { counters: Vec::new(), slots: (counters / COUNTERS_PER_SLOT).max(1), arithmetic }
    }

    /// Returns the outcome by the counter of a key; `None` if no permit counts there.
    pub(super) fn peek(&self, hash: u64, input: &AlgorithmInput) -> Option<Outcome> {
        self.live(hash, input).map(|counter| counter.peek(&coarse(input)))
    }

    /// Applies an operation to the counter of a key.
    pub(super) fn apply(&mut self, hash: u64, input: &AlgorithmInput, op: WriteOp) -> Outcome {
        if self.counters.is_empty() {
            let empty = |algorithm| SharedCounter::new(CounterState::new(algorithm));
            let by_algorithm = |algorithm| vec![empty(algorithm); self.slots * WINDOW_CLASSES];
            self.counters = ALGORITHMS.into_iter().flat_map(by_algorithm).collect();
        }
        let index = self.index(hash, input.kind);
        self.counters[index].apply(&coarse(input), op).0
    }

    /// Returns permits taken at `stamp`.
    pub(super) fn refund(&mut self, hash: u64, input: &AlgorithmInput, stamp: u64) {
        let index = self.index(hash, input.kind);
        if let Some(counter) = self.counters.get_mut(index) {
            counter.refund(&coarse(input), stamp);
        }
    }

    /// Applies an operation to a copy of a key's counter; `None` if no permit counts there. Returns the outcome, and an
    /// exact counter with the permits of the copy if the operation has taken any.
    pub(super) fn promote(
        &self,
        hash: u64,
        input: &AlgorithmInput,
        op: WriteOp,
    ) -> Option<(Outcome, Option<CounterState>)> {
        let mut copy = self.live(hash, input)?.clone();
        let (outcome, consumed) = copy.apply(&coarse(input), op);
        Some((outcome, consumed.then(|| self.to_exact(&copy, input))))
    }

    /// Creates an exact counter, as if all permits of the shared one had been taken now.
    fn to_exact(&self, counter: &SharedCounter, input: &AlgorithmInput) -> CounterState {
        let used = counter.used(&coarse(input));
        let mut exact = self.arithmetic.empty(input.kind.algorithm);
        exact.record(&AlgorithmInput { cost: used, ..*input });
        exact
    }

    fn live(&self, hash: u64, input: &AlgorithmInput) -> Option<&SharedCounter> {
        self.counters.get(self.index(hash, input.kind)).filter(|counter| counter.is_live(&coarse(input)))
    }

    fn index(&self, hash: u64, kind: CounterKind) -> usize {
        let algorithm = strictest(kind.algorithm);
        let algorithm = ALGORITHMS.iter().position(|other| *other == algorithm).unwrap_or(0);
        let slot = usize::try_from(hash % self.slots as u64).unwrap_or(0);
        (algorithm * WINDOW_CLASSES + window_class(kind.window)) * self.slots + slot
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }
}

/// Returns the input with the strictest algorithm of its kind.
fn coarse(input: &AlgorithmInput) -> AlgorithmInput {
    AlgorithmInput { kind: CounterKind { algorithm: strictest(input.kind.algorithm), ..input.kind }, ..*input }
}

/// Returns the class of a window.
fn window_class(window: u64) -> usize {
    let last = WINDOW_CLASSES - 1;
    (0..last).find(|class| window <= SHORTEST_WINDOW_MILLIS << (2 * class)).unwrap_or(last)
}
