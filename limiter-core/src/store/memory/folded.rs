//! The last resort of newcomers: counts that keys of different windows share.
//!
//! Windows are folded into classes, each four times as long as the one before. What one of those who share takes counts
//! for all of them, and for at least as long as it would have counted for itself. The window algorithms are folded into
//! the strictest of them: at most `max` in any window is never more than a fixed window, or a sliding counter, lets
//! through. So a newcomer may be denied early, and nobody is ever admitted too much.

use crate::Algorithm;
use crate::algorithm::{AlgorithmInput, CounterKind, Outcome, State};
use crate::store::memory::WriteOp;
use crate::store::memory::arithmetic::{Arithmetic, strictest};
use crate::store::memory::common::Common;

/// Counters by kind, class of windows and slot. Which one it is follows from a key's slot and span alone.
#[derive(Debug)]
pub(super) struct Folded {
    /// None until one is needed.
    counts: Vec<Common>,
    /// Of each kind and class.
    slots: usize,
    /// That of counts of a key's own.
    arithmetic: Arithmetic,
}

const KINDS: [Algorithm; 3] = [Algorithm::SlidingWindow, Algorithm::TokenBucket, Algorithm::LeakyBucket];
const CLASSES: usize = 13;
const LANES: usize = KINDS.len() * CLASSES;
/// Windows of the first class, in milliseconds; those of the last are as long as the longest there is, and a little.
const SHORTEST: u64 = 2048;

impl Folded {
    /// At most so many counts, or as few as there can be.
    pub(super) fn new(counts: usize, arithmetic: Arithmetic) -> Self {
        Self { counts: Vec::new(), slots: (counts / LANES).max(1), arithmetic }
    }

    pub(super) fn len(&self) -> usize {
        self.slots * LANES
    }

    /// What a key would be told by the count that it may have shared; nothing if nothing counts in that.
    pub(super) fn look(&self, slot: u16, ask: &AlgorithmInput) -> Option<Outcome> {
        self.live(slot, ask).map(|count| count.look(&folded(ask)))
    }

    pub(super) fn take(&mut self, slot: u16, ask: &AlgorithmInput, op: WriteOp) -> Outcome {
        if self.counts.is_empty() {
            let kinds = KINDS.iter().flat_map(|kind| vec![Common::new(State::new(*kind)); self.slots * CLASSES]);
            self.counts = kinds.collect();
        }
        let index = self.index(slot, ask.span);
        self.counts[index].take(&folded(ask), op).0
    }

    pub(super) fn refund(&mut self, slot: u16, ask: &AlgorithmInput, stamp: u64) {
        let index = self.index(slot, ask.span);
        if let Some(count) = self.counts.get_mut(index) {
            count.refund(&folded(ask), stamp);
        }
    }

    pub(super) fn is_live(&self, slot: u16, ask: &AlgorithmInput) -> bool {
        self.live(slot, ask).is_some()
    }

    /// The same as [`take`](Folded::take) with a copy, if anything counts in it; gives the copy as a count of the key's
    /// own, if anything was taken.
    pub(super) fn promote_from_shared(
        &self,
        slot: u16,
        ask: &AlgorithmInput,
        op: WriteOp,
    ) -> Option<(Outcome, Option<State>)> {
        let mut copy = self.live(slot, ask)?.clone();
        let (outcome, consumed) = copy.take(&folded(ask), op);
        Some((outcome, consumed.then(|| self.unfold(&copy, ask))))
    }

    /// A count of a key's own, as if all that counts in the folded one had been taken now.
    fn unfold(&self, count: &Common, ask: &AlgorithmInput) -> State {
        let used = count.used(&folded(ask));
        let mut own = self.arithmetic.empty(ask.span.algorithm);
        own.record(&AlgorithmInput { cost: used, ..*ask });
        own
    }

    fn live(&self, slot: u16, ask: &AlgorithmInput) -> Option<&Common> {
        self.counts.get(self.index(slot, ask.span)).filter(|count| count.counts(&folded(ask)))
    }

    fn index(&self, slot: u16, span: CounterKind) -> usize {
        let kind = KINDS.iter().position(|kind| *kind == strictest(span.algorithm)).unwrap_or(0);
        let lane = kind * CLASSES + class(span.window);
        lane * self.slots + usize::from(slot) % self.slots
    }
}

/// The request as these counts are asked.
fn folded(ask: &AlgorithmInput) -> AlgorithmInput {
    let CounterKind { algorithm, window } = ask.span;
    AlgorithmInput {
        span: CounterKind { algorithm: strictest(algorithm), window: SHORTEST << (2 * class(window)) },
        ..*ask
    }
}

/// The first class whose windows are long enough.
fn class(window: u64) -> usize {
    let last = CLASSES - 1;
    (0..last).find(|class| window <= SHORTEST << (2 * class)).unwrap_or(last)
}
