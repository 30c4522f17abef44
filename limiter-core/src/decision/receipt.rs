//! The receipt of an allowed call, which a refund needs.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::decision::limiter_id::LimiterId;
use crate::request::{OwnedRequest, RefundInfo};
use crate::store::memory::EntryId;
use crate::sync::{AtomicBool, Ordering};

/// The right to one refund by the limiter that granted the permits. All clones share it.
///
/// Most receipts are dropped unused. So a receipt for an entry of the memory store allocates nothing and is cheap to
/// drop. If no code reads the decision, the compiler can leave the receipt out.
#[derive(Clone)]
pub(crate) struct Receipt {
    limiter_id: LimiterId,
    target: RefundTarget,
}

/// The permits that a refund gives back.
#[derive(Clone)]
pub(crate) enum RefundTarget {
    /// Permits of one limit, from the entry of its key in the memory store.
    MemoryEntry { entry: EntryId, cost: u32, stamp: u64, used: UsedFlag },
    /// Permits of any requests, from any store.
    Any(Arc<FullReceipt>),
}

/// A receipt with copies of the requests.
pub(crate) struct FullReceipt {
    pub(crate) requests: Arc<[OwnedRequest]>,
    pub(crate) refund_info: RefundInfo,
    used: AtomicBool,
}

impl Receipt {
    /// Returns a receipt for these requests; `None` if all of them cost nothing.
    pub(crate) fn new(limiter_id: LimiterId, requests: Arc<[OwnedRequest]>, refund_info: RefundInfo) -> Option<Self> {
        let has_cost = requests.iter().any(|request| request.as_request().cost > 0);
        has_cost.then(|| Self {
            limiter_id,
            target: RefundTarget::Any(Arc::new(FullReceipt { requests, refund_info, used: AtomicBool::new(false) })),
        })
    }

    /// Returns a receipt for permits from an entry of the memory store; `None` for a cost of 0.
    #[inline]
    pub(crate) fn for_memory_entry(limiter_id: LimiterId, entry: EntryId, cost: u32, stamp: u64) -> Option<Self> {
        (cost > 0).then(|| Self {
            limiter_id,
            target: RefundTarget::MemoryEntry { entry, cost, stamp, used: UsedFlag::default() },
        })
    }

    pub(crate) fn belongs_to(&self, limiter_id: LimiterId) -> bool {
        self.limiter_id == limiter_id
    }

    /// Uses the receipt up and returns what to refund; `None` if it or a clone of it was used before.
    pub(crate) fn use_up(&self) -> Option<&RefundTarget> {
        let used = match &self.target {
            RefundTarget::MemoryEntry { used, .. } => used.shared(),
            RefundTarget::Any(receipt) => &receipt.used,
        };
        (!used.swap(true, Ordering::AcqRel)).then_some(&self.target)
    }
}

/// A flag that the clones of a receipt share. It is allocated by the first clone or the first use.
#[derive(Default)]
pub(crate) struct UsedFlag(OnceLock<Arc<AtomicBool>>);

impl UsedFlag {
    fn shared(&self) -> &Arc<AtomicBool> {
        self.0.get_or_init(|| Arc::new(AtomicBool::new(false)))
    }
}

impl Clone for UsedFlag {
    fn clone(&self) -> Self {
        Self(Arc::clone(self.shared()).into())
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("limiter_id", &self.limiter_id).finish_non_exhaustive()
    }
}
