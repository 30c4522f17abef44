//! The ends of leases: the mirror keeps what was used, and the rest goes back to the store.

use super::EndedLease;
use crate::local::Local;
use crate::local::standby::Standby;
use crate::request::{RefundInfo, Request};
use crate::{Key, Limit};

impl EndedLease {
    /// Updates the mirror, which took all of the permits when the lease was granted.
    ///
    /// The used ones count from now on, because a call may have used them a moment ago.
    pub(crate) fn settle(&self, standby: &Standby) {
        let &Self { ref key, limit, mirror_stamp, used, unused, .. } = self;
        let leased = Request::new(key, limit, used.saturating_add(unused));
        standby.refund_part(&[leased], mirror_stamp, unused);
        if used > 0 {
            standby.restamp(&Request { cost: used, ..leased }, mirror_stamp);
        }
    }
}

impl Local {
    /// Puts permits back into the lease from which they were taken. Returns false if it is no longer in force.
    pub(in crate::local) fn put_back(&self, requests: &[Request<'_>], info: &RefundInfo) -> bool {
        let ([request], Some(id)) = (requests, info.lease()) else { return false };
        let (cost, _) = request.refund_split(info.max_permits);
        self.leases.put_back(&Request { cost, ..*request }, id)
    }

    /// Ends the lease of a counter that is to be reset. Returns its unused permits and the data for their refund, so that the
    /// store can forget them as well.
    pub(crate) fn begin_reset(&self, key: &Key, limit: Limit) -> Option<(u32, RefundInfo)> {
        let ended = self.end_lease_of(key, limit)?;
        (ended.unused > 0).then(|| (ended.unused, RefundInfo::from_lease(ended.id, ended.mirror_stamp)))
    }

    /// Ends the lease of a counter. The `max` of the limit does not matter.
    pub(crate) fn end_lease_of(&self, key: &Key, limit: Limit) -> Option<EndedLease> {
        self.settle_ended(self.leases.end_counter(key, limit))
    }

    /// Updates the mirror by the end of a lease.
    pub(super) fn settle_ended(&self, ended: Option<EndedLease>) -> Option<EndedLease> {
        ended.inspect(|ended| ended.settle(&self.standby))
    }
}
