//! The identity of a limiter, by which it recognises its own receipts.

use crate::sync::next_id;

/// A number that no other limiter of this process ever has.
///
/// A receipt does not point to its limiter. Each decision would then increment a reference count, in a cache line that
/// all threads write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimiterId(u64);

impl LimiterId {
    /// Returns a new id.
    pub(crate) fn next() -> Self {
        Self(next_id())
    }
}
