//! References to rules: by name, or by a position in the caches of threads.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::rule::KeyText;

/// A rule of a call. Most calls need its position alone.
pub(crate) trait RuleRef {
    /// The position in the caches of threads.
    fn position(&self) -> u32;

    /// The name in the sets of rules, and the key as written.
    fn name_and_key(&self) -> (&str, KeyText);
}

/// A position in the caches of all threads: of a rule of an annotated function, or of a name.
#[derive(Debug)]
pub(crate) struct RuleId(AtomicU32);

impl RuleId {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(UNASSIGNED))
    }

    /// The position, assigned at the first call together with those of the `count - 1` rules after it.
    pub(crate) fn position(&self, count: u32) -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        match self.0.load(Ordering::Relaxed) {
            UNASSIGNED => {
                let new = NEXT.fetch_add(count, Ordering::Relaxed);
                let assigned = self.0.compare_exchange(UNASSIGNED, new, Ordering::Relaxed, Ordering::Relaxed);
                // Another thread may have assigned one. The new positions then stay unused.
                assigned.map_or_else(|theirs| theirs, |_| new)
            }
            position => position,
        }
    }
}

const UNASSIGNED: u32 = u32::MAX;

/// The position of a rule that no thread caches.
pub(crate) const UNCACHED: u32 = u32::MAX;
