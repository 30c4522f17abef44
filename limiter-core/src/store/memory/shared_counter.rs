//! A counter that several keys share.

use crate::Algorithm;
use crate::algorithm::{AlgorithmInput, CounterKind, CounterState, Outcome};

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

    pub(super) fn read<R>(&self, input: &AlgorithmInput, read: fn(&CounterState, &AlgorithmInput) -> R) -> R {
        read(&self.state, &self.with_min_rate(input))
    }

    /// Returns the number of permits that count.
    pub(super) fn used(&self, input: &AlgorithmInput) -> u32 {
        u32::try_from(self.state.used(&self.with_min_rate(input))).unwrap_or(u32::MAX)
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

// Counters that keys with different windows share.
//
// Windows are rounded up to a class; each class is four times as long as the one before. Permits that one key takes
// count for all keys of the counter, for at least as long as they would in a counter of the key's own. The window
// algorithms share the strictest of them, the sliding window. So a new key may be denied early, but no key is admitted
// too much.

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

    /// Reads the counter of a slot; `None` if no permit counts there.
    pub(super) fn read<R>(
        &self,
        slot: u16,
        input: &AlgorithmInput,
        read: fn(&CounterState, &AlgorithmInput) -> R,
    ) -> Option<R> {
        self.live(slot, input).map(|counter| counter.read(&coarse(input), read))
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

// The operations that write to a counter.

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

// The choice of the arithmetic with which a store counts each algorithm.

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
            // Its edges are those of the wall clock in both stores.
            Self::Strictest if algorithm == Algorithm::Calendar => algorithm,
            Self::Strictest => strictest(algorithm),
        })
    }
}

/// Returns an algorithm that never admits more than the given one, whatever the clock's origin. The sliding window
/// admits at most `max` in any window, so it never admits more than a fixed window or a sliding counter.
pub(super) fn strictest(algorithm: Algorithm) -> Algorithm {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => algorithm,
        _ => Algorithm::SlidingWindow,
    }
}
