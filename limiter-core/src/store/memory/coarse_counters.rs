//! Counters that keys with different windows share.
//!
//! Windows are rounded up to a class; each class is four times as long as the one before. Permits that one key takes
//! count for all keys of the counter, for at least as long as they would in a counter of the key's own. The window
//! algorithms share the strictest of them, the sliding window. So a new key may be denied early, but no key is admitted
//! too much.

use crate::Algorithm;
use crate::algorithm::{AlgorithmInput, CounterKind, CounterState, Outcome};
use crate::store::memory::WriteOp;
use crate::store::memory::arithmetic::{Arithmetic, strictest};
use crate::store::memory::shared_counter::SharedCounter;

/// A fixed array of shared counters, indexed by algorithm, window class and slot.
#[derive(Debug)]
pub(super) struct CoarseCounters {
    /// Empty until the first take.
    counters: Vec<SharedCounter>,
    /// The number of counters of each algorithm and class.
    slots: usize,
    /// The arithmetic of the exact counters.
    arithmetic: Arithmetic,
}

const ALGORITHMS: [Algorithm; 3] = [Algorithm::SlidingWindow, Algorithm::TokenBucket, Algorithm::LeakyBucket];
const WINDOW_CLASSES: usize = 13;
const COUNTERS_PER_SLOT: usize = ALGORITHMS.len() * WINDOW_CLASSES;
/// The window of the first class, in milliseconds. That of the last class exceeds the longest window of a limit.
const SHORTEST_WINDOW_MILLIS: u64 = 2048;

impl CoarseCounters {
    /// Creates at most `counters` counters, but at least one for each algorithm and class.
    pub(super) fn new(counters: usize, arithmetic: Arithmetic) -> Self {
        Self { counters: Vec::new(), slots: (counters / COUNTERS_PER_SLOT).max(1), arithmetic }
    }

    pub(super) fn len(&self) -> usize {
        self.slots * COUNTERS_PER_SLOT
    }

    /// Returns the outcome by the counter of a slot; `None` if no permit counts there.
    pub(super) fn peek(&self, slot: u16, input: &AlgorithmInput) -> Option<Outcome> {
        self.live(slot, input).map(|counter| counter.peek(&coarse(input)))
    }

    pub(super) fn apply(&mut self, slot: u16, input: &AlgorithmInput, op: WriteOp) -> Outcome {
        if self.counters.is_empty() {
            let empty = |algorithm| SharedCounter::new(CounterState::new(algorithm));
            let by_algorithm = |algorithm| vec![empty(algorithm); self.slots * WINDOW_CLASSES];
            self.counters = ALGORITHMS.into_iter().flat_map(by_algorithm).collect();
        }
        let index = self.index(slot, input.kind);
        self.counters[index].apply(&coarse(input), op).0
    }

    pub(super) fn refund(&mut self, slot: u16, input: &AlgorithmInput, stamp: u64) {
        let index = self.index(slot, input.kind);
        if let Some(counter) = self.counters.get_mut(index) {
            counter.refund(&coarse(input), stamp);
        }
    }

    pub(super) fn is_live(&self, slot: u16, input: &AlgorithmInput) -> bool {
        self.live(slot, input).is_some()
    }

    /// Applies an operation to a copy of a slot's counter; `None` if no permit counts there. Returns the outcome, and
    /// the copy as an exact counter if the operation has taken permits.
    pub(super) fn promote_from_shared(
        &self,
        slot: u16,
        input: &AlgorithmInput,
        op: WriteOp,
    ) -> Option<(Outcome, Option<CounterState>)> {
        let mut copy = self.live(slot, input)?.clone();
        let (outcome, consumed) = copy.apply(&coarse(input), op);
        Some((outcome, consumed.then(|| self.to_exact(&copy, input))))
    }

    /// Creates an exact counter, as if all permits of the shared one had been taken now.
    fn to_exact(&self, counter: &SharedCounter, input: &AlgorithmInput) -> CounterState {
        let used = counter.used(&coarse(input));
        let mut exact = self.arithmetic.empty_counter(input.kind.algorithm);
        exact.record(&AlgorithmInput { cost: used, ..*input });
        exact
    }

    fn live(&self, slot: u16, input: &AlgorithmInput) -> Option<&SharedCounter> {
        self.counters.get(self.index(slot, input.kind)).filter(|counter| counter.is_live(&coarse(input)))
    }

    fn index(&self, slot: u16, kind: CounterKind) -> usize {
        let algorithm = strictest(kind.algorithm);
        let algorithm = ALGORITHMS.iter().position(|other| *other == algorithm).unwrap_or(0);
        (algorithm * WINDOW_CLASSES + window_class(kind.window)) * self.slots + usize::from(slot) % self.slots
    }
}

/// Returns the input for a coarse counter: with the strictest algorithm and the window of the class.
fn coarse(input: &AlgorithmInput) -> AlgorithmInput {
    let CounterKind { algorithm, window } = input.kind;
    let window = SHORTEST_WINDOW_MILLIS << (2 * window_class(window));
    AlgorithmInput { kind: CounterKind { algorithm: strictest(algorithm), window }, ..*input }
}

/// Returns the first class whose window is long enough.
fn window_class(window: u64) -> usize {
    let last = WINDOW_CLASSES - 1;
    (0..last).find(|class| window <= SHORTEST_WINDOW_MILLIS << (2 * class)).unwrap_or(last)
}
