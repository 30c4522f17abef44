//! A cache of resolved rules in each thread.
//!
//! A call finds its rule's settings by two look-ups without a lock: the generation of the limiter's rules, and the
//! thread's entry for the rule. Nothing that other threads read is written. A change of the rules has a new generation,
//! so each thread resolves a rule again at its next call. Until then its entry keeps the old settings alive.

use std::cell::RefCell;
use std::sync::Arc;

use crate::rule::{ResolvedRule, UNCACHED};

/// A rule's settings in one generation. A generation belongs to one limiter.
pub(crate) struct CachedSite {
    pub(crate) generation: u64,
    pub(crate) rule: Arc<ResolvedRule>,
}

thread_local! {
    static ENTRIES: RefCell<Vec<Option<CachedSite>>> = const { RefCell::new(Vec::new()) };
}

/// Passes the entry of a position to `read`, if the thread has one of this generation.
#[inline]
pub(crate) fn get<R>(position: u32, generation: u64, read: impl FnOnce(&ResolvedRule) -> R) -> Option<R> {
    let get = |entries: &RefCell<Vec<Option<CachedSite>>>| {
        let entries = entries.borrow();
        let entry = entries.get(usize::try_from(position).ok()?)?.as_ref()?;
        (entry.generation == generation).then(|| read(&entry.rule))
    };
    ENTRIES.try_with(get).ok().flatten()
}

/// Stores an entry. Does nothing while the thread ends.
pub(crate) fn put(position: u32, entry: CachedSite) {
    let Some(position) = usize::try_from(position).ok().filter(|_| position != UNCACHED) else { return };
    let replaced = ENTRIES.try_with(|entries| {
        let mut entries = entries.borrow_mut();
        if entries.len() <= position {
            entries.resize_with(position + 1, || None);
        }
        entries[position].replace(entry)
    });
    // Dropped here, after the borrow.
    drop(replaced);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::RuleId;

    #[test]
    fn an_entry_is_found_by_its_position_and_generation_only() {
        let id = RuleId::new();
        let position = id.position(3);
        assert_eq!(id.position(3), position);
        assert!(RuleId::new().position(1) >= position + 3);
        put(position + 1, CachedSite { generation: 7, rule: Arc::default() });
        let is_found = |position, generation| get(position, generation, |_| ()).is_some();
        assert!(is_found(position + 1, 7));
        assert!(!is_found(position + 1, 8) && !is_found(position, 7) && !is_found(UNCACHED, 7));
        put(UNCACHED, CachedSite { generation: 7, rule: Arc::default() });
        assert!(!is_found(UNCACHED, 7));
    }
}
