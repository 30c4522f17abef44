//! The duration of a call to a shared store.

use std::sync::OnceLock;
use std::time::Instant;

use metrics::{Histogram, histogram};

use super::StoreOp;
use super::contained::record;
use super::describe::describe;
use super::recording::error_counters;

/// A call to a shared store. A call whose future is dropped is not recorded.
pub(crate) struct StoreCall {
    op: StoreOp,
    began: Instant,
}

impl StoreCall {
    pub(crate) fn begin(op: StoreOp) -> Self {
        Self { op, began: Instant::now() }
    }

    /// Records the time since the begin.
    pub(crate) fn end(self, is_ok: bool) {
        record(|| {
            error_counters();
            histogram_of(self.op, is_ok).record(self.began.elapsed());
        });
    }
}

fn histogram_of(op: StoreOp, is_ok: bool) -> &'static Histogram {
    static HISTOGRAMS: [[OnceLock<Histogram>; 2]; 4] = [const { [const { OnceLock::new() }; 2] }; 4];
    let (index, op) = match op {
        StoreOp::Decide => (0, "decide"),
        StoreOp::Peek => (1, "peek"),
        StoreOp::Refund => (2, "refund"),
        StoreOp::Reset => (3, "reset"),
    };
    let outcome = if is_ok { "ok" } else { "error" };
    HISTOGRAMS[index][usize::from(is_ok)].get_or_init(|| {
        describe();
        histogram!("rate_limited_store_seconds", "op" => op, "outcome" => outcome)
    })
}
