//! What it takes to give permits back.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::decision::limiter_id::LimiterId;
use crate::request::{OwnedRequest, RefundInfo};
use crate::store::memory::EntryId;
use crate::sync::{AtomicBool, Ordering};

/// Good for one refund, by the limiter that gave it; so are its clones together.
///
/// Most receipts are dropped unread. So one of a entry in memory takes nothing from the heap, and little to drop: what a
/// call gives is then not even put together where nobody looks at it.
#[derive(Clone)]
pub(crate) struct Receipt {
    limiter_id: LimiterId,
    taken: RefundTarget,
}

/// What was taken, from where.
#[derive(Clone)]
pub(crate) enum RefundTarget {
    /// Permits of one limit, from the entry of its key in the memory store.
    MemoryEntry { entry: EntryId, cost: u32, stamp: u64, used: UsedFlag },
    /// Whatever was asked for.
    Any(Arc<FullReceipt>),
}

/// A receipt of whatever was asked for.
pub(crate) struct FullReceipt {
    pub(crate) asked: Arc<[OwnedRequest]>,
    pub(crate) granted: RefundInfo,
    used: AtomicBool,
}

impl Receipt {
    /// A receipt of what was taken; none if that is nothing.
    pub(crate) fn new(limiter_id: LimiterId, asked: Arc<[OwnedRequest]>, granted: RefundInfo) -> Option<Self> {
        let takes = asked.iter().any(|asked| asked.as_request().cost > 0);
        takes.then(|| Self {
            limiter_id,
            taken: RefundTarget::Any(Arc::new(FullReceipt { asked, granted, used: AtomicBool::new(false) })),
        })
    }

    /// A receipt of permits from a entry.
    #[inline]
    pub(crate) fn at(limiter_id: LimiterId, entry: EntryId, cost: u32, stamp: u64) -> Option<Self> {
        (cost > 0).then(|| Self {
            limiter_id,
            taken: RefundTarget::MemoryEntry { entry, cost, stamp, used: UsedFlag::default() },
        })
    }

    pub(crate) fn is_of(&self, limiter_id: LimiterId) -> bool {
        self.limiter_id == limiter_id
    }

    /// What is to be given back: only the first who asks is told.
    pub(crate) fn spend(&self) -> Option<&RefundTarget> {
        let flag = match &self.taken {
            RefundTarget::MemoryEntry { used, .. } => used.flag(),
            RefundTarget::Any(whole) => &whole.used,
        };
        (!flag.swap(true, Ordering::AcqRel)).then_some(&self.taken)
    }
}

/// Whether a receipt is used, which its clones share: made when the first of them is, or is used.
#[derive(Default)]
pub(crate) struct UsedFlag(OnceLock<Arc<AtomicBool>>);

impl UsedFlag {
    fn flag(&self) -> &Arc<AtomicBool> {
        self.0.get_or_init(|| Arc::new(AtomicBool::new(false)))
    }
}

impl Clone for UsedFlag {
    fn clone(&self) -> Self {
        Self(Arc::clone(self.flag()).into())
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("limiter_id", &self.limiter_id).finish_non_exhaustive()
    }
}
