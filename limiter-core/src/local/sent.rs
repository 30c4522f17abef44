//! The order of a take beside the store, as types that consume each other.
//!
//! 1. The standby limiter reserves the permits, if it is consulted, and then the version of the denial cache is read.
//!    [`Local::begin`] does both at the moment of sending. A call that waits for others of its batch is `Reserved` first,
//!    and `Local::begin_batch` reads the versions.
//! 2. The call is sent. It is a [`Sent`] from then on, which only its reply or its failure consumes.
//! 3. `settle` updates the denial cache by the reply, and the mirror. The caller gets the reply afterwards.
//! 4. `fail` records the failure. The caller gets the error and the reservation afterwards.
//!
//! A `Sent` that is dropped has failed. It refers to its own state, so no other limiter can settle it.

use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::Local;
use super::counter_hash::CounterHash;
use super::denial_cache::CacheVersion;
use super::standby::Standby;
use crate::request::settlement::{self, CounterChange};
use crate::request::sharing::in_memory;
use crate::request::{
    BatchEntryReply, ChargeReply, CountedReply, DecisionReply, OwnedRequest, PerRequest, RefundInfo, Request,
    Settlement, SlottedRequests, StoreFailure, StoreReply, sharing,
};
use crate::{Error, Source};

pub(crate) mod batch;

/// Calls that were sent to the store in one script call, and are neither settled nor failed.
///
/// Dropping it records their failure: a panic or the end of a task loses none.
#[must_use = "its drop is a failure of the store"]
#[derive(Debug)]
pub(crate) struct Sent<L: Deref<Target = Local>, C: SentCalls> {
    local: L,
    calls: C,
    /// False once it is settled or has failed.
    is_open: bool,
}

/// The calls of a [`Sent`], as far as their failure needs them.
pub(crate) trait SentCalls {
    /// The requests of the calls that have no reply.
    fn unanswered(&self) -> impl Iterator<Item = Request<'_>>;

    /// Gives back the permits that the standby limiter has reserved, if no caller gets them with the failure.
    fn give_back(&mut self, standby: &Standby);
}

impl<L: Deref<Target = Local>, C: SentCalls> Sent<L, C> {
    fn new(local: L, calls: C) -> Self {
        Self { local, calls, is_open: true }
    }

    /// Records the failure.
    fn record_failure(&mut self) {
        self.is_open = false;
        self.local.fail(self.calls.unanswered());
    }
}

impl<L: Deref<Target = Local>, C: SentCalls> Drop for Sent<L, C> {
    fn drop(&mut self) {
        if self.is_open {
            self.calls.give_back(&self.local.standby);
            self.record_failure();
        }
    }
}

// One decision by a script call of its own.

/// A decision that was sent.
pub(crate) type SentTake<'a> = Sent<&'a Local, Take<'a>>;

/// The decision of a [`SentTake`].
#[derive(Debug)]
pub(crate) struct Take<'a> {
    requests: SlottedRequests<'a>,
    max_wait: Duration,
    /// Permits that the standby limiter has reserved.
    reservation: Option<DecisionReply>,
    /// The version of the denial cache before the call was sent.
    version: Option<CacheVersion>,
}

impl SentCalls for Take<'_> {
    fn unanswered(&self) -> impl Iterator<Item = Request<'_>> {
        self.requests.requests.iter().copied()
    }

    fn give_back(&mut self, standby: &Standby) {
        if let Some(DecisionReply { reply, .. }) = self.reservation.take() {
            standby.refund(self.requests.requests, reply.stamp);
        }
    }
}

impl Local {
    /// Begins a take, at the moment of sending. `counter` is the hash of the first counter.
    ///
    /// # Errors
    /// The denial of the standby limiter: the store need not be called.
    pub(crate) fn begin<'a>(
        &'a self,
        requests: SlottedRequests<'a>,
        counter: CounterHash,
        max_wait: Duration,
    ) -> Result<SentTake<'a>, StoreReply> {
        let reserved = self.standby.reserve(requests, max_wait)?;
        let reservation = reserved.map(DecisionReply::from);
        Ok(self.begin_reserved(requests, counter, max_wait, reservation))
    }

    /// Begins a take whose reply has a report of each request.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin), with a report of each request.
    pub(crate) fn begin_with_reports<'a>(
        &'a self,
        requests: SlottedRequests<'a>,
        counter: CounterHash,
    ) -> Result<SentTake<'a>, DecisionReply> {
        let mut per_request = PerRequest::default();
        let reserved = self.standby.reserve_each(requests, &mut per_request);
        let with_reports = |reply| DecisionReply::with_reports(reply, per_request);
        let reservation = match reserved {
            Ok(reserved) => reserved.map(with_reports),
            Err(denial) => return Err(with_reports(denial)),
        };
        Ok(self.begin_reserved(requests, counter, Duration::ZERO, reservation))
    }

    fn begin_reserved<'a>(
        &'a self,
        requests: SlottedRequests<'a>,
        counter: CounterHash,
        max_wait: Duration,
        reservation: Option<DecisionReply>,
    ) -> SentTake<'a> {
        let version = self.denials.version_of(counter);
        Sent::new(self, Take { requests, max_wait, reservation, version })
    }

    /// Updates the denial cache and the mirror by the store's reply to one decision.
    fn settle_take(&self, take: &Take<'_>, mut reply: StoreReply) -> CountedReply {
        let requests = take.requests.requests;
        if let (true, [request]) = (reply.allowed, requests) {
            self.denials.update(request, take.version, true, None, None);
        } else if reply.allowed {
            self.denials.invalidate(requests);
        } else if let Some(request) = sharing::lone(requests)
            // A call that waits may be denied a turn that another call gets.
            && take.max_wait.is_zero()
        {
            self.denials.update(request, take.version, false, Some(&reply), None);
        }
        self.standby.follow_blocks(requests, &reply);
        let reservation = take.reservation.as_ref().map(|reservation| &reservation.reply);
        let mirrored = self.standby.reconcile(take.requests, take.max_wait, reservation, &reply);
        // The longer one of two queues.
        let delay = reservation.map_or(Duration::ZERO, |reservation| reservation.delay);
        reply.delay = reply.delay.max(delay);
        CountedReply::reconciled(reply, mirrored)
    }
}

impl SentTake<'_> {
    /// Settles it by the store's reply.
    pub(crate) fn settle(mut self, DecisionReply { reply, per_request }: DecisionReply) -> CountedReply {
        let counted = self.local.settle_take(&self.calls, reply);
        self.is_open = false;
        let per_request = match counted.source {
            // The reports of the store are those of an admission, which the standby limiter denies.
            Source::Standby => {
                per_request.and_then(|_| self.local.peek_with_reports(self.calls.requests.requests).per_request)
            }
            _ => per_request,
        };
        CountedReply { per_request, ..counted }
    }

    /// Records its failure. The caller gets the reservation with the error.
    pub(crate) fn fail(mut self, error: Error) -> StoreFailure {
        self.record_failure();
        StoreFailure { error, reservation: self.calls.reservation.take() }
    }
}

// A decision about one counter that its caller sends and may settle itself.

/// A direct call that was sent.
pub(crate) type SentDirect = Sent<Arc<Local>, DirectTake>;

/// The decision of a [`SentDirect`]. The standby limiter was not consulted, so it has no reservation.
#[derive(Debug)]
pub(crate) struct DirectTake {
    /// One request.
    requests: Arc<[OwnedRequest]>,
    slot: u16,
    version: Option<CacheVersion>,
}

impl SentCalls for DirectTake {
    fn unanswered(&self) -> impl Iterator<Item = Request<'_>> {
        self.requests.iter().map(OwnedRequest::as_request)
    }

    fn give_back(&mut self, _: &Standby) {}
}

impl Local {
    /// Begins a take of one counter by its caller, at the moment of sending. `None` if the standby limiter is consulted:
    /// the worker sends it then.
    pub(crate) fn begin_direct(
        self: &Arc<Self>,
        requests: &Arc<[OwnedRequest]>,
        counter: CounterHash,
        slot: u16,
    ) -> Option<SentDirect> {
        let request = requests.first()?.as_request();
        if self.standby.is_consulted(SlottedRequests { requests: slice::from_ref(&request), slots: &[slot] }) {
            return None;
        }
        let version = self.denials.version_of(counter);
        let take = DirectTake { requests: Arc::clone(requests), slot, version };
        Some(Sent::new(Arc::clone(self), take))
    }
}

impl SentDirect {
    /// Settles it by the store's reply, on its caller's thread.
    pub(crate) fn settle(mut self, reply: &BatchEntryReply) -> CountedReply {
        let DirectTake { requests, slot, version } = &self.calls;
        let requests = [requests[0].as_request()];
        if let Some(charge) = reply.charge() {
            let counted = self.local.settle_charge(&requests, DecisionReply::of_charges(vec![charge], reply.stamp));
            self.is_open = false;
            return counted;
        }
        let reply = reply.reply_for_call(0, requests[0].cost);
        let requests = SlottedRequests { requests: &requests, slots: slice::from_ref(slot) };
        let take = Take { requests, max_wait: Duration::ZERO, reservation: None, version: *version };
        let counted = self.local.settle_take(&take, reply);
        self.is_open = false;
        counted
    }
}

// Charges, which are counted whether they fit or not. No standby limiter is consulted for them.

impl Local {
    /// Settles a charge of the store: it changes the counters, and no mirror may deny it.
    pub(crate) fn settle_charge(&self, requests: &[Request<'_>], reply: DecisionReply) -> CountedReply {
        self.settle_changes(requests, settlement::charges(requests, in_memory), 0, reply)
    }

    /// Settles the change of what a call counts.
    pub(crate) fn settle_settlement(
        &self,
        requests: &[Request<'_>],
        settlement: &Settlement,
        reply: DecisionReply,
    ) -> CountedReply {
        let changes = settlement.changes(requests, in_memory);
        self.settle_changes(requests, changes, settlement.info.mirror_stamp, reply)
    }

    /// Makes the changes of the requests in the mirror, of permits from `mirror_stamp`, but for what the store had no room for.
    fn settle_changes(
        &self,
        requests: &[Request<'_>],
        mut changes: Vec<CounterChange<'_>>,
        mirror_stamp: u64,
        reply: DecisionReply,
    ) -> CountedReply {
        let settled = CountedReply::from_charge(reply, 0);
        for (index, ChargeReply { uncounted, .. }) in settled.charges().iter().enumerate() {
            let request = requests[index];
            // Each request of a counter has the permits for which that had no room.
            if requests[..index].iter().any(|earlier| in_memory(earlier, &request)) {
                continue;
            }
            let mut uncounted = *uncounted;
            for change in changes.iter_mut().filter(|change| in_memory(&change.charged, &request)) {
                let cost = change.charged.cost.saturating_sub(uncounted);
                uncounted -= change.charged.cost - cost;
                change.charged.cost = cost;
            }
        }
        let mirror_stamp = self.standby.change(&changes, mirror_stamp).reply.stamp;
        for (request, charge) in requests.iter().zip(settled.charges()) {
            self.standby.follow_period(request, charge.reset_after);
        }
        self.denials.invalidate(requests);
        CountedReply { mirror_stamp, ..settled }
    }

    /// Returns whether the store may have lost permits. It would refund those of other calls in their place.
    pub(crate) fn is_lost(&self, requests: SlottedRequests<'_>, info: &RefundInfo) -> bool {
        self.standby.may_be_lost(requests, info.mirror_stamp)
    }
}

// Peeks, refunds and resets, which take no permits.

impl Local {
    /// The denial of the standby limiter for a peek, if it is consulted.
    pub(crate) fn peek_denial(&self, requests: SlottedRequests<'_>, with_reports: bool) -> Option<CountedReply> {
        let reply = self.standby.peek_denial(requests)?;
        let reports = with_reports.then(|| self.peek_with_reports(requests.requests));
        let per_request = reports.and_then(|reports| reports.per_request);
        Some(CountedReply::from_standby(DecisionReply { reply, per_request }))
    }

    /// Refunds permits locally if the store may have lost them; `None` if the refund is to be sent.
    pub(crate) fn refund_lost(&self, requests: SlottedRequests<'_>, info: &RefundInfo) -> Option<CountedReply> {
        self.is_lost(requests, info).then(|| {
            self.settle_refund(requests.requests, info);
            CountedReply::from_store(StoreReply::ALLOWED, 0)
        })
    }

    /// Settles a refund. It runs here and not only in the caller, which may have been dropped.
    pub(crate) fn settle_refund(&self, requests: &[Request<'_>], info: &RefundInfo) {
        self.standby.refund_part(requests, info.mirror_stamp, info.max_permits);
        self.denials.invalidate(requests);
    }
}

#[cfg(all(test, feature = "test-util", not(limiter_loom)))]
mod tests;
