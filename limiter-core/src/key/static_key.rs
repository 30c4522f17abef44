//! A key without values, whose encoding and hash are computed once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::key::Key;

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
    pub(super) fn encoding(&self) -> &str {
        if self.is_encoded { self.text } else { self.escaped().unwrap_or_default() }
    }

    /// Returns the hash of the encoding. The first call computes it by `hash`, which must be the same function in all
    /// calls. Concurrent first calls compute the same value.
    #[inline]
    pub(super) fn cached_hash(&self, hash: impl FnOnce() -> u64) -> u64 {
        match self.hash.load(Ordering::Relaxed) {
            0 => {
                let hash = hash();
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
