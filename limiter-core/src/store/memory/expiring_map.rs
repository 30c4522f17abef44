//! A bounded map of counters. A sweep removes the expired ones, a few at a time.

use std::borrow::Borrow;
use std::fmt;

use indexmap::IndexMap;
use indexmap::map::RawEntryApiV1;
use indexmap::map::raw_entry_v1::RawEntryMut;

use crate::algorithm::CounterKind;

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
    kind: CounterKind,
    id: u64,
}

impl<T, C> ExpiringMap<T, C> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: IndexMap::with_hasher(()), capacity: capacity.max(1), cursor: 0, next_id: 0 }
    }

    pub(super) fn get<Q: Eq + ?Sized>(&self, hash: u64, subject: &Q, kind: CounterKind) -> Option<&C>
    where
        T: Borrow<Q>,
    {
        self.entries.get_index(self.find(hash, subject, kind)?).map(|(_, counter)| counter)
    }

    /// Returns the id of the entry and its counter.
    #[inline(always)]
    pub(super) fn get_mut<Q: Eq + ?Sized>(&mut self, hash: u64, subject: &Q, kind: CounterKind) -> Option<(u64, &mut C)>
    where
        T: Borrow<Q>,
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
        let index = self.entries.raw_entry_v1().index_from_hash(hash, |key| key.id == id)?;
        self.entries.get_index_mut(index).map(|(_, counter)| counter)
    }

    /// Inserts an entry, which must not exist yet, and returns its id. No other entry of this map ever has that id.
    pub(super) fn insert(&mut self, hash: u64, subject: T, kind: CounterKind, counter: C) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let key = EntryKey { subject, kind, id };
        if let RawEntryMut::Vacant(entry) = self.entries.raw_entry_mut_v1().from_hash(hash, |_| false) {
            entry.insert_hashed_nocheck(hash, key, counter);
        }
        id
    }

    /// Examines the next `steps` entries and removes the expired ones.
    pub(super) fn sweep(&mut self, steps: usize, is_expired: impl Fn(&C, CounterKind) -> bool) {
        for _ in 0..steps.min(self.entries.len()) {
            if self.cursor >= self.entries.len() {
                self.cursor = 0;
            }
            match self.entries.get_index(self.cursor) {
                Some((key, counter)) if is_expired(counter, key.kind) => {
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
    pub(super) fn find<Q: Eq + ?Sized>(&self, hash: u64, subject: &Q, kind: CounterKind) -> Option<usize>
    where
        T: Borrow<Q>,
    {
        self.entries.raw_entry_v1().index_from_hash(hash, |key| key.kind == kind && key.subject.borrow() == subject)
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
