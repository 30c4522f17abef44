//! The local side of each decision of the store: the standby limiter and the denial cache, before and after the script
//! call.
//!
//! Single calls and batches take the same steps. Before the call: `reserve` permits in the standby limiter, if it is
//! consulted, and read the `cache_version`. After the reply: update the denial cache, then record the admission in the
//! mirror, or release the reservation.

use std::time::Duration;

use super::pending_call::BatchedCall;
use crate::local::LocalState;
use crate::local::denial_cache::CacheVersion;
use crate::local::standby::{Precheck, Standby};
use crate::request::{
    CountedReply, DecisionReply, LeaseId, PerRequest, RefundInfo, Request, SlottedRequests, StoreReply, sharing,
};
use crate::store::redis::script::reply::BatchEntryReply;

#[derive(Debug)]
pub(crate) struct Reconciler {
    local: LocalState,
}

/// A take that was sent to the store.
pub(crate) struct SentTake<'a> {
    pub(crate) requests: SlottedRequests<'a>,
    pub(crate) max_wait: Duration,
    /// Permits that the standby limiter has reserved.
    pub(crate) reservation: Option<StoreReply>,
    /// The version of the denial cache before the call was sent.
    pub(crate) version: Option<CacheVersion>,
}

/// The effects of a script call on the leases of a counter. Without leases there are none, the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseEffects {
    /// The newest stamp of a log with leases, if it is ahead of the clock. The permits of the calls have it. Another
    /// process may return permits until then, so a denial is cached for at most the time of a lease.
    pub(crate) newest: Option<LeaseId>,
    /// The script call has returned unused permits.
    pub(crate) has_returned: bool,
    /// The store has no permit left, and this process keeps none for the next script call.
    pub(crate) is_used_up: bool,
}

impl LeaseEffects {
    /// Returns the request that the store denies next, if no permit is left.
    fn next_denied<'k>(self, request: &Request<'k>) -> Option<Request<'k>> {
        self.is_used_up.then_some(Request { cost: 1, ..*request })
    }
}

impl Reconciler {
    pub(crate) fn new(local: LocalState) -> Self {
        Self { local }
    }

    fn standby(&self) -> &Standby {
        &self.local.standby
    }

    /// Reserves permits in the standby limiter, if it is consulted; `None` if it is not.
    ///
    /// # Errors
    /// The denial of the standby limiter: the store need not be called.
    pub(crate) fn reserve(
        &self,
        requests: SlottedRequests<'_>,
        max_wait: Duration,
    ) -> Result<Option<StoreReply>, StoreReply> {
        match self.standby().reserve(requests, max_wait) {
            Precheck::Skip => Ok(None),
            Precheck::Reserved(reply) => Ok(Some(reply)),
            Precheck::Denied(reply) => Err(reply),
        }
    }

    /// Reserves permits for a call about several requests, with a report of each.
    ///
    /// # Errors
    /// As for [`reserve`](Self::reserve).
    pub(crate) fn reserve_each(&self, requests: SlottedRequests<'_>) -> Result<Option<DecisionReply>, StoreReply> {
        let mut per_request = PerRequest::default();
        match self.standby().reserve_each(requests, &mut per_request) {
            Precheck::Skip => Ok(None),
            Precheck::Reserved(reply) => Ok(Some(DecisionReply::with_reports(reply, per_request))),
            Precheck::Denied(reply) => Err(reply),
        }
    }

    /// The denial of the standby limiter for a peek, if it is consulted.
    pub(crate) fn peek_denial(&self, requests: SlottedRequests<'_>) -> Option<CountedReply> {
        self.standby().peek_denial(requests).map(CountedReply::from_standby)
    }

    /// Refunds permits locally if the store may have lost them; `None` if the refund is to be sent.
    ///
    /// The store would refund permits of other calls in their place.
    pub(crate) fn refund_lost(&self, requests: SlottedRequests<'_>, info: &RefundInfo) -> Option<CountedReply> {
        let may_be_lost = self.standby().may_be_lost(requests, info.mirror_stamp);
        may_be_lost.then(|| {
            self.complete_refund(requests.requests, info);
            CountedReply::from_store(StoreReply::ALLOWED, 0)
        })
    }

    /// The version of the denial cache. A reply counts only if it was read before the call was sent.
    pub(crate) fn cache_version(&self, request: &Request<'_>) -> Option<CacheVersion> {
        self.local.denials.version(request)
    }

    /// Completes a take with the store's reply.
    pub(crate) fn complete_take(&self, take: &SentTake<'_>, mut reply: StoreReply) -> CountedReply {
        let requests = take.requests.requests;
        if reply.allowed {
            self.local.denials.invalidate(requests);
        } else if let Some(request) = sharing::lone(requests)
            // A call that waits may be denied a turn that another call gets.
            && take.max_wait.is_zero()
        {
            self.local.denials.update(request, take.version, false, Some(&reply), None);
        }
        let mirrored = self.standby().reconcile(take.requests, take.max_wait, take.reservation.as_ref(), &reply);
        // The longer one of two queues.
        let delay = take.reservation.map_or(Duration::ZERO, |reservation| reservation.delay);
        reply.delay = reply.delay.max(delay);
        CountedReply::reconciled(reply, mirrored)
    }

    /// Completes the calls of one batch entry, in their order.
    pub(crate) fn complete_entry(
        &self,
        reply: &BatchEntryReply,
        version: Option<CacheVersion>,
        calls: &[BatchedCall],
        effects: LeaseEffects,
    ) {
        let Some(BatchedCall { call: first, .. }) = calls.first() else { return };
        let request = first.request();
        let granted = calls.len().min(usize::try_from(reply.granted).unwrap_or(usize::MAX));
        let mirror_stamp = self.mirror_together(&request, first.keys().first_slot(), &calls[..granted]);
        let denied = if granted < calls.len() { Some(request) } else { effects.next_denied(&request) };
        self.update_denials(&request, version, granted > 0 || effects.has_returned, denied, reply, effects);
        for (index, BatchedCall { call, .. }) in (0..).zip(calls).filter(|(_, batched)| !batched.call.has_reply()) {
            let reply = reply.reply_for_call(index, request.cost);
            let mirrored = match mirror_stamp {
                Some(stamp) if reply.allowed => Ok(stamp),
                _ => {
                    let reservation = call.reservation.get();
                    let requests = [call.request()];
                    let requests = SlottedRequests { requests: &requests, slots: call.keys().slots() };
                    self.standby().reconcile(requests, Duration::ZERO, reservation.as_ref(), &reply)
                }
            };
            call.reply(Ok(CountedReply::reconciled(reply, mirrored).stamped_at(effects.newest)));
        }
    }

    /// Completes a script call about the leases of a counter, which takes no permits for a call.
    pub(crate) fn complete_renewal(
        &self,
        request: &Request<'_>,
        version: Option<CacheVersion>,
        reply: &BatchEntryReply,
        effects: LeaseEffects,
    ) {
        let has_changed = effects.has_returned || reply.remaining > 0;
        self.update_denials(request, version, has_changed, effects.next_denied(request), reply, effects);
    }

    /// Updates the denial cache by the reply about a counter. `denied` is the request that the reply denies.
    fn update_denials(
        &self,
        request: &Request<'_>,
        version: Option<CacheVersion>,
        has_changed: bool,
        denied: Option<Request<'_>>,
        reply: &BatchEntryReply,
        effects: LeaseEffects,
    ) {
        let denial = denied.map(|denied| reply.reply_for_call(reply.granted, denied.cost));
        let longest = effects.newest.map(|_| request.limit.lease_time());
        self.local.denials.update(&denied.unwrap_or(*request), version, has_changed, denial.as_ref(), longest);
    }

    /// Returns whether a cached denial shows that the store has no permit left.
    pub(crate) fn is_used_up(&self, request: &Request<'_>) -> bool {
        self.local.denials.get(&[Request { cost: 1, ..*request }]).is_some()
    }

    /// Records the admissions of identical calls in the mirror at once. Returns their stamp; `None` if each call has to
    /// be recorded by itself, because the standby limiter is consulted.
    fn mirror_together(&self, request: &Request<'_>, slot: u16, granted: &[BatchedCall]) -> Option<u64> {
        let waiting = granted.iter().map(|batched| &batched.call).filter(|call| !call.has_reply());
        let is_reserved = waiting.clone().any(|call| call.reservation.get().is_some());
        if granted.is_empty() || is_reserved {
            return None;
        }
        self.standby().reconcile_batch(&request.times(waiting.count()), slot)
    }

    /// Completes a refund. It runs here and not only in the caller, which may have been dropped.
    pub(crate) fn complete_refund(&self, requests: &[Request<'_>], info: &RefundInfo) {
        self.standby().refund_part(requests, info.mirror_stamp, info.max_permits);
        self.local.denials.invalidate(requests);
    }

    /// Removes denials of counters that have permits again.
    pub(crate) fn invalidate_denials(&self, requests: &[Request<'_>]) {
        self.local.denials.invalidate(requests);
    }

    /// Records that the store failed these calls at the same time.
    pub(crate) fn record_failures<'r>(&self, requests: impl Iterator<Item = Request<'r>>) {
        self.standby().calls_failed(requests);
    }
}
