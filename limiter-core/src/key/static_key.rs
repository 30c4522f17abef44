//! A key without values, which the program has written: what it takes to find its counts is worked out once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::key::Key;

/// The text of such a key, in a static: looked at when compiling, and hashed by its first call.
#[derive(Debug)]
pub struct Constant {
    text: &'static str,
    is_encoded: bool,
    key: OnceLock<Key>,
    /// The encoding of a text that needs escapes; nothing for one that has no encoding beside its digest.
    escaped: OnceLock<Option<Box<str>>>,
    /// By the seed of this process; 0 if it is not known yet.
    hash: AtomicU64,
}

impl Constant {
    /// Of this text, as it is written.
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

    /// The key, which refers to this.
    #[inline]
    pub(crate) fn key(&'static self) -> &'static Key {
        self.key.get_or_init(|| {
            if self.is_encoded || self.escaped().is_some() { Key::of_constant(self) } else { Key::new(self.text) }
        })
    }

    /// What such a key is encoded as.
    #[inline]
    pub(super) fn encoding(&self) -> &str {
        if self.is_encoded { self.text } else { self.escaped().unwrap_or_default() }
    }

    /// The hash of the encoding, by the one function that ever gives it.
    #[inline]
    pub(super) fn hash(&self, hash: impl FnOnce() -> u64) -> u64 {
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
        let escape = || Some(Key::new(self.text)).filter(Key::is_whole).map(|key| key.head().into());
        self.escaped.get_or_init(escape).as_deref()
    }
}
