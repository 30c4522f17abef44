//! The numbers of changes that gave permits of counters back.

use std::array;

use crate::sync::{AtomicU64, Ordering};

/// The number of counts. Counters with one count only cause needless checks of the store.
const COUNTS: usize = if cfg!(all(test, limiter_loom)) { 1 } else { 64 };

/// The number of refunds and resets of each counter. Counters share a fixed number of counts.
///
/// A call reads the version of its counters before its check. If the version is another one when the denial has
/// arrived, the check may have missed permits that came back, so the call checks again.
#[derive(Debug)]
pub(crate) struct Changes([AtomicU64; COUNTS]);

impl Default for Changes {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Changes {
    /// Counts a change of a counter.
    pub(crate) fn count(&self, counter: u64) {
        self.count_of(counter).fetch_add(1, Ordering::AcqRel);
    }

    /// The number of changes of these counters so far.
    pub(crate) fn version(&self, counters: impl Iterator<Item = u64>) -> u64 {
        let number = |counter| self.count_of(counter).load(Ordering::Acquire);
        counters.map(number).fold(0, u64::wrapping_add)
    }

    fn count_of(&self, counter: u64) -> &AtomicU64 {
        &self.0[usize::try_from(counter % COUNTS as u64).unwrap_or(0)]
    }
}
