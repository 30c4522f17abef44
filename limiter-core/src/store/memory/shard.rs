//! One shard of the embedded store: the counters under one lock.
//!
//! A key that has taken permits has an exact counter, while the map has room. When the map is full, new keys are
//! counted in a fixed array of shared counters: see [`CoarseCounters`]. So no key whose permits still count is evicted,
//! no key is admitted too much, and the number of counters is fixed.
//!
//! The shared counter of a key follows from its hash and the kind of the counter alone, so all permits of a key are in
//! one counter. Once the map has room again, the key gets an exact counter, which starts with the permits of the shared
//! one. So the shared counters expire once there is room, however busy their keys are.

use crate::algorithm::{AlgorithmInput, CounterKind, CounterState, Outcome};
use crate::store::memory::arithmetic::Arithmetic;
use crate::store::memory::coarse_counters::CoarseCounters;
use crate::store::memory::expiring_map::ExpiringMap;
use crate::store::memory::{EntryId, KeyHash, WriteOp};

/// The exact counters of a shard, and the counters that new keys share while the map of exact ones is full.
#[derive(Debug)]
pub(super) struct Shard {
    exact: ExpiringMap<CounterState>,
    shared: CoarseCounters,
    arithmetic: Arithmetic,
}

/// The outcome of a request, and the counter that it came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardReply {
    pub(super) outcome: Outcome,
    /// True if the key had to use a shared counter.
    pub(super) shared: bool,
    /// The id of the key's entry, if it has one.
    pub(super) id: Option<u64>,
}

/// The number of entries that each insertion examines: more than one, so that the sweep outpaces insertions.
const SWEPT_PER_INSERTION: usize = 2;
/// The number of further entries that an insertion into a full map examines.
const SWEPT_WHEN_FULL: usize = 16;

impl Shard {
    /// Creates a shard for `capacity` keys, with at most `shared_counters` counters for further keys.
    pub(super) fn new(capacity: usize, shared_counters: usize, arithmetic: Arithmetic) -> Self {
        let shared = CoarseCounters::new(shared_counters, arithmetic);
        Self { exact: ExpiringMap::new(capacity), shared, arithmetic }
    }

    /// Returns the outcome of a decision, and takes nothing.
    pub(super) fn peek(&self, key_hash: &KeyHash<'_>, input: &AlgorithmInput) -> Outcome {
        if let Some(state) = self.exact.get(key_hash.hash, key_hash.encoding, input.kind) {
            return state.peek(input);
        }
        self.shared.peek(key_hash.hash, input).unwrap_or_else(|| self.empty(input).peek(input))
    }

    /// Returns the index of the key's entry, if it has one.
    #[inline(always)]
    pub(super) fn find(&self, key_hash: &KeyHash<'_>, kind: CounterKind) -> Option<usize> {
        self.exact.find(key_hash.hash, key_hash.encoding, kind)
    }

    /// Makes the decision in the common case of a busy key. Returns the outcome and the id of the entry at this index;
    /// `None` in every other case.
    #[inline(always)]
    pub(super) fn decide_fast_path(&mut self, index: usize, input: &AlgorithmInput) -> Option<(Outcome, u64)> {
        let (id, state) = self.exact.get_index_mut(index)?;
        Some((state.decide_fast_path(input)?, id))
    }

    /// Applies an operation to the counter of a key. A key without an entry gets one only if the operation takes
    /// permits.
    pub(super) fn apply(&mut self, key_hash: &KeyHash<'_>, input: &AlgorithmInput, op: WriteOp) -> ShardReply {
        let index = self.find(key_hash, input.kind);
        self.apply_at(index, key_hash, input, op)
    }

    /// Applies an operation as [`apply`](Self::apply) does, to the entry that [`find`](Self::find) has returned.
    pub(super) fn apply_at(
        &mut self,
        index: Option<usize>,
        key_hash: &KeyHash<'_>,
        input: &AlgorithmInput,
        op: WriteOp,
    ) -> ShardReply {
        match index.and_then(|index| self.exact.get_index_mut(index)) {
            Some((id, state)) => ShardReply { outcome: op.apply(state, input), shared: false, id: Some(id) },
            None => self.insert_new_key(key_hash, input, op),
        }
    }

    #[cold]
    fn insert_new_key(&mut self, key_hash: &KeyHash<'_>, input: &AlgorithmInput, op: WriteOp) -> ShardReply {
        self.sweep(input.floor);
        if self.exact.is_full() {
            return ShardReply { outcome: self.shared.apply(key_hash.hash, input, op), shared: true, id: None };
        }
        let (outcome, state) = self.shared.promote(key_hash.hash, input, op).unwrap_or_else(|| {
            let mut state = self.empty(input);
            let outcome = op.apply(&mut state, input);
            (outcome, op.consumed(input, &outcome).then_some(state))
        });
        let id = state.map(|state| self.exact.insert(key_hash.hash, key_hash.encoding, input.kind, state));
        ShardReply { outcome, shared: false, id }
    }

    /// Returns permits taken at `stamp`.
    pub(super) fn refund(&mut self, key_hash: &KeyHash<'_>, input: &AlgorithmInput, stamp: u64) {
        match self.exact.get_mut(key_hash.hash, key_hash.encoding, input.kind) {
            Some(state) => state.refund(input, stamp),
            None => self.shared.refund(key_hash.hash, input, stamp),
        }
    }

    /// Returns permits taken at `stamp` from an entry, if it was not removed.
    pub(super) fn refund_entry(&mut self, entry: EntryId, input: &AlgorithmInput, stamp: u64) {
        if let Some(state) = self.exact.get_by_id_mut(entry.hash, entry.id) {
            state.refund(input, stamp);
        }
    }

    /// Removes all permits of a key that has an entry. The entry stays until the sweep, because receipts refer to it.
    pub(super) fn clear(&mut self, key_hash: &KeyHash<'_>, kind: CounterKind) {
        if let Some(state) = self.exact.get_mut(key_hash.hash, key_hash.encoding, kind) {
            state.clear();
        }
    }

    fn sweep(&mut self, now: u64) {
        let is_expired = |state: &CounterState, kind: CounterKind| state.expires_at(kind.window) <= now;
        self.exact.sweep(SWEPT_PER_INSERTION, is_expired);
        if self.exact.is_full() {
            self.exact.sweep(SWEPT_WHEN_FULL, is_expired);
        }
    }

    fn empty(&self, input: &AlgorithmInput) -> CounterState {
        self.arithmetic.empty(input.kind.algorithm)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.exact.len()
    }

    /// Returns the number of shared counters.
    #[cfg(test)]
    pub(super) fn shared_counters(&self) -> usize {
        self.shared.len()
    }
}
