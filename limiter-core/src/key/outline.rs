//! The texts and parts of a key of any length, in bounded memory.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::key::hex::write_hex;
use crate::key::{DIGEST_MARK, Key, MAX_LEN, PART_MARK};

/// The encoding of a key in which `+` and a SHA-256 digest replace each piece that is longer than [`MAX_LEN`].
///
/// The outline of a short key is its encoding. Pieces do not contain the mark of a digest, so keys with equal outlines
/// have equal pieces, except for SHA-256 collisions.
#[derive(Clone, Default)]
pub(super) struct Outline {
    /// The pieces so far, without the last one if that is long.
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
            self.text.truncate(self.last_start);
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
    /// A piece longer than 200 bytes is replaced by `+` and its digest. The pieces are not known if the key was read
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

    fn digest(encoded: &str) -> String {
        let mut text = String::new();
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
    fn the_outline_of_a_long_key_has_digests_of_its_long_pieces_only() {
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
