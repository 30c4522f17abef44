//! Panics of the program's code, which must not end a decision.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the program. Returns false if it panicked.
#[inline]
pub(crate) fn run_contained(run: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(()) => true,
        Err(panic) => {
            // Dropping the payload may panic as well.
            mem::forget(panic);
            false
        }
    }
}
