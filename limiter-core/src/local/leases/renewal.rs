//! The effects of script calls about leases on the denial cache, and renewals.

use std::time::Duration;

use super::LeaseId;
use crate::Limit;
use crate::local::Local;
use crate::local::denial_cache::CacheVersion;
use crate::request::{BatchEntryReply, Request};

/// A renewal that was sent. No call waits for it, so its failure is not recorded.
pub(crate) struct SentRenewal<'a> {
    local: &'a Local,
    request: Request<'a>,
    version: Option<CacheVersion>,
}

/// The effects of a script call on a counter, beside those of its calls. Without leases there are none, the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SideEffects {
    /// The newest stamp of a log with leases, if it is ahead of the clock. The permits of the calls have it. Another
    /// process may return permits until then, so a denial is cached for at most the time of a lease.
    pub(crate) newest: Option<LeaseId>,
    /// The script call has returned unused permits.
    pub(crate) has_returned: bool,
    /// The store has no permit left, and this process keeps none for the next script call.
    pub(crate) is_used_up: bool,
}

impl SideEffects {
    /// Returns the longest time for which a denial is cached, if there is a bound.
    pub(crate) fn longest_denial(self, limit: Limit) -> Option<Duration> {
        self.newest.map(|_| limit.lease_time())
    }

    /// Returns the request that the store denies next, if no permit is left.
    pub(crate) fn next_denied<'k>(self, request: &Request<'k>) -> Option<Request<'k>> {
        self.is_used_up.then_some(Request { cost: 1, ..*request })
    }
}

impl Local {
    /// Begins a renewal, at the moment of sending.
    pub(crate) fn begin_renewal<'a>(&'a self, request: Request<'a>) -> SentRenewal<'a> {
        SentRenewal { local: self, request, version: self.denials.version(&request) }
    }

    /// Returns whether a cached denial shows that the store has no permit left.
    pub(crate) fn is_used_up(&self, request: &Request<'_>) -> bool {
        self.denials.get(&[Request { cost: 1, ..*request }]).is_some()
    }
}

impl SentRenewal<'_> {
    /// Settles it by the store's reply. The mirror has the permits of the lease already.
    pub(crate) fn settle(self, reply: &BatchEntryReply, effects: SideEffects) {
        let Self { local, request, version } = self;
        let has_changed = effects.has_returned || reply.remaining > 0;
        local.update_denials(&request, version, has_changed, effects.next_denied(&request), reply, effects);
    }
}
