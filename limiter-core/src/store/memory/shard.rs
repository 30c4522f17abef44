//! One shard of the embedded store: the counters under one lock.
//!
//! A key that has taken permits has an exact counter, while the map has room. When the map is full, new keys are
//! counted in shared counters. At first all keys of one slot and counter kind share one. Once those are used up too,
//! the keys of a few slots and of a class of windows share a coarse counter. So no key whose permits still count is
//! evicted, no key is admitted too much, and the number of counters is fixed.
//!
//! The shared counter of a key follows from its slot and kind alone, and stays the same as long as it counts any
//! permits. So all permits of a key are in one counter. Once the map has room again, the key gets an exact counter,
//! which starts as a copy of the shared one. So the shared counters expire once there is room, however busy their keys
//! are.

use std::fmt;
use std::hash::BuildHasher;
use std::hint::spin_loop;
use std::time::Duration;

use indexmap::IndexMap;
use indexmap::map::RawEntryApiV1;
use indexmap::map::raw_entry_v1::RawEntryMut;

use crate::algorithm::{AlgorithmInput, CounterKind, CounterState, Outcome};
use crate::metrics::KeyCount;
use crate::store::memory::key_bytes::KeyBytes;
use crate::store::memory::shared_counter::{Arithmetic, CoarseCounters, SharedCounter};
use crate::store::memory::{EntryId, KeyHash, WriteOp};
use crate::sync::{Mutex, MutexGuard, Seed, lock};

/// The exact counters of a shard, and the counters that new keys share while the map of exact ones is full.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) exact: ExpiringMap<KeyBytes, CounterState>,
    shared: ExpiringMap<u16, SharedCounter>,
    coarse: CoarseCounters,
    slots: u16,
    arithmetic: Arithmetic,
    pub(super) seed: Seed,
    keys: KeyCount,
    /// An entry without a name was inserted.
    pub(super) has_nameless: bool,
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
    /// Creates a shard for `capacity` keys, with `shared_counters` counters for further keys.
    pub(super) fn new(
        capacity: usize,
        shared_counters: usize,
        arithmetic: Arithmetic,
        seed: Seed,
        keys: KeyCount,
    ) -> Self {
        let coarse = CoarseCounters::new(shared_counters / 4, arithmetic);
        let slots = u16::try_from(shared_counters - coarse.len()).unwrap_or(u16::MAX);
        Self {
            exact: ExpiringMap::new(capacity),
            shared: ExpiringMap::new(slots.into()),
            coarse,
            slots,
            arithmetic,
            seed,
            keys,
            has_nameless: false,
        }
    }

    /// Returns the outcome of a decision, and takes nothing.
    pub(super) fn peek(&self, key_hash: &KeyHash<'_>, input: &AlgorithmInput) -> Outcome {
        self.read(key_hash, input, CounterState::peek)
    }

    /// Reads the counter that decides about a key, by the input that it decides with.
    pub(super) fn read<R>(
        &self,
        key_hash: &KeyHash<'_>,
        input: &AlgorithmInput,
        read: fn(&CounterState, &AlgorithmInput) -> R,
    ) -> R {
        if let Some(state) = self.find_any(key_hash, input.kind).and_then(|index| self.exact.get_index(index)) {
            return read(state, input);
        }
        let slot = self.slot(key_hash);
        match self.shared.get(self.shared_hash(slot, input.kind), &slot, input.kind) {
            Some(counter) if counter.is_live(input) => counter.read(input, read),
            _ => self.coarse.read(slot, input, read).unwrap_or_else(|| read(&self.empty_counter(input), input)),
        }
    }

    /// Records permits also beyond the limit, as many as the counter has room for. Returns that number, and whether the key
    /// had to use a shared counter.
    pub(super) fn charge(&mut self, key_hash: &KeyHash<'_>, input: &AlgorithmInput) -> (u32, bool) {
        let counted = input.cost.min(self.read(key_hash, input, CounterState::room));
        let input = AlgorithmInput { cost: counted, ..*input };
        (counted, counted > 0 && self.apply(key_hash, &input, WriteOp::Record).shared)
    }

    /// Returns the index of the key's entry, if it has one.
    #[inline(always)]
    pub(super) fn find(&self, key_hash: &KeyHash<'_>, kind: CounterKind) -> Option<usize> {
        self.exact.find(key_hash.hash, key_hash.encoding, kind)
    }

    /// Makes the decision in the common case of a known key. Returns the outcome and the id of the key's entry.
    ///
    /// # Errors
    /// The index of the key's entry, if it has one, in every other case.
    #[inline(always)]
    pub(super) fn decide_fast_path(
        &mut self,
        key_hash: &KeyHash<'_>,
        input: &AlgorithmInput,
    ) -> Result<(Outcome, u64), Option<usize>> {
        let index = self.find(key_hash, input.kind).ok_or(None)?;
        let (id, state) = self.exact.get_index_mut(index).ok_or(None)?;
        Ok((state.decide_fast_path(input).ok_or(Some(index))?, id))
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
        if let Some(index) = self.name_entry(key_hash, input.kind) {
            return self.apply_at(Some(index), key_hash, input, op);
        }
        let keys_before = self.exact.len();
        let reply = self.insert_swept(key_hash, input, op);
        self.keys.change(keys_before, self.exact.len());
        reply
    }

    fn insert_swept(&mut self, key_hash: &KeyHash<'_>, input: &AlgorithmInput, op: WriteOp) -> ShardReply {
        self.sweep(input.floor);
        if self.exact.is_full() {
            return ShardReply { outcome: self.apply_shared(self.slot(key_hash), input, op), shared: true, id: None };
        }
        let (outcome, state) = self.promote_from_shared(self.slot(key_hash), input, op);
        let id = state.map(|state| self.exact.insert(key_hash.hash, key_hash.encoding.into(), input.kind, state));
        ShardReply { outcome, shared: false, id }
    }

    /// Returns permits taken at `stamp`.
    pub(super) fn refund(&mut self, key_hash: &KeyHash<'_>, input: &AlgorithmInput, stamp: u64) {
        let index = self.find_any(key_hash, input.kind);
        if let Some((_, state)) = index.and_then(|index| self.exact.get_index_mut(index)) {
            return state.refund(input, stamp);
        }
        let slot = self.slot(key_hash);
        match self.shared.get_mut(self.shared_hash(slot, input.kind), &slot, input.kind) {
            Some((_, counter)) if counter.is_live(input) => counter.refund(input, stamp),
            _ => self.coarse.refund(slot, input, stamp),
        }
    }

    /// Returns permits taken at `stamp` from an entry, if it was not removed.
    pub(super) fn refund_entry(&mut self, entry: EntryId, input: &AlgorithmInput, stamp: u64) {
        if let Some(state) = self.exact.get_by_id_mut(entry.hash, entry.id) {
            state.refund(input, stamp);
        }
    }

    /// Ends the present period of a key's exact counter after this time.
    pub(super) fn end_period_after(&mut self, key_hash: &KeyHash<'_>, input: &AlgorithmInput, time: Duration) {
        let index = self.find_any(key_hash, input.kind);
        if let Some((_, state)) = index.and_then(|index| self.exact.get_index_mut(index)) {
            state.end_period_after(input, time);
        }
    }

    /// Removes all permits of a key. The entry stays until the sweep, because receipts refer to it.
    pub(super) fn clear(&mut self, key_hash: &KeyHash<'_>, kind: CounterKind) {
        let index = self.find_any(key_hash, kind);
        if let Some((_, state)) = index.and_then(|index| self.exact.get_index_mut(index)) {
            state.clear();
        }
    }

    /// Applies an operation to the shared counter of a slot.
    fn apply_shared(&mut self, slot: u16, input: &AlgorithmInput, op: WriteOp) -> Outcome {
        let hash = self.shared_hash(slot, input.kind);
        let (has_room, arithmetic) = (!self.shared.is_full(), self.arithmetic);
        match self.shared.get_mut(hash, &slot, input.kind) {
            Some((_, counter)) if counter.is_live(input) => counter.apply(input, op).0,
            // Permits that count in the coarse counter must not be granted again.
            _ if self.coarse.is_live(slot, input) => self.coarse.apply(slot, input, op),
            Some((_, counter)) => counter.apply(input, op).0,
            None if has_room => {
                let mut counter = SharedCounter::new(arithmetic.empty_counter(input.kind.algorithm));
                let (outcome, consumed) = counter.apply(input, op);
                if consumed {
                    self.shared.insert(hash, slot, input.kind, counter);
                }
                outcome
            }
            None => self.coarse.apply(slot, input, op),
        }
    }

    /// Applies an operation to a copy of the counter that the key may have shared. Returns the outcome, and the copy if
    /// the operation has taken permits.
    fn promote_from_shared(&self, slot: u16, input: &AlgorithmInput, op: WriteOp) -> (Outcome, Option<CounterState>) {
        let shared = self.shared.get(self.shared_hash(slot, input.kind), &slot, input.kind);
        if let Some(counter) = shared.filter(|counter| counter.is_live(input)) {
            let mut copy = counter.clone();
            let (outcome, consumed) = copy.apply(input, op);
            return (outcome, consumed.then_some(copy.state));
        }
        self.coarse.promote_from_shared(slot, input, op).unwrap_or_else(|| {
            let mut state = self.empty_counter(input);
            let outcome = op.apply(&mut state, input);
            let consumed = op.consumed(input, &outcome);
            (outcome, consumed.then_some(state))
        })
    }

    fn sweep(&mut self, now: u64) {
        let is_expired = |state: &CounterState, window: u64| state.expires_at(window) <= now;
        self.exact.sweep(SWEPT_PER_INSERTION, is_expired);
        if self.exact.is_full() {
            self.exact.sweep(SWEPT_WHEN_FULL, is_expired);
        }
        self.shared.sweep(SWEPT_PER_INSERTION, |counter, window| is_expired(&counter.state, window));
    }

    /// Creates a counter of which nothing is taken, without an entry.
    fn empty_counter(&self, input: &AlgorithmInput) -> CounterState {
        self.arithmetic.empty_counter(input.kind.algorithm)
    }

    fn slot(&self, key_hash: &KeyHash<'_>) -> u16 {
        u16::try_from(key_hash.hash % u64::from(self.slots)).unwrap_or(0)
    }

    fn shared_hash(&self, slot: u16, kind: CounterKind) -> u64 {
        self.seed.hash_one((slot, kind))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.exact.len()
    }

    /// Returns how many shared counters there are, in use and in all.
    #[cfg(test)]
    pub(super) fn shared_counters(&self) -> (usize, usize) {
        (self.shared.len(), usize::from(self.slots) + self.coarse.len())
    }
}

// A bounded map of counters. A sweep removes the expired ones, a few at a time.

/// A map from a subject and a kind to a counter, with a cursor for the sweep of expired entries.
pub(super) struct ExpiringMap<T, C> {
    /// The entries. Callers pass the hash, which they have computed already.
    entries: IndexMap<EntryKey<T>, C, ()>,
    capacity: usize,
    cursor: usize,
    /// The id of the next entry.
    next_id: u64,
}

struct EntryKey<T> {
    subject: T,
    kind: PackedKind,
    id: u64,
}

/// A counter kind in one word: the algorithm in the lowest three bits, and the window.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PackedKind(u64);

impl PackedKind {
    #[inline]
    fn new(kind: CounterKind) -> Self {
        Self(kind.window << 3 | kind.algorithm as u64)
    }

    fn window(self) -> u64 {
        self.0 >> 3
    }
}

impl<T, C> ExpiringMap<T, C> {
    /// The size of an entry, with its hash.
    #[cfg(test)]
    pub(super) const ENTRY_BYTES: usize = size_of::<(u64, EntryKey<T>, C)>();

    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: IndexMap::with_hasher(()), capacity: capacity.max(1), cursor: 0, next_id: 0 }
    }

    pub(super) fn get<Q: ?Sized>(&self, hash: u64, subject: &Q, kind: CounterKind) -> Option<&C>
    where
        T: PartialEq<Q>,
    {
        self.get_index(self.find(hash, subject, kind)?)
    }

    /// Returns the counter of the entry at an index from [`find`](Self::find).
    pub(super) fn get_index(&self, index: usize) -> Option<&C> {
        self.entries.get_index(index).map(|(_, counter)| counter)
    }

    /// Returns the id of the entry and its counter.
    #[inline(always)]
    pub(super) fn get_mut<Q: ?Sized>(&mut self, hash: u64, subject: &Q, kind: CounterKind) -> Option<(u64, &mut C)>
    where
        T: PartialEq<Q>,
    {
        let index = self.find(hash, subject, kind)?;
        self.get_index_mut(index)
    }

    /// Returns the id and the counter of the entry at an index from [`find`](Self::find).
    #[inline(always)]
    pub(super) fn get_index_mut(&mut self, index: usize) -> Option<(u64, &mut C)> {
        self.entries.get_index_mut(index).map(|(key, counter)| (key.id, counter))
    }

    /// Returns the counter of the entry with this id, if it was not removed.
    pub(super) fn get_by_id_mut(&mut self, hash: u64, id: u64) -> Option<&mut C> {
        let index = self.index_of_id(hash, id)?;
        self.entries.get_index_mut(index).map(|(_, counter)| counter)
    }

    /// Returns the index of the entry with this id, if it was not removed.
    pub(super) fn index_of_id(&self, hash: u64, id: u64) -> Option<usize> {
        self.entries.raw_entry_v1().index_from_hash(hash, |key| key.id == id)
    }

    /// Returns the index of the entry of this kind whose subject matches.
    pub(super) fn find_by(&self, hash: u64, kind: CounterKind, is_match: impl Fn(&T) -> bool) -> Option<usize> {
        let kind = PackedKind::new(kind);
        self.entries.raw_entry_v1().index_from_hash(hash, |key| key.kind == kind && is_match(&key.subject))
    }

    /// Replaces the subject of an entry by one with the same hash. Returns the entry's index, if there is one.
    pub(super) fn rename<Q: ?Sized>(&mut self, hash: u64, old: &Q, kind: CounterKind, new: T) -> Option<usize>
    where
        T: PartialEq<Q>,
    {
        let kind = PackedKind::new(kind);
        let is_old = |key: &EntryKey<T>| key.kind == kind && key.subject == *old;
        let RawEntryMut::Occupied(mut entry) = self.entries.raw_entry_mut_v1().from_hash(hash, is_old) else {
            return None;
        };
        entry.key_mut().subject = new;
        Some(entry.index())
    }

    /// Inserts an entry, which must not exist yet, and returns its id. No other entry of this map ever has that id.
    pub(super) fn insert(&mut self, hash: u64, subject: T, kind: CounterKind, counter: C) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let key = EntryKey { subject, kind: PackedKind::new(kind), id };
        if let RawEntryMut::Vacant(entry) = self.entries.raw_entry_mut_v1().from_hash(hash, |_| false) {
            entry.insert_hashed_nocheck(hash, key, counter);
        }
        id
    }

    /// Examines the next `steps` entries and removes the expired ones, by their counters and windows.
    pub(super) fn sweep(&mut self, steps: usize, is_expired: impl Fn(&C, u64) -> bool) {
        for _ in 0..steps.min(self.entries.len()) {
            if self.cursor >= self.entries.len() {
                self.cursor = 0;
            }
            match self.entries.get_index(self.cursor) {
                Some((key, counter)) if is_expired(counter, key.kind.window()) => {
                    self.entries.swap_remove_index(self.cursor);
                }
                _ => self.cursor += 1,
            }
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the index of an entry, valid until the next insertion or sweep.
    #[inline(always)]
    pub(super) fn find<Q: ?Sized>(&self, hash: u64, subject: &Q, kind: CounterKind) -> Option<usize>
    where
        T: PartialEq<Q>,
    {
        let kind = PackedKind::new(kind);
        self.entries.raw_entry_v1().index_from_hash(hash, move |key| key.kind == kind && key.subject == *subject)
    }
}

impl<T, C> fmt::Debug for ExpiringMap<T, C> {
    /// Formats the sizes only: keys may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringMap")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

// The shards of a store, each under a lock of its own.

/// The attempts to take a lock before the thread sleeps. A decision under the lock takes less time.
const SPINS: u32 = if cfg!(all(test, limiter_loom)) { 0 } else { 100 };

#[derive(Debug)]
pub(super) struct Shards(Box<[LockedShard]>);

/// A shard under its lock. It shares no cache line with another one, and its lock is in the line of its first fields.
#[derive(Debug)]
#[repr(align(64))]
struct LockedShard(Mutex<Shard>);

impl Shards {
    pub(super) fn new(count: usize, shard: impl Fn() -> Shard) -> Self {
        Self((0..count).map(|_| LockedShard(Mutex::new(shard()))).collect())
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Locks a shard if no other thread has locked it.
    #[inline(always)]
    pub(super) fn try_lock(&self, index: usize) -> Option<MutexGuard<'_, Shard>> {
        self.0[index].0.try_lock().ok()
    }

    /// Locks a shard.
    #[inline]
    pub(super) fn lock(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.try_lock(index).unwrap_or_else(|| self.lock_contended(index))
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, index: usize) -> MutexGuard<'_, Shard> {
        for _ in 0..SPINS {
            spin_loop();
            if let Some(shard) = self.try_lock(index) {
                return shard;
            }
        }
        lock(&self.0[index].0)
    }
}
