//! The lease that each thread used last.
//!
//! Calls of a busy key share one lease, on all threads. If each receipt had a new reference, all threads would write to
//! the count of references, twice in each call. So a thread keeps two references: one by which its calls find the lease,
//! and a spare one, which it lends to one receipt at a time.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::{IS_LOOM, Lease, NewLease};
use crate::clock::Moment;
use crate::request::{CountedReply, LeaseId, StoreReply};

thread_local! {
    /// The lease of any table.
    static RECENT: Cell<Option<RecentLease>> = const { Cell::new(None) };
}

/// A lease, as the thread has it that uses it.
#[derive(Debug)]
pub(super) struct RecentLease {
    lease: Arc<Lease>,
    spare: Option<Arc<Lease>>,
    /// The number of permits that this thread has left there last, or 0.
    seen: u32,
}

/// The permits of one call that a lease has allowed.
#[derive(Debug)]
pub(crate) struct LeasedPermits {
    pub(crate) remaining: u32,
    /// Microseconds until all permits are free again.
    pub(crate) reset_after: u64,
    /// The time of the decision, in microseconds of the store's clock.
    pub(crate) decided_at: u64,
    pub(crate) id: LeaseId,
    pub(crate) mirror_stamp: u64,
    /// The lease, if the call needs a receipt.
    pub(crate) lease: Option<LeaseReference>,
    /// True for one call of each lease: the first after which fewer than `renew_below` permits are left.
    pub(crate) needs_renewal: bool,
}

impl LeasedPermits {
    /// The reply of the lease, for a call that another thread made.
    pub(crate) fn into_counted(self) -> CountedReply {
        let Self { remaining, reset_after, decided_at: stamp, id, mirror_stamp, .. } = self;
        let reset_after = Duration::from_micros(reset_after);
        CountedReply::from_lease(StoreReply { remaining, reset_after, stamp, ..StoreReply::ALLOWED }, id, mirror_stamp)
    }
}

/// A receipt's reference to the lease that has granted its permits.
#[derive(Clone, Debug)]
pub(crate) struct LeaseReference(
    /// `None` while it is dropped.
    Option<Arc<Lease>>,
);

impl RecentLease {
    pub(super) fn new(lease: Arc<Lease>) -> Self {
        // Under loom each call subtracts first.
        Self { lease, spare: None, seen: if IS_LOOM { u32::MAX } else { 0 } }
    }

    /// Takes the lease that this thread used last. `None` if it has none, or while the thread ends.
    #[inline]
    pub(super) fn take() -> Option<Self> {
        // Under loom all threads of a model are one, and objects must not outlive a run.
        if IS_LOOM { None } else { RECENT.try_with(Cell::take).ok()? }
    }

    /// Keeps this lease as the one that this thread used last.
    #[inline]
    pub(super) fn keep(self) {
        if !IS_LOOM {
            let _ = RECENT.try_with(|recent| recent.set(Some(self)));
        }
    }

    /// Takes permits. The caller has found `now` before the end of the lease.
    #[inline]
    pub(super) fn take_permits(&mut self, cost: u32, now: Moment, needs_receipt: bool) -> Option<LeasedPermits> {
        let left = self.lease.take(cost, &mut self.seen)?;
        let NewLease { remaining, reset_at, store_reset_at, id, mirror_stamp, .. } = self.lease.granted;
        let reset_after = reset_at.micros().saturating_sub(now.micros());
        Some(LeasedPermits {
            remaining: remaining.saturating_add(left),
            reset_after,
            decided_at: store_reset_at.saturating_sub(reset_after),
            id,
            mirror_stamp,
            lease: needs_receipt.then(|| self.reference()),
            needs_renewal: self.lease.needs_renewal(left),
        })
    }

    /// Returns a reference for a receipt: the spare one, or a new one.
    #[inline]
    fn reference(&mut self) -> LeaseReference {
        LeaseReference(Some(self.spare.take().unwrap_or_else(|| Arc::clone(&self.lease))))
    }
}

impl Deref for RecentLease {
    type Target = Arc<Lease>;

    #[inline]
    fn deref(&self) -> &Arc<Lease> {
        &self.lease
    }
}

impl Deref for LeaseReference {
    type Target = Arc<Lease>;

    fn deref(&self) -> &Arc<Lease> {
        self.0.as_ref().expect("a reference that is not dropped")
    }
}

impl Drop for LeaseReference {
    /// Inlined into the drop of each decision, most of which have no lease.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(reference) = self.0.take() {
            return_to_thread(reference);
        }
    }
}

/// Makes a reference the spare one of this thread, if the thread has none and has used the same lease last.
#[inline(never)]
fn return_to_thread(reference: Arc<Lease>) {
    let Some(mut recent) = RecentLease::take() else { return };
    if recent.spare.is_none() && Arc::ptr_eq(&recent.lease, &reference) {
        recent.spare = Some(reference);
    }
    recent.keep();
}
