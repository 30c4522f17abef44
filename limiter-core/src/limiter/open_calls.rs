//! Calls of each key that are under way in this process, and a bound for their number.
//!
//! A call that is charged at its end takes nothing before, so a limit alone does not bound how many start at once.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use crate::decision::DecisionContext;
use crate::limiter::Inside;
use crate::rule::{Plan, Planned};
use crate::sync::process::Process;
use crate::sync::{Mutex, Seed, lock, seed};
use crate::{Denied, Key};

/// The number of tables, each under a lock of its own. A power of two.
const TABLES: usize = 16;
/// The places that a table keeps although nothing is in them.
const MIN_CAPACITY: usize = 64;
/// The time after which a call that is one too many should be tried again. Nothing shows when another call ends.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The number of open calls of each key. Keys without one are not in it.
pub(crate) struct OpenCalls {
    /// The process of the calls. A child of `fork` has a copy, whose locks may be held for ever.
    process: Process,
    seed: Seed,
    tables: [Mutex<HashMap<Key, u32, Seed>>; TABLES],
}

/// A call that is under way. It ends when this is dropped.
#[must_use = "the call ends when this is dropped"]
pub struct OpenCall {
    calls: Arc<OpenCalls>,
    key: Key,
}

impl Inside {
    /// Begins a postpaid call of a key, before it is decided. `None` if no limit of the plan is enforced: then nothing bounds
    /// such calls.
    ///
    /// So its check counts the charge of each call that it does not count as open, if calls end after their charge.
    ///
    /// # Errors
    /// The denial of a call beyond `max_open`. It describes the first limit, and the observers get it.
    pub(crate) fn begin_call(&self, plan: &Plan<'_>, key: &Key, max_open: u32) -> Result<Option<OpenCall>, Denied> {
        let context = match &plan.requests {
            Planned::Single { name, request, .. } => DecisionContext::new(name, request),
            Planned::Rules(rules) if rules.denying.is_none() && !rules.enforced.requests.is_empty() => {
                rules.enforced.context()
            }
            _ => return Ok(None),
        };
        let calls = self.open_calls.get_or_init(|| Arc::new(OpenCalls::new()));
        calls.begin(key, max_open).map(Some).ok_or_else(|| {
            let now = Duration::from_micros(self.clock.now().micros());
            self.deny_until(context, now..now + RETRY_AFTER)
        })
    }
}

impl OpenCalls {
    fn new() -> Self {
        let seed = seed();
        let tables = [(); TABLES].map(|()| Mutex::new(HashMap::with_hasher(seed.clone())));
        Self { process: Process::current(), seed, tables }
    }

    /// Begins a call of a key. `None` if `max_open` calls of it are under way.
    fn begin(self: &Arc<Self>, key: &Key, max_open: u32) -> Option<OpenCall> {
        let mut table = lock(self.table(key));
        match table.get_mut(key) {
            Some(open) if *open >= max_open => return None,
            Some(open) => *open += 1,
            None if max_open == 0 => return None,
            None => drop(table.insert(key.clone(), 1)),
        }
        drop(table);
        Some(OpenCall { calls: Arc::clone(self), key: key.clone() })
    }

    fn end(&self, key: &Key) {
        if !self.process.is_this() {
            return;
        }
        let mut table = lock(self.table(key));
        match table.get_mut(key) {
            Some(open) if *open > 1 => *open -= 1,
            _ => drop(table.remove(key)),
        }
        // So a flood of keys leaves no memory behind. Few removals shrink the table, since it keeps a half.
        if table.len() < table.capacity() / 4 && table.capacity() > MIN_CAPACITY {
            let capacity = (table.capacity() / 2).max(MIN_CAPACITY);
            table.shrink_to(capacity);
        }
    }

    fn table(&self, key: &Key) -> &Mutex<HashMap<Key, u32, Seed>> {
        // The table itself uses the other bits of the hash.
        &self.tables[usize::from(self.seed.hash_one(key).to_be_bytes()[3]) % TABLES]
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.calls.end(&self.key);
    }
}

/// The keys are not shown: they may be personal data.
impl Debug for OpenCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCalls").finish_non_exhaustive()
    }
}

impl Debug for OpenCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCall").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_as_many_open_calls_as_its_bound_and_leaves_nothing_behind() {
        let calls = Arc::new(OpenCalls::new());
        let (key, other) = (Key::new("a"), Key::new("b"));
        let mut open: Vec<_> = (0..3).map_while(|_| calls.begin(&key, 2)).collect();
        assert_eq!(open.len(), 2);
        assert!(calls.begin(&other, 1).is_some() && calls.begin(&other, 0).is_none());
        drop(open.pop());
        assert!(calls.begin(&key, 2).is_some());
        drop(open);
        let held: Vec<_> = (0..50_000).filter_map(|number| calls.begin(&Key::new("k:").part(number), 1)).collect();
        assert_eq!(held.len(), 50_000);
        drop(held);
        for table in calls.tables.each_ref().map(lock) {
            assert!(table.is_empty() && table.capacity() <= 4 * MIN_CAPACITY, "{} places", table.capacity());
        }
    }
}
