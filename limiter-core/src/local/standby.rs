//! The standby limiter: a memory store in this process that mirrors the permits which the shared store grants.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

#[cfg(all(test, feature = "redis", feature = "test-util", not(limiter_loom)))]
use crate::Source;
use crate::clock::Clock;
use crate::instances::Instances;
use crate::local::recent_failures::{RecentFailure, RecentFailures, Slots};
use crate::overflow::Overflows;
use crate::request::settlement::{self, CounterChange};
use crate::request::{DecisionReply, PerRequest, Request, SlottedRequests, StoreReply, without_blocks};
use crate::store::memory::MemoryStore;
use part::Part;

mod part;

/// The limiter that decides while the store cannot.
///
/// It is also consulted after the store's last failure, for as long as a permit counts. A store that comes back empty
/// would otherwise grant every quota a second time.
///
/// Periods of the calendar end in the mirror as in the store's last reply about them, or else by the wall clock of this
/// process. It is consulted until the end of the period of the last failure.
///
/// The mirror counts `fixed_window` and `sliding_counter` by the log of the sliding window, since the edges of their
/// windows follow the server's clock. Its `remaining`, `retry_after` and `reset_after` for them are those of the log.
///
/// If several instances share a limit, each standby limiter grants at most its share, so that together they stay within
/// the limit. After the failure of a call alone, beside a server that is well, it checks the whole limit. Nothing is
/// written back to the store. The mirror stamps a permit when the store's reply arrives, so its stamp is never older than
/// the store's.
#[derive(Debug)]
pub(crate) struct Standby {
    mirror: MemoryStore,
    clock: Clock,
    recent_failures: RecentFailures,
    instances: Instances,
    /// The time of its creation in a child of `fork`, in microseconds of the clock: it has no record of older permits. 0 in
    /// any other process.
    began_at: u64,
}

/// The options of a standby limiter.
#[derive(Debug)]
pub(crate) struct StandbyConfig {
    /// Keys that have counters of their own.
    pub(crate) max_keys: usize,
    pub(crate) instances: Instances,
    /// Slots of the store's cluster; 1 for a single server.
    pub(crate) slots: u16,
    /// The process is a child of the one that built the limiter.
    pub(crate) is_in_child: bool,
}

impl Standby {
    #[cfg(all(test, feature = "redis", feature = "test-util", not(limiter_loom)))]
    pub(crate) fn new(config: &StandbyConfig, clock: Clock) -> Self {
        Self::with_overflows(config, clock.clone(), Overflows::new(Source::Standby, config.max_keys, clock))
    }

    /// A standby limiter whose mirror adds its overflows to an existing counter.
    pub(crate) fn with_overflows(config: &StandbyConfig, clock: Clock, overflows: Arc<Overflows>) -> Self {
        let began_at = if config.is_in_child { clock.now().micros() } else { 0 };
        let mirror = MemoryStore::mirror(config.max_keys, clock.clone(), overflows);
        Self {
            mirror,
            clock,
            recent_failures: RecentFailures::new(config.slots),
            instances: config.instances.clone(),
            began_at,
        }
    }

    /// Decides by the mirror about a call that the store has failed, with this instance's share of each limit.
    pub(crate) fn decide(&self, requests: &[Request<'_>], max_wait: Duration) -> StoreReply {
        self.decide_by(Part::Share, requests, max_wait)
    }

    /// Decides by the mirror about several requests. Adds the report of each.
    pub(crate) fn decide_each(&self, requests: &[Request<'_>], per_request: &mut PerRequest) -> StoreReply {
        self.decide_each_by(Part::Share, requests, per_request)
    }

    /// Decides by the mirror without taking permits.
    pub(crate) fn peek(&self, requests: &[Request<'_>]) -> StoreReply {
        self.with_part(Part::Share, requests, |requests| self.mirror.peek(requests))
    }

    /// Decides by the mirror about several requests without taking permits. Adds the report of each.
    pub(crate) fn peek_each(&self, requests: &[Request<'_>], per_request: &mut PerRequest) -> StoreReply {
        self.with_part(Part::Share, requests, |requests| self.mirror.peek_each(requests, per_request))
    }

    /// Returns whether each limit is this instance's alone.
    pub(crate) fn has_whole_limits(&self) -> bool {
        self.instances.is_one()
    }

    /// Records permits that the standby limiter did not grant. Returns their stamp.
    pub(crate) fn record(&self, requests: &[Request<'_>]) -> u64 {
        self.mirror.record(requests)
    }

    /// Makes changes of permits from `stamp`. The reply is about this instance's share of each limit.
    pub(crate) fn change(&self, changes: &[CounterChange<'_>], stamp: u64) -> DecisionReply {
        // A child of `fork` has no record of the older permits of its parent.
        let stamp = if stamp >= self.began_at { stamp } else { 0 };
        let charged = settlement::charged(changes);
        let shares = self.parts(Part::Share, &charged);
        let shares: Vec<_> = changes
            .iter()
            .zip(shares.iter())
            .map(|(change, charged)| CounterChange { charged: *charged, ..*change })
            .collect();
        self.mirror.change(&shares, stamp)
    }

    /// Refunds permits that were granted, reserved or recorded at `stamp`.
    pub(crate) fn refund(&self, requests: &[Request<'_>], stamp: u64) {
        self.refund_part(requests, stamp, u32::MAX);
    }

    /// Refunds at most `max_permits` of each request that were granted, reserved or recorded at `stamp`.
    pub(crate) fn refund_part(&self, requests: &[Request<'_>], stamp: u64, max_permits: u32) {
        if stamp >= self.began_at {
            self.mirror.refund_part(requests, stamp, max_permits);
        }
    }

    pub(crate) fn reset(&self, request: &Request<'_>) {
        self.mirror.reset(request);
    }

    /// Follows the blocks of the store, as its reply states them: records one, and ends those of an allowed decision, which
    /// another process may have lifted.
    pub(crate) fn follow_blocks(&self, requests: &[Request<'_>], reply: &StoreReply) {
        if reply.allowed {
            return requests.iter().for_each(|request| self.mirror.forget_block(request));
        }
        if let (true, Some(request), Some(left)) =
            (reply.is_blocked, requests.get(reply.request_index), reply.retry_after)
        {
            self.mirror.record_block(request, left);
        }
    }

    /// Records that the store failed calls at the same moment. The standby limiter is then consulted for their keys.
    pub(crate) fn calls_failed<'r>(&self, requests: impl IntoIterator<Item = Request<'r>>) {
        let now = self.clock.now().ceil_millis();
        requests.into_iter().for_each(|request| self.recent_failures.call_failed(&request, now));
    }
}

impl Standby {
    /// Records that the server of these slots failed, and may have lost their counters.
    pub(crate) fn server_failed(&self, slots: &Slots) {
        self.recent_failures.server_failed(slots, self.clock.now().ceil_millis());
    }

    /// The time of the last failure of a server of this slot, in milliseconds of the clock.
    pub(crate) fn last_server_failure(&self, slot: u16) -> Option<u64> {
        self.recent_failures.last_server_failure(slot)
    }

    /// Lets permits that the mirror took at `stamp` count from now on.
    pub(crate) fn restamp(&self, request: &Request<'_>, stamp: u64) {
        self.mirror.restamp(slice::from_ref(request), stamp);
    }

    /// Returns whether the store may have lost permits that the mirror recorded at `stamp`.
    pub(crate) fn may_be_lost(&self, requests: SlottedRequests<'_>, stamp: u64) -> bool {
        self.recent_failures.has_server_failed_since(requests, stamp / 1000)
    }

    /// Reserves the permits of a call before it is sent to the store; `None` if the standby limiter is not consulted, so
    /// that the store decides alone. The store must allow the call as well.
    ///
    /// # Errors
    /// The denial of the standby limiter. The request is not sent.
    pub(crate) fn reserve(
        &self,
        requests: SlottedRequests<'_>,
        max_wait: Duration,
    ) -> Result<Option<StoreReply>, StoreReply> {
        self.reserve_by(requests, |part, requests| self.decide_by(part, requests, max_wait))
    }

    /// Reserves the permits of a call about several requests, and adds the report of each.
    ///
    /// # Errors
    /// As for [`reserve`](Self::reserve).
    pub(crate) fn reserve_each(
        &self,
        requests: SlottedRequests<'_>,
        per_request: &mut PerRequest,
    ) -> Result<Option<StoreReply>, StoreReply> {
        self.reserve_by(requests, |part, requests| self.decide_each_by(part, requests, per_request))
    }

    fn reserve_by(
        &self,
        requests: SlottedRequests<'_>,
        decide: impl FnOnce(Part, &[Request<'_>]) -> StoreReply,
    ) -> Result<Option<StoreReply>, StoreReply> {
        let Some(failure) = self.recent_failure(requests) else { return Ok(None) };
        // A block holds here too. A denial by this instance's share begins none: the store decides.
        let blocked = self.mirror.blocked(requests.requests, false);
        let reply = blocked.unwrap_or_else(|| decide(Part::after(failure), &without_blocks(requests.requests)));
        if reply.allowed { Ok(Some(reply)) } else { Err(reply) }
    }

    /// Returns the standby limiter's denial, if it is consulted. Reserves nothing.
    pub(crate) fn peek_denial(&self, requests: SlottedRequests<'_>) -> Option<StoreReply> {
        let part = Part::after(self.recent_failure(requests)?);
        let reply = self.with_part(part, requests.requests, |requests| self.mirror.peek(requests));
        (!reply.allowed).then_some(reply)
    }

    /// Updates the mirror by the store's reply. Returns the mirror's stamp of the permits, or 0 if it has none.
    ///
    /// # Errors
    /// The standby limiter's denial, if the store failed after the call was sent. The standby limiter may have granted
    /// the permits to other calls meanwhile.
    pub(crate) fn reconcile(
        &self,
        requests: SlottedRequests<'_>,
        max_wait: Duration,
        reservation: Option<&StoreReply>,
        reply: &StoreReply,
    ) -> Result<u64, StoreReply> {
        match reservation {
            // The whole limit may have been checked for it, and a server has failed since.
            Some(reservation)
                if reply.allowed
                    && !self.has_whole_limits()
                    && self.recent_failures.has_server_failed_since(requests, reservation.stamp / 1000) =>
            {
                self.refund(requests.requests, reservation.stamp);
                let own = self.decide_by(Part::Share, &without_blocks(requests.requests), max_wait);
                self.follow_described_period(requests.requests, reply);
                if own.allowed { Ok(own.stamp) } else { Err(own) }
            }
            // The store's stamp is younger than that of the reservation.
            Some(reservation) if reply.allowed => {
                let stamp = self.mirror.restamp(requests.requests, reservation.stamp);
                self.follow_described_period(requests.requests, reply);
                Ok(stamp)
            }
            Some(reservation) => {
                self.refund(requests.requests, reservation.stamp);
                Ok(0)
            }
            None if reply.allowed => {
                let stamp = self.count_granted(requests, max_wait);
                self.follow_described_period(requests.requests, reply);
                stamp
            }
            None => Ok(0),
        }
    }

    /// Follows the period of the request that a reply describes. It has the end of no other.
    fn follow_described_period(&self, requests: &[Request<'_>], reply: &StoreReply) {
        if let Some(request) = requests.get(reply.request_index) {
            self.follow_period(request, reply.reset_after);
        }
    }

    /// Ends the mirror's period of the calendar with the store's, which another zone may have begun.
    pub(crate) fn follow_period(&self, request: &Request<'_>, reset_after: Duration) {
        if request.limit.calendar_periods().is_some() && !reset_after.is_zero() {
            self.mirror.end_period_after(request, reset_after);
        }
    }

    /// Updates the mirror by identical calls that the store has allowed, summed up in one request without a
    /// reservation.
    ///
    /// Returns the mirror's stamp of all their permits; `None` if the standby limiter is consulted and denies the sum.
    pub(crate) fn reconcile_batch(&self, request: &Request<'_>, slot: u16, reset_after: Duration) -> Option<u64> {
        let requests = SlottedRequests { requests: slice::from_ref(request), slots: &[slot] };
        let stamp = self.count_granted(requests, Duration::ZERO);
        self.follow_period(request, reset_after);
        stamp.ok()
    }

    /// Counts permits that the store has granted. Returns their stamp.
    ///
    /// They come before each look at the failures. So a failure that is recorded later finds the permits in the mirror, and
    /// one that was recorded earlier is found by the look.
    ///
    /// # Errors
    /// The standby limiter's denial, if it is consulted. Nothing is counted then.
    fn count_granted(&self, requests: SlottedRequests<'_>, max_wait: Duration) -> Result<u64, StoreReply> {
        // A denial here is one of the mirror alone, and blocks no key.
        let granted = &*without_blocks(requests.requests);
        let has_whole_limits = self.has_whole_limits();
        let mut own = self.decide_by(Part::OfGranted, granted, max_wait);
        let mut stamp = if own.allowed { own.stamp } else { self.record(&self.parts(Part::OfGranted, granted)) };
        let enough_after = if has_whole_limits { RecentFailure::Server } else { RecentFailure::Calls };
        let mut checked = own.allowed.then_some(enough_after);
        while checked < Some(RecentFailure::Server) {
            let failure = self.recent_failure(requests);
            let Some(part) = failure.filter(|failure| checked < Some(*failure)).map(Part::after) else { break };
            self.refund(granted, stamp);
            if has_whole_limits {
                return Err(own);
            }
            own = self.decide_by(part, granted, max_wait);
            if !own.allowed {
                return Err(own);
            }
            (stamp, checked) = (own.stamp, failure);
        }
        Ok(stamp)
    }

    /// Returns whether the store failed so recently that permits from before the failure may still count.
    pub(crate) fn is_consulted(&self, requests: SlottedRequests<'_>) -> bool {
        self.recent_failure(requests).is_some()
    }

    /// The failure of the store after which permits from before it may still count.
    fn recent_failure(&self, requests: SlottedRequests<'_>) -> Option<RecentFailure> {
        let now = || self.clock.now().floor_millis();
        self.recent_failures.within_window(requests, now, |request| self.mirror.period_start(request))
    }
}

#[cfg(all(test, feature = "redis", feature = "test-util", not(limiter_loom)))]
mod tests;
