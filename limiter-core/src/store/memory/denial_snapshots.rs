//! Denials of the memory store, which later calls read without a lock.
//!
//! A sliding window that denies one permit returns the same outcome until its `retry_at`, unless its counter changes.
//! Every change is made under the lock of the shard, and invalidates the denial before the unlock.
//!
//! A slot is a seqlock. Its version is odd while the slot is written or invalid, and increases with each denial.
//! Writers hold the lock of the shard. A reader takes no lock, and discards a snapshot whose version was odd or has
//! changed.

use std::{array, fmt};

use crate::Algorithm;
use crate::algorithm::{AlgorithmInput, CounterKind, Outcome};
use crate::store::memory::KeyHash;
use crate::sync::{AtomicU64, Ordering, fence};

/// The last denials of each shard: an array of seqlocks.
pub(super) struct DenialSnapshots {
    /// The tag of the key of each slot, 0 for an invalid slot. Most calls read no other cache line of this cache.
    tags: Box<[[AtomicU64; SLOTS_PER_SHARD]]>,
    slots: Box<[[Slot; SLOTS_PER_SHARD]]>,
}

/// The number of slots of a shard. Under loom all keys share one.
const SLOTS_PER_SHARD: usize = if IS_LOOM { 1 } else { 4 };
/// The longest key that is cached, in words of 8 bytes. Loom has to try every order of every word.
const MAX_KEY_WORDS: usize = if IS_LOOM { 1 } else { 10 };
const IS_LOOM: bool = cfg!(all(test, limiter_loom));

/// A denial under a version, on cache lines of its own, so that writes to one slot do not slow down readers of another.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    version: AtomicU64,
    /// The words of [`request_words`].
    request: [AtomicU64; 2],
    /// The instants of the denial, `retry_at` and `reset_at`, in microseconds.
    instants: [AtomicU64; 3],
    /// The words of [`key_words`].
    key: [AtomicU64; MAX_KEY_WORDS],
}

impl DenialSnapshots {
    pub(super) fn new(shards: usize) -> Self {
        let tags = || array::from_fn(|_| AtomicU64::new(0));
        Self { tags: (0..shards).map(|_| tags()).collect(), slots: (0..shards).map(|_| Default::default()).collect() }
    }

    /// Returns false if no key with this hash has a denial here, so that the caller need not read the clock.
    #[inline(always)]
    pub(super) fn may_contain(&self, shard: usize, hash: u64) -> bool {
        self.tags[shard][slot_of(hash)].load(Ordering::Relaxed) == tag_of(hash)
    }

    /// Returns the outcome of an earlier denial of the same request, if it is still valid.
    #[inline(always)]
    pub(super) fn get(&self, key_hash: &KeyHash<'_>, input: &AlgorithmInput) -> Option<Outcome> {
        let slot = &self.slots[key_hash.shard][slot_of(key_hash.hash)];
        let [retry_at, reset_at] = slot.read(key_hash.encoding, request_words(key_hash, input)?, input.micros)?;
        Some(Outcome { allowed: false, remaining: 0, retry_at: Some(retry_at), reset_at, delay: 0 })
    }

    /// Stores a denial by an exact counter. The caller holds the lock of the shard.
    pub(super) fn insert(&self, key_hash: &KeyHash<'_>, input: &AlgorithmInput, outcome: &Outcome) {
        let (false, Some(retry_at), 1, 0) = (outcome.allowed, outcome.retry_at, input.cost, input.pending) else {
            return;
        };
        let index = slot_of(key_hash.hash);
        let (slot, tag) = (&self.slots[key_hash.shard][index], &self.tags[key_hash.shard][index]);
        let Some(request) = request_words(key_hash, input) else { return };
        let version = slot.version.load(Ordering::Relaxed) | 1;
        slot.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        let instants = [input.micros, retry_at, outcome.reset_at];
        let words = slot.request.iter().chain(&slot.instants).chain(&slot.key);
        for (word, value) in words.zip(request.into_iter().chain(instants).chain(key_words(key_hash.encoding))) {
            word.store(value, Ordering::Relaxed);
        }
        slot.version.store(version.wrapping_add(1), Ordering::Release);
        tag.store(tag_of(key_hash.hash), Ordering::Relaxed);
    }

    /// Removes the denial of a key whose counter changes. The caller holds the lock of the shard.
    #[inline(always)]
    pub(super) fn invalidate(&self, shard: usize, hash: u64) {
        if self.may_contain(shard, hash) {
            self.invalidate_slot(shard, hash);
        }
    }

    #[cold]
    #[inline(never)]
    fn invalidate_slot(&self, shard: usize, hash: u64) {
        let slot = &self.slots[shard][slot_of(hash)];
        slot.version.store(slot.version.load(Ordering::Relaxed) | 1, Ordering::Release);
        self.tags[shard][slot_of(hash)].store(0, Ordering::Relaxed);
    }
}

impl Slot {
    /// Returns `retry_at` and `reset_at` of the denial of this request, if it is valid at `micros`.
    #[inline(never)]
    fn read(&self, key: &[u8], request: [u64; 2], micros: u64) -> Option<[u64; 2]> {
        let version = self.version.load(Ordering::Acquire);
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let same = request == self.request.each_ref().map(read) && self.has_key(key);
        let [denied_at, retry_at, reset_at] = self.instants.each_ref().map(read);
        fence(Ordering::Acquire);
        let consistent = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        let valid = consistent && same && (denied_at..retry_at).contains(&micros);
        valid.then_some([retry_at, reset_at])
    }

    /// Returns true if the slot has the words of this key. The caller compares the lengths.
    #[inline(always)]
    fn has_key(&self, key: &[u8]) -> bool {
        let (words, rest) = key.as_chunks();
        let has = |index: usize, word| self.key.get(index).is_some_and(|own| own.load(Ordering::Relaxed) == word);
        words.iter().enumerate().all(|(index, word)| has(index, u64::from_ne_bytes(*word)))
            && (rest.is_empty() || has(words.len(), last_word(key, rest)))
    }
}

/// Returns the index of the slot of a hash, by its lowest bits, which do not select the shard.
#[inline(always)]
fn slot_of(hash: u64) -> usize {
    usize::try_from(hash % SLOTS_PER_SHARD as u64).unwrap_or(0)
}

/// Returns the tag of a hash. It is never 0, the tag of an invalid slot. The lowest bit selects the slot.
#[inline(always)]
fn tag_of(hash: u64) -> u64 {
    hash | 1
}

impl fmt::Debug for DenialSnapshots {
    /// Formats the sizes only: keys may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenialSnapshots").field("slots", &(self.slots.len() * SLOTS_PER_SHARD)).finish_non_exhaustive()
    }
}

/// Returns the part of a request beside the key's bytes: the window, `max` and the length of the key. `None` for a
/// request that is not cached.
#[inline]
fn request_words(key_hash: &KeyHash<'_>, input: &AlgorithmInput) -> Option<[u64; 2]> {
    let CounterKind { algorithm: Algorithm::SlidingWindow, window } = input.kind else { return None };
    let len = key_hash.encoding.len();
    (len <= 8 * MAX_KEY_WORDS).then_some([window, (u64::from(input.max) << 32) | len as u64])
}

/// Returns the bytes of a key as words. Two keys of the same length have the same words only if they are equal.
#[inline]
fn key_words(key: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = key.as_chunks();
    let rest = (!rest.is_empty()).then(|| last_word(key, rest));
    words.iter().map(|word| u64::from_ne_bytes(*word)).chain(rest)
}

/// Returns the last word of a key, which has these bytes after its whole words.
#[inline(always)]
fn last_word(key: &[u8], rest: &[u8]) -> u64 {
    match (key.last_chunk(), rest.first_chunk(), rest.last_chunk()) {
        // Overlaps with the word before.
        (Some(end), ..) => u64::from_ne_bytes(*end),
        (None, Some(start), Some(end)) => {
            u64::from(u32::from_ne_bytes(*start)) << 32 | u64::from(u32::from_ne_bytes(*end))
        }
        _ => rest.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_length_that_differ_in_a_byte_have_different_words() {
        for len in 1..=8 * MAX_KEY_WORDS {
            let key = vec![b'a'; len];
            assert_eq!(key_words(&key).count(), len.div_ceil(8));
            let slot = Slot::default();
            slot.key.iter().zip(key_words(&key)).for_each(|(own, word)| own.store(word, Ordering::Relaxed));
            assert!(slot.has_key(&key), "{len} bytes");
            for index in 0..len {
                let mut other = key.clone();
                other[index] = b'b';
                assert!(!key_words(&key).eq(key_words(&other)), "byte {index} of {len}");
                assert!(!slot.has_key(&other), "byte {index} of {len}");
            }
        }
    }
}
