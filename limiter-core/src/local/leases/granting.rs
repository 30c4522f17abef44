//! The worker's part of a lease: the mirror takes its permits before a call can use one.

use std::slice;
use std::time::Duration;

use super::LeaseId;
use super::{EndedLease, LocalGrant, NewLease};
use crate::local::Local;
use crate::local::counter_hash::CounterHash;
use crate::request::{Request, SlottedRequests};

impl Local {
    /// Takes the permits of a call from a lease that has arrived while the call waited. It needs no receipt.
    pub(crate) fn take_leased(&self, request: &Request<'_>, counter: CounterHash) -> Option<LocalGrant> {
        self.leases.take_from(request, || counter, false)
    }

    /// Returns whether a lease of this request could be put in force.
    pub(crate) fn may_lease(&self, request: &Request<'_>, slot: u16) -> bool {
        let requests = SlottedRequests { requests: slice::from_ref(request), slots: &[slot] };
        !self.standby.is_consulted(requests) && self.leases.is_available(request)
    }

    /// Takes all permits of a lease, the cost of the request, in the mirror. Returns their stamp; `None` if the standby
    /// limiter is consulted, so that the lease is to be returned.
    pub(crate) fn mirror_lease(&self, request: &Request<'_>, slot: u16) -> Option<u64> {
        let requests = SlottedRequests { requests: slice::from_ref(request), slots: &[slot] };
        let stamp = self.standby.reconcile_batch(request, slot, Duration::ZERO)?;
        if self.standby.is_consulted(requests) {
            self.standby.refund(requests.requests, stamp);
            return None;
        }
        Some(stamp)
    }

    /// Puts a lease in force. Returns the lease of the same counter that it replaces, which is ended.
    ///
    /// # Errors
    /// The new lease, unused: see [`Leases::install`].
    pub(crate) fn install_lease(&self, lease: NewLease) -> Result<Option<EndedLease>, EndedLease> {
        match self.leases.install(lease) {
            Ok(replaced) => Ok(self.settle_ended(replaced)),
            Err(unused) => {
                unused.settle(&self.standby);
                Err(unused)
            }
        }
    }

    /// Ends a lease when its time has passed. `None` if it was ended or replaced before.
    pub(crate) fn end_lease(&self, request: &Request<'_>, id: LeaseId) -> Option<EndedLease> {
        self.settle_ended(self.leases.end(request, id))
    }
}
