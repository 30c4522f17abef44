//! Counters of which only the hash is known.
//!
//! The receipt of a decision has the id of an entry and the hash of its counter, and not the key: most receipts are never
//! used. A call may outlive its window, and its entry may have been removed before its cost is known. What is charged then
//! is in an entry without a name. The first use of the key gives the entry its name.
//!
//! Another key with the same hash would get that entry as well. The hash has 64 bits and a seed of the process.

use super::key_bytes::KeyBytes;
use super::shard::Shard;
use super::{EntryId, KeyHash, WriteOp};
use crate::Key;
use crate::algorithm::{AlgorithmInput, CounterKind, CounterLevel, CounterState};

/// The name of an entry without one. No encoding of a key has its first byte, which no UTF-8 has.
fn placeholder(hash: u64) -> [u8; 9] {
    let mut name = [0xFF; 9];
    name[1..].copy_from_slice(&hash.to_be_bytes());
    name
}

impl Shard {
    /// Records permits in the counter of an entry, also beyond the limit, as many as the counter has room for. Returns that
    /// number, the level afterwards, and whether the key had to use a shared counter.
    pub(super) fn charge_entry(&mut self, entry: EntryId, input: &AlgorithmInput) -> (u32, CounterLevel, bool) {
        let name = placeholder(entry.hash);
        let key_hash = KeyHash { encoding: &name, hash: entry.hash, shard: 0 };
        let counted = input.cost.min(self.read_entry(entry, &key_hash, input, CounterState::room));
        let mut is_shared = false;
        if counted > 0 {
            let index = self.index_of_entry(entry, input.kind);
            let reply = self.apply_at(index, &key_hash, &AlgorithmInput { cost: counted, ..*input }, WriteOp::Record);
            is_shared = reply.shared;
            self.has_nameless |= index.is_none() && reply.id.is_some();
        }
        (counted, self.read_entry(entry, &key_hash, input, CounterState::level), is_shared)
    }

    fn read_entry<R>(
        &mut self,
        entry: EntryId,
        key_hash: &KeyHash<'_>,
        input: &AlgorithmInput,
        read: fn(&CounterState, &AlgorithmInput) -> R,
    ) -> R {
        let index = self.index_of_entry(entry, input.kind);
        match index.and_then(|index| self.exact.get_index_mut(index)) {
            Some((_, state)) => read(state, input),
            None => self.read(key_hash, input, read),
        }
    }

    /// The index of an entry, or of the one that the same counter has got since.
    fn index_of_entry(&self, entry: EntryId, kind: CounterKind) -> Option<usize> {
        self.exact.index_of_id(entry.hash, entry.id).or_else(|| {
            let has_hash = |name: &KeyBytes| {
                let key = str::from_utf8(name.as_bytes()).ok().and_then(|name| Key::from_encoded(name).ok());
                key.is_some_and(|key| key.counter_hash(&self.seed, kind) == entry.hash)
            };
            self.exact.find_by(entry.hash, kind, has_hash)
        })
    }

    /// Returns the index of the key's entry, also of one that has no name yet.
    pub(super) fn find_any(&self, key_hash: &KeyHash<'_>, kind: CounterKind) -> Option<usize> {
        let find_nameless = || self.exact.find(key_hash.hash, &placeholder(key_hash.hash)[..], kind);
        self.find(key_hash, kind).or_else(|| self.has_nameless.then(find_nameless)?)
    }

    /// Gives the entry of a key its name, if it has none yet, and returns its index.
    pub(super) fn name_entry(&mut self, key_hash: &KeyHash<'_>, kind: CounterKind) -> Option<usize> {
        if !self.has_nameless {
            return None;
        }
        self.exact.rename(key_hash.hash, &placeholder(key_hash.hash)[..], kind, key_hash.encoding.into())
    }
}
