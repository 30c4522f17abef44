//! The duration of a call to a shared store.

use std::time::Instant;

use super::{IS_ON, store_called};

/// The label `op` of a call to a shared store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreOp {
    Decide,
    Peek,
    Charge,
    Settle,
    Refund,
    Reset,
}

/// A call to a shared store. A call whose future is dropped is not recorded.
pub(crate) struct StoreCall {
    op: StoreOp,
    /// `None` if no duration is recorded.
    began: Option<Instant>,
}

impl StoreCall {
    pub(crate) fn begin(op: StoreOp) -> Self {
        Self { op, began: IS_ON.then(Instant::now) }
    }

    /// Records the time since the begin.
    pub(crate) fn end(self, is_ok: bool) {
        if let Some(began) = self.began {
            store_called(self.op, is_ok, began.elapsed());
        }
    }
}
