//! One part of the embedded store: what is under one lock.
//!
//! A key that has taken something has a count of its own, as long as there is a place. While there is none, newcomers
//! share: all keys of one slot and span share a count, and once those are used up too, all keys of a few slots and a
//! class of windows do. So nobody who still counts is evicted, nobody is admitted too much, and the number of counts is
//! fixed whatever comes.
//!
//! Which of the shared counts a key is sent to follows from its slot and span alone, and is the same for as long as
//! that count lasts: what a key has taken is in one place. As soon as there is a place of its own for it, it takes a
//! copy along. So shared counts run dry once there is room, however busy the keys are that shared them.

use std::hash::BuildHasher;

use crate::algorithm::{AlgorithmInput, CounterKind, Outcome, State};
use crate::store::memory::arithmetic::Arithmetic;
use crate::store::memory::common::Common;
use crate::store::memory::expiring_map::ExpiringMap;
use crate::store::memory::folded::Folded;
use crate::store::memory::{EntryId, KeyHash, WriteOp};
use crate::sync::Seed;

/// Counters, and what newcomers share when every place is taken.
#[derive(Debug)]
pub(super) struct Shard {
    own: ExpiringMap<Box<[u8]>, State>,
    shared: ExpiringMap<u16, Common>,
    folded: Folded,
    slots: u16,
    arithmetic: Arithmetic,
    seed: Seed,
}

/// What was said to a call, and whether it had to share a count for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardReply {
    pub(super) outcome: Outcome,
    pub(super) shared: bool,
    /// The number of the key's own count, if it has one.
    pub(super) id: Option<u64>,
}

/// Places looked at by every call that adds a key: more than one, so that collecting outruns filling.
const STEP: usize = 2;
/// Places looked at before a newcomer has to share.
const SEARCH: usize = 16;

impl Shard {
    /// Keeps so many keys apart; the others share `sharing` counts.
    pub(super) fn new(capacity: usize, sharing: usize, arithmetic: Arithmetic, seed: Seed) -> Self {
        let folded = Folded::new(sharing / 4, arithmetic);
        let slots = u16::try_from(sharing - folded.len()).unwrap_or(u16::MAX);
        Self {
            own: ExpiringMap::new(capacity),
            shared: ExpiringMap::new(slots.into()),
            folded,
            slots,
            arithmetic,
            seed,
        }
    }

    /// What a key would be told.
    pub(super) fn look(&self, key_hash: &KeyHash<'_>, ask: &AlgorithmInput) -> Outcome {
        if let Some(state) = self.own.get(key_hash.hash, key_hash.subject, ask.span) {
            return state.peek(ask);
        }
        let slot = self.slot(key_hash);
        match self.shared.get(self.shared_hash(slot, ask.span), &slot, ask.span) {
            Some(count) if count.counts(ask) => count.look(ask),
            _ => self.folded.look(slot, ask).unwrap_or_else(|| self.empty(ask).peek(ask)),
        }
    }

    /// Where the key's own count is, if it has one.
    #[inline(always)]
    pub(super) fn find(&self, key_hash: &KeyHash<'_>, span: CounterKind) -> Option<usize> {
        self.own.find(key_hash.hash, key_hash.subject, span)
    }

    /// What most calls come to: an admission by the count at this place, and the count's number. Nothing if it takes more
    /// than a few steps.
    #[inline(always)]
    pub(super) fn join(&mut self, place: usize, ask: &AlgorithmInput) -> Option<(Outcome, u64)> {
        let (id, state) = self.own.at(place)?;
        Some((state.join(ask)?, id))
    }

    /// Does it to what a key has taken. Only if that takes something is the key known from then on.
    pub(super) fn take(&mut self, key_hash: &KeyHash<'_>, ask: &AlgorithmInput, op: WriteOp) -> ShardReply {
        let place = self.find(key_hash, ask.span);
        self.take_at(place, key_hash, ask, op)
    }

    /// The same at the place where the key was found, if it was.
    pub(super) fn take_at(
        &mut self,
        place: Option<usize>,
        key_hash: &KeyHash<'_>,
        ask: &AlgorithmInput,
        op: WriteOp,
    ) -> ShardReply {
        match place.and_then(|place| self.own.at(place)) {
            Some((id, state)) => ShardReply { outcome: op.on(state, ask), shared: false, id: Some(id) },
            None => self.insert_new_key(key_hash, ask, op),
        }
    }

    #[cold]
    fn insert_new_key(&mut self, key_hash: &KeyHash<'_>, ask: &AlgorithmInput, op: WriteOp) -> ShardReply {
        self.collect(ask.floor);
        if self.own.is_full() {
            return ShardReply { outcome: self.share(self.slot(key_hash), ask, op), shared: true, id: None };
        }
        let (outcome, state) = self.promote_from_shared(self.slot(key_hash), ask, op);
        let id = state.map(|state| self.own.insert(key_hash.hash, key_hash.subject.into(), ask.span, state));
        ShardReply { outcome, shared: false, id }
    }

    /// Gives back what was taken at `stamp`.
    pub(super) fn refund(&mut self, key_hash: &KeyHash<'_>, ask: &AlgorithmInput, stamp: u64) {
        if let Some((_, state)) = self.own.get_mut(key_hash.hash, key_hash.subject, ask.span) {
            return state.refund(ask, stamp);
        }
        let slot = self.slot(key_hash);
        match self.shared.get_mut(self.shared_hash(slot, ask.span), &slot, ask.span) {
            Some((_, count)) if count.counts(ask) => count.refund(ask, stamp),
            _ => self.folded.refund(slot, ask, stamp),
        }
    }

    /// The same at a place, if the key is still there.
    pub(super) fn refund_at(&mut self, place: EntryId, ask: &AlgorithmInput, stamp: u64) {
        if let Some(state) = self.own.numbered(place.hash, place.id) {
            state.refund(ask, stamp);
        }
    }

    /// Forgets what a key has taken. It stays at its place, where receipts look for it, until that is collected.
    pub(super) fn forget(&mut self, key_hash: &KeyHash<'_>, span: CounterKind) {
        if let Some((_, state)) = self.own.get_mut(key_hash.hash, key_hash.subject, span) {
            state.clear();
        }
    }

    /// Takes from a count that others share.
    fn share(&mut self, slot: u16, ask: &AlgorithmInput, op: WriteOp) -> Outcome {
        let hash = self.shared_hash(slot, ask.span);
        let (has_room, arithmetic) = (!self.shared.is_full(), self.arithmetic);
        match self.shared.get_mut(hash, &slot, ask.span) {
            Some((_, count)) if count.counts(ask) => count.take(ask, op).0,
            // What is in the folded one must not be taken twice.
            _ if self.folded.is_live(slot, ask) => self.folded.take(slot, ask, op),
            Some((_, count)) => count.take(ask, op).0,
            None if has_room => {
                let mut count = Common::new(arithmetic.empty(ask.span.algorithm));
                let (outcome, consumed) = count.take(ask, op);
                if consumed {
                    self.shared.insert(hash, slot, ask.span, count);
                }
                outcome
            }
            None => self.folded.take(slot, ask, op),
        }
    }

    /// Takes from a copy of what the key may have shared so far; gives that if something was taken.
    fn promote_from_shared(&self, slot: u16, ask: &AlgorithmInput, op: WriteOp) -> (Outcome, Option<State>) {
        let shared = self.shared.get(self.shared_hash(slot, ask.span), &slot, ask.span);
        if let Some(count) = shared.filter(|count| count.counts(ask)) {
            let mut copy = count.clone();
            let (outcome, consumed) = copy.take(ask, op);
            return (outcome, consumed.then_some(copy.state));
        }
        self.folded.promote_from_shared(slot, ask, op).unwrap_or_else(|| {
            let mut state = self.empty(ask);
            let outcome = op.on(&mut state, ask);
            let consumed = op.consumed(ask, &outcome);
            (outcome, consumed.then_some(state))
        })
    }

    fn collect(&mut self, now: u64) {
        let over = |state: &State, span: CounterKind| state.expires_at(span.window) <= now;
        self.own.collect(STEP, over);
        if self.own.is_full() {
            self.own.collect(SEARCH, over);
        }
        self.shared.collect(STEP, |count, span| over(&count.state, span));
    }

    fn empty(&self, ask: &AlgorithmInput) -> State {
        self.arithmetic.empty(ask.span.algorithm)
    }

    fn slot(&self, key_hash: &KeyHash<'_>) -> u16 {
        u16::try_from(key_hash.hash % u64::from(self.slots)).unwrap_or(0)
    }

    fn shared_hash(&self, slot: u16, span: CounterKind) -> u64 {
        self.seed.hash_one((slot, span))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.own.len()
    }

    /// How many counts there are for those who share, in use and in all.
    #[cfg(test)]
    pub(super) fn sharing(&self) -> (usize, usize) {
        (self.shared.len(), usize::from(self.slots) + self.folded.len())
    }
}
