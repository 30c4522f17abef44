//! DenialSnapshots that last, which are told again without a lock.
//!
//! A sliding window that denied one permit denies it until the first instant at which it said that it may not, with the
//! same words, as long as nobody takes, gives back or forgets anything in between. Whoever does holds the lock of the
//! count's shard, and strikes the denial out before letting go of it: who asks after that is told nothing here.
//!
//! A slot is read without a lock: its version is odd while it is written or struck out, and another one afterwards.

use std::fmt;

use crate::Algorithm;
use crate::algorithm::{AlgorithmInput, CounterKind, Outcome};
use crate::store::memory::KeyHash;
use crate::sync::{AtomicU64, Ordering, fence};

/// A few denials of each shard.
pub(super) struct DenialSnapshots {
    /// What each slot is of, while its denial is not struck out: few lines, of which most calls need no more.
    tags: Box<[AtomicU64]>,
    slots: Box<[Slot]>,
}

/// Slots of a shard. Loom would try every order of every word.
const SLOTS: usize = if cfg!(all(test, limiter_loom)) { 0 } else { 4 };
/// Longer keys are not kept here.
const KEY_WORDS: usize = 10;

/// On cache lines of its own: who reads one denial does not wait for those who write another.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    version: AtomicU64,
    /// What [`request`] gives.
    request: [AtomicU64; 2],
    /// When it was said, when the permit may be there, and when all are: in microseconds.
    said: [AtomicU64; 3],
    /// What [`pieces`] gives.
    key: [AtomicU64; KEY_WORDS],
}

impl DenialSnapshots {
    pub(super) fn new(shards: usize) -> Self {
        let places = || 0..shards * SLOTS;
        Self { tags: places().map(|_| AtomicU64::new(0)).collect(), slots: places().map(|_| Slot::default()).collect() }
    }

    /// Whether there may be one for what has this hash. If not, there is no need to look at the clock.
    #[inline]
    pub(super) fn may_contain(&self, key_hash: &KeyHash<'_>, cost: u32) -> bool {
        cost == 1 && self.is_tagged(place(key_hash.shard, key_hash.hash), key_hash.hash)
    }

    /// What was said to the same request, if it still holds.
    pub(super) fn get(&self, key_hash: &KeyHash<'_>, ask: &AlgorithmInput) -> Option<Outcome> {
        let slot = self.slots.get(place(key_hash.shard, key_hash.hash))?;
        let request = request(key_hash, ask)?;
        let version = slot.version.load(Ordering::Acquire);
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let same = request == slot.request.each_ref().map(read)
            && pieces(key_hash.subject).zip(&slot.key).all(|(piece, word)| piece == read(word));
        let [said_at, retry_at, reset_at] = slot.said.each_ref().map(read);
        fence(Ordering::Acquire);
        let whole = version.is_multiple_of(2) && slot.version.load(Ordering::Relaxed) == version;
        let holds = whole && same && (said_at..retry_at).contains(&ask.micros);
        holds.then_some(Outcome { allowed: false, remaining: 0, retry_at: Some(retry_at), reset_at, delay: 0 })
    }

    /// Keeps what a count of the key's own has said. Under the lock of its shard.
    pub(super) fn insert(&self, key_hash: &KeyHash<'_>, ask: &AlgorithmInput, outcome: &Outcome) {
        let (false, Some(retry_at), 1, 0) = (outcome.allowed, outcome.retry_at, ask.cost, ask.pending) else { return };
        let place = place(key_hash.shard, key_hash.hash);
        let (Some(slot), Some(tag)) = (self.slots.get(place), self.tags.get(place)) else { return };
        let Some(request) = request(key_hash, ask) else { return };
        let version = slot.version.load(Ordering::Relaxed) | 1;
        slot.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        let said = [ask.micros, retry_at, outcome.reset_at];
        let words = slot.request.iter().chain(&slot.said).chain(&slot.key);
        for (word, value) in words.zip(request.into_iter().chain(said).chain(pieces(key_hash.subject))) {
            word.store(value, Ordering::Relaxed);
        }
        slot.version.store(version.wrapping_add(1), Ordering::Release);
        tag.store(tag_of(key_hash.hash), Ordering::Relaxed);
    }

    /// Strikes out what is known of a key whose count changes. Under the lock of its shard.
    #[inline]
    pub(super) fn invalidate(&self, shard: usize, hash: u64) {
        let place = place(shard, hash);
        if self.is_tagged(place, hash) {
            self.invalidate_at(place);
        }
    }

    #[cold]
    fn invalidate_at(&self, place: usize) {
        if let (Some(slot), Some(tag)) = (self.slots.get(place), self.tags.get(place)) {
            slot.version.store(slot.version.load(Ordering::Relaxed) | 1, Ordering::Release);
            tag.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    fn is_tagged(&self, place: usize, hash: u64) -> bool {
        self.tags.get(place).is_some_and(|tag| tag.load(Ordering::Relaxed) == tag_of(hash))
    }
}

#[inline]
fn place(shard: usize, hash: u64) -> usize {
    // Bits that choose no shard.
    shard * SLOTS + usize::try_from(hash % SLOTS.max(1) as u64).unwrap_or(0)
}

/// Never that of an empty slot.
#[inline]
fn tag_of(hash: u64) -> u64 {
    hash | 1 << 63
}

impl fmt::Debug for DenialSnapshots {
    /// Without what the keys contain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenialSnapshots").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

/// All that an answer depends on beside the key's text, whose length is in it; nothing for what is not kept here.
#[inline]
fn request(key_hash: &KeyHash<'_>, ask: &AlgorithmInput) -> Option<[u64; 2]> {
    let CounterKind { algorithm: Algorithm::SlidingWindow, window } = ask.span else { return None };
    let len = u32::try_from(key_hash.subject.len()).ok().filter(|_| key_hash.subject.len() <= 8 * KEY_WORDS)?;
    Some([window, (u64::from(ask.max) << 32) | u64::from(len)])
}

/// A text as words; two of the same length have the same ones only if they are the same.
#[inline]
fn pieces(text: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = text.as_chunks();
    let rest = (!rest.is_empty()).then(|| match (text.last_chunk(), rest.first_chunk(), rest.last_chunk()) {
        // Reaches back into the word before.
        (Some(end), ..) => u64::from_ne_bytes(*end),
        (None, Some(start), Some(end)) => {
            u64::from(u32::from_ne_bytes(*start)) << 32 | u64::from(u32::from_ne_bytes(*end))
        }
        _ => rest.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte)),
    });
    whole.iter().map(|word| u64::from_ne_bytes(*word)).chain(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_text_tell_it_from_every_other_of_its_length() {
        for len in 1..=8 * KEY_WORDS {
            let text = vec![b'a'; len];
            assert_eq!(pieces(&text).count(), len.div_ceil(8));
            for place in 0..len {
                let mut other = text.clone();
                other[place] = b'b';
                assert!(!pieces(&text).eq(pieces(&other)), "byte {place} of {len}");
            }
        }
    }
}
