//! The digest of a key whose encoding is not kept as a whole.

use std::borrow::Cow;
use std::fmt::{self, Write};

use sha2::{Digest, Sha256};

use crate::key::DIGEST_MARK;
use crate::key::hex::{parse_hex, write_hex};
use crate::key::outline::Outline;

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

    /// Returns whether the digest was made with the secret of `hash_keys`.
    pub(super) fn is_hmac(&self) -> bool {
        matches!(self.digest, KeyDigest::Hmac(_))
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
