//! The identity of a lease, in the stamps of permits and the data for their refund.

use crate::Source;
use crate::request::{CountedReply, RefundInfo, StoreReply};

/// The identity of a lease in its counter: the mark of the store's log, and the end of the lease in milliseconds of the
/// store's clock. The end is also the stamp of the lease's permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseId {
    pub(crate) mark: u32,
    pub(crate) end: u64,
}

impl LeaseId {
    /// The stamp of its permits, in microseconds of the store's clock.
    pub(crate) fn stamp(self) -> u64 {
        self.end.saturating_mul(1000)
    }
}

impl CountedReply {
    pub(crate) fn from_lease(reply: StoreReply, id: LeaseId, mirror_stamp: u64) -> Self {
        Self { source: Source::Lease, ..Self::from_store(reply, mirror_stamp).with_lease(id) }
    }

    /// Returns it with the stamp that the store gave the permits, if that is `newest`: the newest stamp of a log with
    /// leases, which is ahead of the clock. A refund by the time of the call would remove permits of an earlier lease.
    #[cfg(feature = "redis")]
    pub(crate) fn stamped_at(self, newest: Option<LeaseId>) -> Self {
        let Some(id) = newest.filter(|_| self.is_store_admission()) else { return self };
        self.with_lease(id)
    }

    /// Returns it with permits that the store stamped at the end of a lease.
    fn with_lease(self, id: LeaseId) -> Self {
        Self { permits_stamp: id.stamp(), log_mark: Some(id.mark), ..self }
    }
}

impl RefundInfo {
    /// The data for permits of a lease that no call has taken. The mirror is reset after their refund.
    pub(crate) fn from_lease(id: LeaseId, mirror_stamp: u64) -> Self {
        Self { source: Source::Lease, log_mark: Some(id.mark), mirror_stamp, ..Self::from_store(id.stamp()) }
    }

    /// The lease from which the permits were taken, or at whose end the store stamped them.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        self.log_mark.map(|mark| LeaseId { mark, end: self.stamp / 1000 })
    }
}
