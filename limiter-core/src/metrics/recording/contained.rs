//! The calls of the recorder, which is code of the program.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::TARGET;
use crate::run::run_contained;

/// Runs code that calls the recorder. Its first panic is logged.
#[inline]
pub(super) fn record(run: impl FnOnce()) {
    static IS_LOGGED: AtomicBool = AtomicBool::new(false);
    if !run_contained(run) && !IS_LOGGED.swap(true, Ordering::Relaxed) {
        run_contained(|| {
            tracing::error!(target: TARGET, "the recorder of metrics panicked; the decision stands");
        });
    }
}
