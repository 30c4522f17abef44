//! A bounded map of counts, from which the expired ones are collected a few at a time.

use std::borrow::Borrow;
use std::fmt;

use indexmap::IndexMap;
use indexmap::map::RawEntryApiV1;
use indexmap::map::raw_entry_v1::RawEntryMut;

use crate::algorithm::CounterKind;

/// Counters, by what they are of and their span; and the hand that goes round to collect those that are over.
pub(super) struct ExpiringMap<T, C> {
    /// Hashed by whoever asks, who has done so already.
    counts: IndexMap<Counted<T>, C, ()>,
    capacity: usize,
    hand: usize,
    /// The next one's.
    id: u64,
}

struct Counted<T> {
    what: T,
    span: CounterKind,
    id: u64,
}

impl<T, C> ExpiringMap<T, C> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { counts: IndexMap::with_hasher(()), capacity: capacity.max(1), hand: 0, id: 0 }
    }

    pub(super) fn get<Q: Eq + ?Sized>(&self, hash: u64, what: &Q, span: CounterKind) -> Option<&C>
    where
        T: Borrow<Q>,
    {
        self.counts.get_index(self.find(hash, what, span)?).map(|(_, count)| count)
    }

    /// The count, and the number that no other one here ever has.
    #[inline(always)]
    pub(super) fn get_mut<Q: Eq + ?Sized>(&mut self, hash: u64, what: &Q, span: CounterKind) -> Option<(u64, &mut C)>
    where
        T: Borrow<Q>,
    {
        let place = self.find(hash, what, span)?;
        self.at(place)
    }

    /// The count at a place where it was found just now.
    #[inline(always)]
    pub(super) fn at(&mut self, place: usize) -> Option<(u64, &mut C)> {
        self.counts.get_index_mut(place).map(|(key, count)| (key.id, count))
    }

    /// The count with this number, if it is still there.
    pub(super) fn numbered(&mut self, hash: u64, id: u64) -> Option<&mut C> {
        let index = self.counts.raw_entry_v1().index_from_hash(hash, |key| key.id == id)?;
        self.counts.get_index_mut(index).map(|(_, count)| count)
    }

    /// Adds what is not there yet, while there is room, and gives its number.
    pub(super) fn insert(&mut self, hash: u64, what: T, span: CounterKind, count: C) -> u64 {
        let id = self.id;
        self.id += 1;
        let key = Counted { what, span, id };
        if let RawEntryMut::Vacant(place) = self.counts.raw_entry_mut_v1().from_hash(hash, |_| false) {
            place.insert_hashed_nocheck(hash, key, count);
        }
        id
    }

    /// Looks at the next few and drops those that are over.
    pub(super) fn collect(&mut self, steps: usize, is_over: impl Fn(&C, CounterKind) -> bool) {
        for _ in 0..steps.min(self.counts.len()) {
            if self.hand >= self.counts.len() {
                self.hand = 0;
            }
            match self.counts.get_index(self.hand) {
                Some((key, count)) if is_over(count, key.span) => {
                    self.counts.swap_remove_index(self.hand);
                }
                _ => self.hand += 1,
            }
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Where a count is, until another one is added or collected.
    #[inline(always)]
    pub(super) fn find<Q: Eq + ?Sized>(&self, hash: u64, what: &Q, span: CounterKind) -> Option<usize>
    where
        T: Borrow<Q>,
    {
        self.counts.raw_entry_v1().index_from_hash(hash, |key| key.span == span && key.what.borrow() == what)
    }
}

impl<T, C> fmt::Debug for ExpiringMap<T, C> {
    /// Without what the keys contain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringMap")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
