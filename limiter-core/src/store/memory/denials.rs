//! Denials that last, which are told again without a lock.
//!
//! A sliding window that denied one permit denies it until the first instant at which it said that it may not, with the
//! same words, as long as nobody takes, gives back or forgets anything in between. Whoever does holds the lock of the
//! count's shard, and strikes the denial out before letting go of it: who asks after that is told nothing here.
//!
//! A slot is read without a lock: its version is odd while it is written or struck out, and another one afterwards.

use std::fmt;

use super::Seat;
use crate::Algorithm;
use crate::algorithm::{Ask, Outcome, Span};
use crate::sync::{AtomicU64, Ordering, fence};

/// A few denials of each shard.
pub(super) struct Denials {
    slots: Box<[Slot]>,
}

/// Slots of a shard. Loom would try every order of every word.
const SLOTS: usize = if cfg!(all(test, limiter_loom)) { 0 } else { 4 };
/// Longer keys are not kept here.
const KEY_WORDS: usize = 6;
const WORDS: usize = 6 + KEY_WORDS;

#[derive(Default)]
struct Slot {
    version: AtomicU64,
    /// What [`words`] gives; then when it was said, when the permit may be there, and when all are: in microseconds.
    words: [AtomicU64; WORDS],
}

impl Denials {
    pub(super) fn new(shards: usize) -> Self {
        Self { slots: (0..shards * SLOTS).map(|_| Slot::default()).collect() }
    }

    /// Whether there may be one for what has this hash. If not, there is no need to look at the clock.
    #[inline]
    pub(super) fn may_know(&self, seat: &Seat<'_>, cost: u32) -> bool {
        cost == 1 && self.slot(seat.shard, seat.hash).is_some_and(|slot| slot.is_of(seat.hash))
    }

    /// What was said to the same question, if it still holds.
    pub(super) fn known(&self, seat: &Seat<'_>, ask: &Ask) -> Option<Outcome> {
        let slot = self.slot(seat.shard, seat.hash)?;
        let question = words(seat, ask)?;
        let version = slot.version.load(Ordering::Acquire);
        let mut read = slot.words.iter().map(|word| word.load(Ordering::Relaxed));
        let same = question.iter().all(|word| read.next() == Some(*word));
        let [said_at, retry_at, reset_at] = [read.next()?, read.next()?, read.next()?];
        fence(Ordering::Acquire);
        let whole = version.is_multiple_of(2) && slot.version.load(Ordering::Relaxed) == version;
        let holds = whole && same && (said_at..retry_at).contains(&ask.micros);
        holds.then_some(Outcome { allowed: false, remaining: 0, retry_at: Some(retry_at), reset_at, delay: 0 })
    }

    /// Keeps what a count of the key's own has said. Under the lock of its shard.
    pub(super) fn keep(&self, seat: &Seat<'_>, ask: &Ask, outcome: &Outcome) {
        let (false, Some(retry_at), 1, 0) = (outcome.allowed, outcome.retry_at, ask.cost, ask.pending) else { return };
        let (Some(slot), Some(question)) = (self.slot(seat.shard, seat.hash), words(seat, ask)) else { return };
        let version = slot.version.load(Ordering::Relaxed) | 1;
        slot.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        let said = [ask.micros, retry_at, outcome.reset_at];
        for (word, value) in slot.words.iter().zip(question.into_iter().chain(said)) {
            word.store(value, Ordering::Relaxed);
        }
        slot.version.store(version.wrapping_add(1), Ordering::Release);
    }

    /// Strikes out what is known of a key whose count changes. Under the lock of its shard.
    #[inline]
    pub(super) fn strike_out(&self, shard: usize, hash: u64) {
        if let Some(slot) = self.slot(shard, hash).filter(|slot| slot.is_of(hash)) {
            slot.version.store(slot.version.load(Ordering::Relaxed) | 1, Ordering::Release);
        }
    }

    #[inline]
    fn slot(&self, shard: usize, hash: u64) -> Option<&Slot> {
        // Bits that choose no shard.
        let place = usize::try_from(hash % SLOTS.max(1) as u64).unwrap_or(0);
        self.slots.get(shard * SLOTS + place)
    }
}

impl fmt::Debug for Denials {
    /// Without what the keys contain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denials").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl Slot {
    #[inline]
    fn is_of(&self, hash: u64) -> bool {
        self.words[0].load(Ordering::Relaxed) == hash && self.version.load(Ordering::Relaxed).is_multiple_of(2)
    }
}

/// All that an answer depends on, the key itself among it; nothing for what is not kept here.
#[inline]
fn words(seat: &Seat<'_>, ask: &Ask) -> Option<[u64; 3 + KEY_WORDS]> {
    let Span { algorithm: Algorithm::SlidingWindow, window } = ask.span else { return None };
    let len = u32::try_from(seat.subject.len()).ok()?;
    let mut words = [0; 3 + KEY_WORDS];
    words[..3].copy_from_slice(&[seat.hash, window, (u64::from(ask.max) << 32) | u64::from(len)]);
    let mut pieces = seat.subject.chunks(8);
    for word in &mut words[3..] {
        let Some(piece) = pieces.next() else { break };
        *word = piece.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
    }
    pieces.next().is_none().then_some(words)
}
