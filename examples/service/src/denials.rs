//! Counts of denials: by key, and by rule in shadow mode.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The keys that are counted at a time. A key has at most 200 bytes, whatever its user is called.
const MAX_KEYS: usize = 1000;

/// The counts of denials of this process.
#[derive(Default)]
pub(crate) struct Denials {
    by_key: Mutex<HashMap<CountedKey, u64>>,
    in_shadow: Mutex<BTreeMap<String, u64>>,
}

/// A rule and the user whose calls it denied.
type CountedKey = (String, Option<String>);

impl Denials {
    /// Counts a denial of a key.
    ///
    /// If all places are taken, the key replaces the one with the fewest denials and continues its count. So a key
    /// with many denials is always counted, and its count is at most that much too high (Metwally's space saving).
    pub(crate) fn count(&self, rule: &str, user: Option<&str>) {
        let key = (rule.to_owned(), user.map(str::to_owned));
        let mut counts = lock(&self.by_key);
        let mut count = 0;
        if counts.len() >= MAX_KEYS
            && !counts.contains_key(&key)
            && let Some((least, of_least)) = counts.iter().min_by_key(|(_, count)| **count)
        {
            let least = least.clone();
            count = *of_least;
            counts.remove(&least);
        }
        *counts.entry(key).or_insert(count) += 1;
    }

    /// Returns the keys with the most denials, and their counts.
    pub(crate) fn top(&self, len: usize) -> Vec<(CountedKey, u64)> {
        let mut counts: Vec<_> = lock(&self.by_key).iter().map(|(key, count)| (key.clone(), *count)).collect();
        counts.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.cmp(b)));
        counts.truncate(len);
        counts
    }

    /// Counts a call that a rule in shadow mode would have denied.
    pub(crate) fn count_in_shadow(&self, rule: &str) {
        *lock(&self.in_shadow).entry(rule.to_owned()).or_default() += 1;
    }

    /// Returns the number of calls that a rule in shadow mode would have denied.
    pub(crate) fn in_shadow(&self, rule: &str) -> u64 {
        lock(&self.in_shadow).get(rule).copied().unwrap_or_default()
    }
}

fn lock<T>(counts: &Mutex<T>) -> MutexGuard<'_, T> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}
