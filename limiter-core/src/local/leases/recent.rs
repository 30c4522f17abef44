//! The lease that each thread used last.
//!
//! Calls of a busy key share one lease, on all threads. If each receipt had a reference of its own, its call would change
//! the count of references twice, in a cache line that all threads read. So a thread keeps two references: one by which
//! its calls find the lease, and a spare one, which it lends to one receipt at a time.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use super::{IS_LOOM, Lease};

thread_local! {
    /// The lease of any table.
    static RECENT: Cell<Option<RecentLease>> = const { Cell::new(None) };
}

/// A lease, as the thread has it that uses it.
#[derive(Debug)]
pub(super) struct RecentLease {
    lease: Arc<Lease>,
    spare: Option<Arc<Lease>>,
}

/// A receipt's reference to the lease that has granted its permits.
#[derive(Clone, Debug)]
pub(crate) struct LeaseReference(
    /// `None` while it is dropped.
    Option<Arc<Lease>>,
);

impl RecentLease {
    pub(super) fn new(lease: Arc<Lease>) -> Self {
        Self { lease, spare: None }
    }

    /// Takes the lease that this thread used last. `None` while the thread ends.
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

    /// Returns a reference for a receipt: the spare one, or a new one.
    #[inline]
    pub(super) fn reference(&mut self) -> LeaseReference {
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
    /// Makes it the spare reference of this thread, if that has none and has used the same lease last.
    #[inline]
    fn drop(&mut self) {
        let Some(reference) = self.0.take() else { return };
        let Some(mut recent) = RecentLease::take() else { return };
        if recent.spare.is_none() && Arc::ptr_eq(&recent.lease, &reference) {
            recent.spare = Some(reference);
        }
        recent.keep();
    }
}
