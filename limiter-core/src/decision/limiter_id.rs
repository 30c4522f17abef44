//! Who a receipt is of.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limiter, told from every other of this process for as long as it runs.
///
/// A number, since a pointer to the limiter would be counted by every decision, on a line that all threads then write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimiterId(u64);

impl LimiterId {
    /// One that there was not before.
    pub(crate) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}
