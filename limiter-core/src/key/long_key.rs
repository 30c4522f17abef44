//! The digest of a key whose encoding is not kept as a whole.

use std::borrow::Cow;
use std::fmt::{self, Write};

use sha2::{Digest, Sha256};

use crate::key::{DIGEST_MARK, Key, MAX_LEN, PART_MARK};

/// The digest of a long key, or one that a key was read from.
#[derive(Clone)]
pub(super) struct LongKey {
    digest: KeyDigest,
    /// `None` if the key was read from a digest, or has too many pieces.
    outline: Option<Outline>,
}

#[derive(Clone)]
enum KeyDigest {
    /// The digest of a sequence that is still growing.
    Growing(Sha256),
    Sha256([u8; 32]),
    /// The digest of a key by the secret of `hash_keys`.
    Hmac([u8; 16]),
}

impl LongKey {
    /// Starts the digest of a sequence.
    pub(super) fn of_sequence(start: &str) -> Self {
        let mut outline = Outline::default();
        outline.push(start);
        Self { digest: KeyDigest::Growing(Sha256::new_with_prefix(start)), outline: Some(outline) }
    }

    /// Reads a digest in hex, of a sequence or by a secret.
    pub(super) fn from_hex(hex: &str) -> Option<Self> {
        let digest = match hex.len() {
            64 => KeyDigest::Sha256(parse_hex(hex)?),
            32 => KeyDigest::Hmac(parse_hex(hex)?),
            _ => return None,
        };
        Some(Self { digest, outline: None })
    }

    /// Continues the sequence whose readable head is `head`.
    pub(super) fn push(&mut self, head: &str, encoded: &str) {
        match &mut self.digest {
            KeyDigest::Growing(digest) => digest.update(encoded),
            known => {
                let mut digest = Sha256::new_with_prefix(head);
                let mut mark_and_hex = String::new();
                // Writing to a `String` cannot fail.
                let _ = known.write(&mut mark_and_hex);
                digest.update(mark_and_hex);
                digest.update(encoded);
                *known = KeyDigest::Growing(digest);
            }
        }
        self.outline = self.outline.take().and_then(|outline| outline.extended(encoded));
    }

    /// Returns it with a digest that is computed, for more than one use of it, and without the outline.
    pub(super) fn finished(&self) -> Self {
        let digest = match &self.digest {
            KeyDigest::Growing(digest) => KeyDigest::Sha256(digest.clone().finalize().into()),
            known => known.clone(),
        };
        Self { digest, outline: None }
    }

    /// Returns whether the digest was made with the secret of `hash_keys`.
    pub(super) fn is_hmac(&self) -> bool {
        matches!(self.digest, KeyDigest::Hmac(_))
    }

    /// The bytes of the digest, for a hash. A short one is filled up with zeros.
    pub(super) fn digest_bytes(&self) -> [u8; 32] {
        match &self.digest {
            KeyDigest::Growing(digest) => digest.clone().finalize().into(),
            KeyDigest::Sha256(digest) => *digest,
            KeyDigest::Hmac(digest) => {
                let mut bytes = [0; 32];
                bytes[..digest.len()].copy_from_slice(digest);
                bytes
            }
        }
    }

    /// Writes the mark and the digest in hex.
    pub(super) fn write_digest(&self, out: &mut impl Write) -> fmt::Result {
        self.digest.write(out)
    }

    /// The outline of the sequence, if it is known.
    pub(super) fn outline(&self) -> Option<Cow<'_, str>> {
        self.outline.as_ref().map(Outline::text)
    }
}

impl KeyDigest {
    fn write(&self, out: &mut impl Write) -> fmt::Result {
        out.write_char(DIGEST_MARK)?;
        match self {
            Self::Growing(digest) => write_hex(&digest.clone().finalize(), out),
            Self::Sha256(digest) => write_hex(digest, out),
            Self::Hmac(digest) => write_hex(digest, out),
        }
    }
}

// Digests in hex, in lower case.

/// Writes bytes in hex, in lower case.
pub(super) fn write_hex(bytes: &[u8], out: &mut impl Write) -> fmt::Result {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(HEX[usize::from(digit)])).try_for_each(|digit| out.write_char(digit))
}

/// Parses hex in lower case.
pub(super) fn parse_hex<const N: usize>(hex: &str) -> Option<[u8; N]> {
    if hex.len() != 2 * N || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

// The texts and parts of a key of any length, in bounded memory.

/// The encoding of a key in which each piece that is longer than [`MAX_LEN`] is cut there, with `+` and the SHA-256 digest
/// of the whole piece behind it.
///
/// The outline of a short key is its encoding. Pieces do not contain the mark of a digest, so keys with equal outlines
/// have equal pieces, except for SHA-256 collisions. A long piece keeps its beginning, by which overrides find it.
#[derive(Clone, Default)]
pub(super) struct Outline {
    /// The pieces so far. Of the last one, if that is long, the beginning.
    text: String,
    /// The start of the last piece.
    last_start: usize,
    /// The digest of the last piece, if that is long.
    last_digest: Option<Sha256>,
    marks: usize,
}

/// The greatest number of parts in an outline.
pub(crate) const MAX_OUTLINE_PARTS: usize = 32;

impl Outline {
    /// Adds more of the encoding.
    pub(super) fn push(&mut self, encoded: &str) {
        for (index, content) in encoded.split(PART_MARK).enumerate() {
            if index > 0 {
                self.end_piece();
            }
            self.extend_piece(content);
        }
    }

    /// Adds more of the encoding; `None` if there are more parts than [`MAX_OUTLINE_PARTS`].
    pub(super) fn extended(mut self, encoded: &str) -> Option<Self> {
        self.push(encoded);
        (self.marks <= 2 * MAX_OUTLINE_PARTS).then_some(self)
    }

    /// The text of the outline.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match &self.last_digest {
            None => Cow::Borrowed(&self.text),
            Some(digest) => {
                let mut text = self.text.clone();
                push_digest(digest.clone(), &mut text);
                Cow::Owned(text)
            }
        }
    }

    fn extend_piece(&mut self, content: &str) {
        if let Some(digest) = &mut self.last_digest {
            digest.update(content);
        } else if self.text.len() - self.last_start + content.len() <= MAX_LEN {
            self.text.push_str(content);
        } else {
            let mut digest = Sha256::new_with_prefix(&self.text[self.last_start..]);
            digest.update(content);
            // Encodings are ASCII.
            self.text.push_str(&content[..self.last_start + MAX_LEN - self.text.len()]);
            self.last_digest = Some(digest);
        }
    }

    fn end_piece(&mut self) {
        if let Some(digest) = self.last_digest.take() {
            push_digest(digest, &mut self.text);
        }
        self.text.push_str(PART_MARK);
        self.last_start = self.text.len();
        self.marks += 1;
    }
}

fn push_digest(digest: Sha256, text: &mut String) {
    text.push(DIGEST_MARK);
    // Writing to a `String` cannot fail.
    let _ = write_hex(&digest.finalize(), text);
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

impl Key {
    /// The texts and parts of the key, encoded, with a mark between each two; `None` if they are not known.
    ///
    /// A piece longer than [`MAX_LEN`] is cut there, and `+` and its digest follow. The pieces are not known if the key was read
    /// from a digest, or is longer than 200 bytes and has more than [`MAX_OUTLINE_PARTS`] parts.
    #[inline]
    pub(crate) fn outline(&self) -> Option<Cow<'_, [u8]>> {
        match &self.long {
            None => Some(Cow::Borrowed(self.head.as_bytes())),
            Some(long) => long.outline().map(into_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(key: &Key) -> String {
        String::from_utf8(key.outline().expect("known").into_owned()).expect("ASCII")
    }

    /// The outline of a long piece.
    fn digest(encoded: &str) -> String {
        let mut text = encoded[..200].to_owned();
        push_digest(Sha256::new_with_prefix(encoded), &mut text);
        text
    }

    #[test]
    fn the_outline_of_a_short_key_is_its_encoding() {
        for key in [Key::new("getId"), Key::new("a b").part("é").part(""), Key::new("").part("x".repeat(199))] {
            assert_eq!(outline(&key), key.subject().to_string());
        }
        assert_eq!(outline(&Key::new("")), "");
    }

    #[test]
    fn the_outline_of_a_long_key_has_beginnings_and_digests_of_its_long_pieces_only() {
        for len in [1, 100, 199, 200, 201, 1_000] {
            let value = "x".repeat(len);
            let shown = if len <= 200 { value.clone() } else { digest(&value) };
            for padding in [198, 200, 201, 5_000] {
                let long = "é".repeat(padding);
                let long_shown = digest(&"%C3%A9".repeat(padding));
                let key = Key::new("user:").part(&value).text("/").part(&long).part(42);
                assert_eq!(outline(&key), format!("user:@{shown}@/@{long_shown}@@42"), "{len} {padding}");
                let key = Key::new("user:").part(&long).part(&value);
                assert_eq!(outline(&key), format!("user:@{long_shown}@@{shown}"), "{len} {padding}");
                let key = Key::new(&long).part(&value).text("end");
                assert_eq!(outline(&key), format!("{long_shown}@{shown}@end"), "{len} {padding}");
            }
        }
    }

    #[test]
    fn a_key_with_many_parts_has_no_outline_and_takes_no_memory() {
        let key = (0..100_000).fold(Key::new(""), |key, number| key.part(number));
        assert!(key.outline().is_none());
        let long = "x".repeat(201);
        let parts = |count: usize| (0..count).fold(Key::new(""), |key, _| key.part(&long));
        assert!(parts(MAX_OUTLINE_PARTS).outline().is_some());
        assert!(parts(MAX_OUTLINE_PARTS + 1).outline().is_none());
    }
}
