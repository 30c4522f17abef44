//! The places of packed counts: many of them are fields of one hash.
//!
//! A place is a function of the name that the count would have as a key of its own, and of the number of hashes. So all
//! processes find it, also those of a store that has become a cluster. `script/lua/packed.lua` reads and writes the fields.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::limit::PackedBuckets;
use crate::store::redis::naming::KeyName;
use crate::store::redis::slot::{COUNT, slot_of_name, slot_of_tag};

/// The length of a field's name: the first half of the digest.
pub(crate) const FIELD_BYTES: usize = 16;
/// The binary logarithm of the number of slots.
const SLOT_BITS: u8 = 14;

/// The place of one count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackedPlace {
    /// The name of the hash. It is in the slot of the count's own key.
    pub(crate) hash: KeyName,
    /// The key of a count that does not fit into a field, such as `rl:{user:@42}10s/18`: no other count has it.
    pub(crate) own: KeyName,
    /// The name of its field.
    pub(crate) field: [u8; FIELD_BYTES],
}

impl PackedPlace {
    /// The place of the count that would have this name without hashes, such as `rl:{user:@42}10s`.
    pub(crate) fn new(name: &[u8], buckets: PackedBuckets) -> Self {
        // Another number of hashes is another count, also within one decision.
        let mut number = itoa::Buffer::new();
        let bits = number.format(buckets.bits()).as_bytes();
        let mut own = KeyName::EMPTY;
        [name, b"/", bits].into_iter().for_each(|part| own.push(part));
        let digest = Sha256::digest(&*own);
        let (mut field, mut bucket) = ([0; FIELD_BYTES], [0; 4]);
        field.copy_from_slice(&digest[..FIELD_BYTES]);
        bucket.copy_from_slice(&digest[FIELD_BYTES..FIELD_BYTES + 4]);
        let bucket = u32::from_be_bytes(bucket) % (buckets.number() >> SLOT_BITS);
        // The subject is between the only braces, behind the prefix and a colon.
        let place_of = |brace: u8| name.iter().position(|byte| *byte == brace).unwrap_or(name.len());
        let (opened, closed) = (place_of(b'{'), place_of(b'}'));
        let span = name.get(closed + 1..).unwrap_or_default();
        let (prefix, tag) = (&name[..opened.saturating_sub(1)], tag_of_slot(slot_of_name(name)));
        let mut hash = KeyName::EMPTY;
        [prefix, b"#", span, b"/", bits, b":{", tag, b"}"].into_iter().for_each(|part| hash.push(part));
        // Writing to it cannot fail.
        let _ = write!(hash, "{bucket:x}");
        Self { hash, own, field }
    }
}

// A short text for each slot.

const TAG_LETTERS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Texts of so many letters are in all slots.
const MAX_TAG_LETTERS: usize = 3;

/// A text of up to three letters, and zeros behind it.
type Tag = [u8; MAX_TAG_LETTERS];

/// Returns the first of the shortest texts that are in a slot.
fn tag_of_slot(slot: u16) -> &'static [u8] {
    static TAGS: OnceLock<Box<[Tag]>> = OnceLock::new();
    let tag: &[u8] = TAGS.get_or_init(find_tags).get(usize::from(slot)).map_or(&[], |tag| tag);
    tag.split(|letter| *letter == 0).next().unwrap_or_default()
}

fn find_tags() -> Box<[Tag]> {
    let mut tags = vec![Tag::default(); COUNT.into()];
    let mut texts = 1;
    for len in 1..=MAX_TAG_LETTERS {
        texts *= TAG_LETTERS.len();
        for number in 0..texts {
            let (mut text, mut rest) = (Tag::default(), number);
            for letter in text[..len].iter_mut().rev() {
                *letter = TAG_LETTERS[rest % TAG_LETTERS.len()];
                rest /= TAG_LETTERS.len();
            }
            let tag = &mut tags[usize::from(slot_of_tag(&text[..len]))];
            if tag[0] == 0 {
                *tag = text;
            }
        }
    }
    tags.into_boxed_slice()
}

// The counts that have moved out, as far as this process knows. They are of interest to the next call alone, which then
// declares two keys at once. Without this knowledge it is sent twice.

/// Counts that are remembered, each by a part of its digest and the calls that may still rely on it.
static MOVED_OUT: OnceLock<Box<[AtomicU64]>> = OnceLock::new();
const MOVED_OUT_COUNTS: usize = 1 << 16;
/// The calls that rely on it, before one is sent as if the count had returned.
const MOVED_OUT_CALLS: u64 = 1000;
/// The bits of an entry that count calls.
const CALLS_MASK: u64 = 0xFFFF;

impl PackedPlace {
    /// The entry of its count, and the part of the digest that it has.
    fn entry<'t>(&self, table: &'t [AtomicU64]) -> Option<(&'t AtomicU64, u64)> {
        let [.., high, low] = self.field;
        let mut digest = [0; 8];
        digest.copy_from_slice(&self.field[..8]);
        let entry = table.get(usize::from(high) << 8 | usize::from(low))?;
        Some((entry, u64::from_be_bytes(digest) & !CALLS_MASK))
    }

    /// Records that the count has moved out.
    pub(crate) fn remember_moved_out(&self) {
        let table = MOVED_OUT.get_or_init(|| (0..MOVED_OUT_COUNTS).map(|_| AtomicU64::new(0)).collect());
        if let Some((entry, digest)) = self.entry(table) {
            entry.store(digest | MOVED_OUT_CALLS, Ordering::Relaxed);
        }
    }

    /// Returns whether the count moved out lately, for one call more. Either answer may be wrong.
    pub(crate) fn has_moved_out(&self) -> bool {
        let Some((entry, found)) = self.remembered() else { return false };
        // A race loses a count of calls at most.
        entry.store(found - 1, Ordering::Relaxed);
        true
    }

    /// The entry and what it has, if calls may rely on it.
    fn remembered(&self) -> Option<(&'static AtomicU64, u64)> {
        let (entry, digest) = self.entry(MOVED_OUT.get()?)?;
        let found = entry.load(Ordering::Relaxed);
        (found & !CALLS_MASK == digest && found & CALLS_MASK > 0).then_some((entry, found))
    }
}

/// The place of a count, as far as this process knows. Counts in different places are decided by different parts of the scripts,
/// so a batch has those of one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KnownPlace {
    /// A key of its own.
    #[default]
    Key,
    /// A field of a hash.
    Field,
    /// A key of its own, which the field names.
    MovedOut,
}

impl KnownPlace {
    /// The place of the count that would have this name without hashes.
    pub(crate) fn of(name: &[u8], buckets: Option<PackedBuckets>) -> Self {
        let Some(buckets) = buckets else { return Self::Key };
        // The digest is not needed while none is known to have moved out.
        let has_moved_out = MOVED_OUT.get().is_some() && PackedPlace::new(name, buckets).remembered().is_some();
        if has_moved_out { Self::MovedOut } else { Self::Field }
    }
}

/// The keys that one script call declares beside those of its hashes. Each refusal adds to it, and has changed nothing.
#[derive(Debug, Default)]
pub(crate) struct DeclaredCounts {
    /// The indices of the requests or entries whose counts have moved out.
    moved_out: RefCell<Vec<usize>>,
    /// No node has two keys of the call, since their slot moves. Counts that grow stay in their hashes.
    is_slot_moving: Cell<bool>,
    refusals: Cell<u8>,
}

/// The refusals of one call, by a server with which it can be decided.
const MAX_REFUSALS: u8 = 8;

impl DeclaredCounts {
    /// Adds the counts that a refusal names. Returns false if there were too many refusals.
    pub(crate) fn add(&self, indices: &[usize]) -> bool {
        self.moved_out.borrow_mut().extend(indices);
        self.refusals.set(self.refusals.get().saturating_add(1));
        self.refusals.get() <= MAX_REFUSALS
    }

    /// Begins anew with the hashes alone, after a refusal of two keys.
    pub(crate) fn retry_without(&self) {
        self.moved_out.borrow_mut().clear();
        self.is_slot_moving.set(true);
        self.refusals.set(0);
    }

    pub(crate) fn is_slot_moving(&self) -> bool {
        self.is_slot_moving.get()
    }

    /// Returns whether the count with this index is declared. `is_likely` if nothing was refused yet.
    pub(crate) fn contains(&self, index: usize, is_likely: bool) -> bool {
        is_likely && !self.is_slot_moving() || self.moved_out.borrow().contains(&index)
    }
}

#[cfg(test)]
mod tests;
