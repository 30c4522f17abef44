//! Keys: the identity of a counter, encoded so that no value can forge another key.
//!
//! # Grammar
//!
//! ```text
//! subject = "+"                          ; the key of an empty text, alone
//!         / sequence                     ; up to 200 bytes
//!         / head "+" 64HEXDIG            ; longer: the sequence's first 135 bytes and its SHA-256 (lower case)
//! sequence = text *( "@" part "@" text ) [ "@" part ]
//! text     = *( ALPHA / DIGIT / "-" / "_" / "." / ":" / "/" / escaped )
//! part     = *( ALPHA / DIGIT / "-" / "_" / "." / escaped )
//! escaped  = "%" 2HEXDIG                 ; one byte of UTF-8, upper case
//! ```
//!
//! Texts and parts contain neither mark, so a sequence splits at `@` in one way only: texts are at even positions,
//! parts at odd ones. A part is visible even when it is empty (`user:@`). `{` and `}` are always escaped, so a subject
//! cannot end the hash tag around it. No character needs quoting in a shell. With a secret, a name contains `"+"
//! 32HEXDIG` (lower case) instead of the subject. No other subject has that form: see `store/redis/naming.rs`.
//!
//! A key can be read from a subject with a digest, and so can one from a name with a secret (`encoded`). Pieces that are
//! added to such a key continue its subject as if that were a sequence. The result always has a digest. Its head is that
//! of the subject, which is empty in a name with a secret. `+` occurs in no sequence, so no other key is equal.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

mod buffer;
mod encoded;
mod long_key;
mod template;
mod spring_name;

use buffer::Buffer;
use long_key::LongKey;
pub(crate) use long_key::MAX_OUTLINE_PARTS;
pub(crate) use template::{AddressPrefixes, KeyTemplate, PartKind, TemplatePart};

/// The identity of a counter: static text with values in it. Calls with equal keys share one counter.
///
/// The text is written by the programmer, and the parts may come from users. Each part is delimited and escaped, so
/// that no value can make one key equal to another. Any value works. A key and its values are readable in Redis. If the
/// encoding is longer than 200 bytes, only the first 135 are readable, followed by a SHA-256 digest of the whole. A
/// value is encoded while it is formatted: a long value takes the time of its digest, and no memory.
///
/// `Debug` does not show the contents.
///
/// ```
/// # use limiter_core as rate_limited;
/// use rate_limited::Key;
///
/// // The key of the attribute `key = "user:{user_id}"`.
/// # let user_id = 42;
/// let key = Key::new("user:").part(user_id);
/// assert_ne!(Key::new("user:42"), key);
/// assert_ne!(Key::new("").part("a:b"), Key::new("").part("a").text(":").part("b"));
/// ```
#[derive(Clone)]
pub struct Key {
    /// The encoding so far. If there is a digest, only the readable head.
    head: Buffer,
    /// The digest of the whole encoding, if that is longer than [`MAX_LEN`] or the key was read from a digest.
    long: Option<Box<LongKey>>,
    /// The last piece was a part, so the next piece begins with its end mark.
    in_part: bool,
}

const PART_MARK: &str = "@";
const DIGEST_MARK: char = '+';
/// The greatest length of an encoding, in bytes.
const MAX_LEN: usize = 200;
/// The length of the readable head before a digest, in bytes.
const HEAD_LEN: usize = MAX_LEN - 1 - 64;

impl Key {
    /// Creates a key of static text. Add values by [`part`](Key::part), not by formatting them into the text.
    #[must_use]
    pub fn new(text: impl AsRef<str>) -> Self {
        Self { head: Buffer::EMPTY, long: None, in_part: false }.text(text.as_ref())
    }

    /// Returns whether this text is its own encoding, without escapes and short enough.
    pub(crate) const fn is_encoded(text: &str) -> bool {
        let mut rest = text.as_bytes();
        if rest.is_empty() || rest.len() > MAX_LEN {
            return false;
        }
        while let [byte, tail @ ..] = rest {
            if !is_text_byte(*byte) {
                return false;
            }
            rest = tail;
        }
        true
    }

    /// The key of a static text that has an encoding without a digest. The text is not copied.
    #[inline]
    fn from_static(static_key: &'static StaticKey) -> Self {
        Self { head: Buffer::Static(static_key), long: None, in_part: false }
    }

    /// Adds the `Display` form of a value, delimited from the text around it.
    #[must_use]
    pub fn part(mut self, value: impl Display) -> Self {
        if self.in_part {
            self.push(PART_MARK);
        }
        self.push(PART_MARK);
        self.in_part = true;
        // Only the value's own `Display` can fail. The text that it wrote before stays.
        let _ = write!(EscapeWriter { key: &mut self, is_kept: is_part_byte }, "{value}");
        self
    }

    /// Adds static text, after a part or to the text before.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        if text.is_empty() {
            return self;
        }
        if self.in_part {
            self.push(PART_MARK);
            self.in_part = false;
        }
        let _ = EscapeWriter { key: &mut self, is_kept: is_text_byte }.write_str(text);
        self
    }

    fn push(&mut self, encoded: &str) {
        if self.long.is_none() && self.head.len() + encoded.len() <= MAX_LEN {
            self.head.push(encoded);
        } else {
            self.push_long(encoded);
        }
    }

    #[cold]
    fn push_long(&mut self, encoded: &str) {
        if let Some(long) = &mut self.long {
            return long.push(self.head.as_str(), encoded);
        }
        let mut long = Box::new(LongKey::of_sequence(self.head.as_str()));
        long.push("", encoded);
        self.head.push(&encoded[..encoded.len().min(HEAD_LEN)]);
        self.head.truncate(HEAD_LEN);
        self.long = Some(long);
    }

    /// Returns whether the head is the whole encoding.
    #[inline]
    fn is_whole(&self) -> bool {
        self.long.is_none() && self.head.len() > 0
    }

    /// The encoding. It is borrowed, unless the key is empty or has a digest.
    #[inline(always)]
    pub(crate) fn encoding(&self) -> Cow<'_, [u8]> {
        let head = self.head.as_bytes();
        if self.long.is_none() && !head.is_empty() { Cow::Borrowed(head) } else { Cow::Owned(self.encode()) }
    }

    #[cold]
    fn encode(&self) -> Vec<u8> {
        self.subject().to_string().into_bytes()
    }

    /// Returns the encoding, and the hash of a counter of this kind as [`counter_hash`](Self::counter_hash) does.
    #[inline(always)]
    pub(crate) fn hashed_encoding(&self, seed: &impl BuildHasher, kind: impl Hash) -> (Cow<'_, [u8]>, u64) {
        let (encoding, key_hash) = match (&self.head, &self.long) {
            // It is the whole encoding.
            (Buffer::Static(static_key), _) => (Cow::Borrowed(static_key.encoding().as_bytes()), static_key.hash(seed)),
            (head, None) if head.len() > 0 => (Cow::Borrowed(head.as_bytes()), hash_pieces(seed, head.as_bytes(), &[])),
            _ => self.encode_and_hash(seed),
        };
        (encoding, seed.hash_one((key_hash, kind)))
    }

    /// Returns the encoding and the hash of an empty or a long key. The digest is computed once for both.
    #[cold]
    fn encode_and_hash(&self, seed: &impl BuildHasher) -> (Cow<'_, [u8]>, u64) {
        let long = self.long.as_ref().map(|long| Box::new(long.finished()));
        let key = Self { head: self.head.clone(), long, in_part: self.in_part };
        (Cow::Owned(key.encode()), key.hash_of_key(seed))
    }

    /// Returns the hash of this key's counter of a kind, by the seed of the process. All tables of the process find a
    /// counter by it.
    #[inline]
    pub(crate) fn counter_hash(&self, seed: &impl BuildHasher, kind: impl Hash) -> u64 {
        seed.hash_one((self.hash_of_key(seed), kind))
    }

    /// Returns the hash of the key alone, by the seed of the process. A long key is not encoded for it.
    #[inline]
    pub(crate) fn hash_of_key(&self, seed: &impl BuildHasher) -> u64 {
        match (&self.head, &self.long) {
            (Buffer::Static(static_key), _) => static_key.hash(seed),
            (head, None) => hash_pieces(seed, head.as_bytes(), &[]),
            (head, Some(long)) => hash_pieces(seed, head.as_bytes(), &long.digest_bytes()),
        }
    }

    #[cold]
    fn has_equal_encoding(&self, other: &Self) -> bool {
        self.encode() == other.encode()
    }

    /// The encoding by the grammar of this module: 1 to 200 bytes.
    pub(crate) fn subject(&self) -> EncodedKey<'_> {
        EncodedKey(self)
    }
}

/// Returns the hash of a head and a digest. A key without a digest has an empty one.
#[inline(always)]
fn hash_pieces(seed: &impl BuildHasher, head: &[u8], digest: &[u8]) -> u64 {
    let mut hasher = seed.build_hasher();
    hasher.write(head);
    if !digest.is_empty() {
        hasher.write(digest);
    }
    hasher.finish()
}

/// Returns whether a part keeps this byte unescaped: letters, digits, `-`, `_` and `.`.
const fn is_part_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Returns whether a text keeps this byte unescaped: the bytes of parts, `:` and `/`.
const fn is_text_byte(byte: u8) -> bool {
    is_part_byte(byte) || matches!(byte, b':' | b'/')
}

/// A writer into a key that escapes all bytes except those that `is_kept` accepts.
struct EscapeWriter<'a, F> {
    key: &'a mut Key,
    is_kept: F,
}

impl<F: Fn(u8) -> bool> Write for EscapeWriter<'_, F> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let mut rest = text;
        while let Some(kept_len) = rest.bytes().position(|byte| !(self.is_kept)(byte)) {
            self.key.push(&rest[..kept_len]);
            let Some(character) = rest[kept_len..].chars().next() else { break };
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                let escaped = [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                self.key.push(std::str::from_utf8(&escaped).unwrap_or_default());
            }
            rest = &rest[kept_len + character.len_utf8()..];
        }
        self.key.push(rest);
        Ok(())
    }
}

/// The `Display` form of a key's encoding, for stores only.
#[derive(Clone, Copy)]
pub(crate) struct EncodedKey<'a>(&'a Key);

impl Display for EncodedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.head.as_str())?;
        match &self.0.long {
            None if self.0.head.len() == 0 => f.write_char(DIGEST_MARK),
            None => Ok(()),
            Some(long) => long.write_digest(f),
        }
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (&self.long, &other.long) {
            (None, None) => self.head == other.head,
            (Some(_), Some(_)) => self.has_equal_encoding(other),
            _ => false,
        }
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.encoding().hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

// A key without values, whose encoding and hash are computed once.

/// A key of static text, for a `static`. The text is examined at compile time and hashed by the first call.
#[derive(Debug)]
pub struct StaticKey {
    text: &'static str,
    /// The text is its own encoding.
    is_encoded: bool,
    key: OnceLock<Key>,
    /// The encoding of a text that needs escapes; `None` for an empty text or one that needs a digest.
    escaped: OnceLock<Option<Box<str>>>,
    /// The hash by the seed of this process; 0 before the first call.
    hash: AtomicU64,
}

impl StaticKey {
    /// Creates a static key. Its caches are empty.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        Self {
            text,
            is_encoded: Key::is_encoded(text),
            key: OnceLock::new(),
            escaped: OnceLock::new(),
            hash: AtomicU64::new(0),
        }
    }

    /// The key, which refers to this text if that has an encoding without a digest.
    #[inline]
    pub(crate) fn key(&'static self) -> &'static Key {
        self.key.get_or_init(|| {
            if self.is_encoded || self.escaped().is_some() { Key::from_static(self) } else { Key::new(self.text) }
        })
    }

    /// The encoding of the key.
    #[inline]
    fn encoding(&self) -> &str {
        if self.is_encoded { self.text } else { self.escaped().unwrap_or_default() }
    }

    /// Returns the hash of the encoding by the seed of the process. The first call computes it. Concurrent first calls
    /// compute the same value.
    #[inline]
    fn hash(&self, seed: &impl BuildHasher) -> u64 {
        match self.hash.load(Ordering::Relaxed) {
            0 => {
                let hash = hash_pieces(seed, self.encoding().as_bytes(), &[]);
                self.hash.store(hash, Ordering::Relaxed);
                hash
            }
            hash => hash,
        }
    }

    #[cold]
    fn escaped(&self) -> Option<&str> {
        let escape = || Some(Key::new(self.text)).filter(Key::is_whole).map(|key| key.head.as_str().into());
        self.escaped.get_or_init(escape).as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn subject(key: &Key) -> String {
        key.subject().to_string()
    }

    /// The stores in memory find a counter by one of the two, and the tables of a process by the other.
    #[test]
    fn an_encoding_has_the_hash_of_its_counter() {
        static STATIC: StaticKey = StaticKey::new("getId");
        let long = Key::new("user:").part("a".repeat(300));
        let digest = |key: &str| Key::from_encoded(key).expect("an encoded key");
        let read = digest(&long.encoded());
        let hmac = digest(&format!("+{}", "0a".repeat(16)));
        let keys = [STATIC.key().clone(), Key::new(""), Key::new("a").part(7), long, read, hmac];
        let seed = foldhash::fast::FixedState::with_seed(7);
        for key in keys {
            let (encoding, hash) = key.hashed_encoding(&seed, 3_u8);
            assert_eq!((&*encoding, hash), (key.encoded().as_bytes(), key.counter_hash(&seed, 3_u8)));
        }
    }

    #[test]
    fn encodes_by_the_grammar() {
        let cases = [
            (Key::new("getId"), "getId"),
            (Key::new(""), "+"),
            (Key::new("").part(""), "@"),
            (Key::new("user:").part(42), "user:@42"),
            (Key::new("user:").part(""), "user:@"),
            (Key::new("").part("acme").text("/").part(7), "@acme@/@7"),
            (Key::new("").part("a").part("b"), "@a@@b"),
            (Key::new("a").part(1).text(""), "a@1"),
            (Key::new("a").text("b"), "ab"),
            (Key::new("{x}@%"), "%7Bx%7D%40%25"),
            (Key::new("").part("{}:%@/+ \n\0"), "@%7B%7D%3A%25%40%2F%2B%20%0A%00"),
            (Key::new("").part("é🦀"), "@%C3%A9%F0%9F%A6%80"),
        ];
        for (key, expected) in cases {
            assert_eq!(subject(&key), expected);
        }
    }

    #[test]
    fn long_keys_are_distinct_and_at_most_200_bytes() {
        let mut seen = HashMap::new();
        for len in (190..210).chain([1000, 1_000_000]) {
            for filler in ["a", "é"] {
                let value = filler.repeat(len);
                let subject = subject(&Key::new("user:").part(&value));
                assert!(subject.len() <= MAX_LEN, "{len}: {}", subject.len());
                assert!(subject.starts_with("user:@"));
                assert_eq!(seen.insert(subject, value), None);
            }
        }
        let (long, tail) = ("x".repeat(300), "x".repeat(299) + "y");
        assert_ne!(Key::new("").part(&long), Key::new("").part(&tail));
        assert_eq!(Key::new("").part(&long), Key::new("").part(&long));
        let forged = subject(&Key::new("").part(&long));
        assert_ne!(subject(&Key::new(&forged)), forged, "a digest cannot be spelled out");
    }

    /// The values are 20 MB long, and 200 kB of which every byte is escaped. Both are hashed while they are formatted.
    #[test]
    fn a_long_value_takes_no_memory() {
        struct Repeated(String, usize);
        impl Display for Repeated {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (0..self.1).try_for_each(|_| f.write_str(&self.0))
            }
        }
        let values = [Repeated("a".repeat(1_000_000), 20), Repeated("{".repeat(1_000), 200)];
        for value in values {
            let key = Key::new("user:").part(&value);
            assert_eq!(subject(&key).len(), MAX_LEN);
            assert!(key.head.capacity() <= 2 * MAX_LEN, "{} bytes", key.head.capacity());
        }
    }

    /// The pieces contain all marks and escapes.
    #[test]
    fn different_sequences_of_texts_and_parts_have_different_keys() {
        let pieces = ["", "a", "@", "%", "%40", "{", "}", ":", "+", "a@b", "\u{0}"];
        let mut seen: HashMap<String, Vec<(char, &str)>> = HashMap::new();
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    let keys = [
                        (Key::new(first).part(second).text(third), vec![('t', first), ('p', second), ('t', third)]),
                        (Key::new(first).part(second).part(third), vec![('t', first), ('p', second), ('p', third)]),
                        (
                            Key::new("").part(first).text(second).part(third),
                            vec![('p', first), ('t', second), ('p', third)],
                        ),
                    ];
                    for (key, mut sequence) in keys {
                        sequence.retain(|(kind, piece)| *kind == 'p' || !piece.is_empty());
                        let other = seen.insert(subject(&key), sequence.clone());
                        assert!(other.is_none() || other.as_ref() == Some(&sequence), "{other:?} and {sequence:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn debug_shows_no_contents() {
        assert_eq!(format!("{:?}", Key::new("user:").part("secret")), "Key { .. }");
    }
}
