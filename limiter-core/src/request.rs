//! Requests to a store and its replies: the types that the store, the failure policy and the limiter exchange.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::CounterKind;
use crate::block::BlockRef;
use crate::error::{Error, ErrorKind, Source};
use crate::key::Key;
use crate::limit::Limit;
use crate::sync::seed;

pub(crate) mod once;
pub(crate) mod options;
pub(crate) mod settlement;
pub(crate) mod sharing;

use once::ReceiptRefusal;
pub(crate) use options::{CallOptions, CallSettings};
pub(crate) use settlement::Settlement;

/// The most requests of one decision. A script call for more would keep the server from others.
pub(crate) const MAX_REQUESTS: usize = 128;

/// Returns an error if a decision has too many requests. It is a mistake of the program and no failure of the store, so
/// no failure policy applies.
pub(crate) fn check_number_of(requests: usize) -> Result<(), Error> {
    if requests <= MAX_REQUESTS {
        return Ok(());
    }
    let problem = format!(
        "a decision must have at most {MAX_REQUESTS} limits, got {requests}: decide about them in several calls"
    );
    Err(Error::new(ErrorKind::InvalidLimit, problem))
}

/// A request to a store for `cost` permits. Several requests make one decision: all of them or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request<'a> {
    pub(crate) key: &'a Key,
    pub(crate) limit: Limit,
    pub(crate) cost: u32,
    pub(crate) role: Role,
    /// The block that a denial begins.
    pub(crate) block: Option<BlockRef>,
}

/// The role of a request beside others of the same counter in one decision.
///
/// The costs of one lane add up. Several lanes take the permits of a counter together: as many as the one that takes the
/// most of them.
///
/// A request that is observed takes nothing and denies nothing: the decision reports whether it would be allowed. Such
/// requests are the last of a decision. A postpaid request needs its cost to be free, and takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Role(u32);

impl Role {
    /// The role of a request that shares no permits with others.
    pub(crate) const ADDED: Self = Self(0);

    /// The bit of an observed request.
    const OBSERVED: u32 = 1 << 31;
    /// The bit of a postpaid request. The bits below are the lane.
    const POSTPAID: u32 = 1 << 30;

    /// The role of a request for one limit of a rule, each by its position.
    pub(crate) fn of_limit(rule_index: usize, limit_index: usize) -> Self {
        let lane = u32::try_from(rule_index << u8::BITS | limit_index).unwrap_or(u32::MAX);
        Self(lane & !Self::OBSERVED & !Self::POSTPAID)
    }

    /// The role of an observed request of the same lane.
    pub(crate) fn observed(self) -> Self {
        Self(self.0 | Self::OBSERVED)
    }

    pub(crate) fn is_observed(self) -> bool {
        self.0 & Self::OBSERVED != 0
    }

    /// The role of a postpaid request of the same lane.
    fn postpaid(self) -> Self {
        Self(self.0 | Self::POSTPAID)
    }

    pub(crate) fn is_postpaid(self) -> bool {
        self.0 & Self::POSTPAID != 0
    }

    /// The role of such a request whose counter no other lane uses.
    pub(crate) fn without_lane(self) -> Self {
        Self(self.0 & Self::POSTPAID)
    }
}

impl<'a> Request<'a> {
    /// Creates a request whose cost is added to those of others on its counter.
    #[inline]
    pub(crate) fn new(key: &'a Key, limit: Limit, cost: u32) -> Self {
        Self { key, limit, cost, role: Role::ADDED, block: None }
    }
}

impl Request<'_> {
    /// Returns whether its permits may come from a lease. A lease looks at no blocks.
    #[inline]
    pub(crate) fn may_be_leased(&self) -> bool {
        self.block.is_none() && self.limit.may_be_leased()
    }

    /// Returns whether it takes permits of the counter of a key and a limit. The `max` of the limit does not matter.
    pub(crate) fn has_counter(&self, key: &Key, limit: Limit) -> bool {
        CounterKind::from(self.limit) == CounterKind::from(limit) && self.key == key
    }

    /// The hash of its counter, by the seed of this process.
    #[inline]
    pub(crate) fn counter_hash(&self) -> u64 {
        self.key.counter_hash(&seed(), CounterKind::from(self.limit))
    }

    /// The request that needs one permit to be free and takes none: the call is charged once its cost is known.
    pub(crate) fn postpaid(self) -> Self {
        Self { cost: 1, role: self.role.postpaid(), ..self }
    }

    /// The request that counts `cost` permits, if it is postpaid: the cost is known now.
    pub(crate) fn charged(self, cost: u32) -> Self {
        if !self.role.is_postpaid() {
            return self;
        }
        Self { cost, role: Role(self.role.0 & !Role::POSTPAID), ..self }
    }

    /// The permits that it takes, if no other request uses its counter.
    pub(crate) fn own_take(&self) -> u32 {
        if self.role.is_postpaid() { 0 } else { self.cost }
    }

    /// The request with its cost multiplied by `count`.
    pub(crate) fn times(self, count: usize) -> Self {
        Self { cost: u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(self.cost), ..self }
    }
}

/// The requests of a decision that reads no blocks and begins none.
pub(crate) fn without_blocks<'r, 'a>(requests: &'r [Request<'a>]) -> Cow<'r, [Request<'a>]> {
    if requests.iter().all(|request| request.block.is_none()) {
        return Cow::Borrowed(requests);
    }
    requests.iter().map(|request| Request { block: None, ..*request }).collect()
}

/// The requests of one decision, with the slots of their keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlottedRequests<'a> {
    pub(crate) requests: &'a [Request<'a>],
    /// One slot for each request. If it is empty, all are in slot 0, as with a single server.
    pub(crate) slots: &'a [u16],
}

impl<'a> SlottedRequests<'a> {
    /// Requests to a single server.
    #[cfg(test)]
    pub(crate) fn in_slot_0(requests: &'a [Request<'a>]) -> Self {
        Self { requests, slots: &[] }
    }

    /// Each request with its slot.
    pub(crate) fn iter(self) -> impl Iterator<Item = (&'a Request<'a>, u16)> {
        let slot = move |index: usize| self.slots.get(index).copied().unwrap_or(0);
        self.requests.iter().enumerate().map(move |(index, request)| (request, slot(index)))
    }
}

/// A request that owns its key.
#[derive(Clone, Debug)]
pub(crate) struct OwnedRequest {
    key: Key,
    limit: Limit,
    cost: u32,
    role: Role,
    block: Option<BlockRef>,
}

impl OwnedRequest {
    /// Copies requests for a call that another thread decides, and for the call's receipt.
    pub(crate) fn copy_all(requests: &[Request<'_>]) -> Arc<[Self]> {
        requests.iter().map(Self::from).collect()
    }

    /// Copies requests for the receipt of a call that has taken their permits.
    pub(crate) fn copy_taken(requests: &[Request<'_>]) -> Arc<[Self]> {
        let taken = |request: &Request<'_>| match request.role.is_postpaid() {
            true => Self { cost: 0, role: Role(request.role.0 & !Role::POSTPAID), ..Self::from(request) },
            false => Self::from(request),
        };
        requests.iter().map(taken).collect()
    }

    pub(crate) fn as_request(&self) -> Request<'_> {
        Request { key: &self.key, limit: self.limit, cost: self.cost, role: self.role, block: self.block }
    }
}

impl From<&Request<'_>> for OwnedRequest {
    #[inline]
    fn from(&Request { key, limit, cost, role, block }: &Request<'_>) -> Self {
        Self { key: key.clone(), limit, cost, role, block }
    }
}

/// The reply of a store to one decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreReply {
    pub(crate) allowed: bool,
    /// The request that `remaining` and `reset_after` describe: the first that denies, or else the one with the least
    /// permits left.
    pub(crate) request_index: usize,
    pub(crate) remaining: u32,
    /// The time until every request would be allowed; `None` for never.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reset_after: Duration,
    /// The time of the decision, in microseconds of the store's clock: that at which it took the permits.
    pub(crate) stamp: u64,
    /// The time until the turn of an allowed call. Only a leaky bucket gives turns.
    pub(crate) delay: Duration,
    /// The key is blocked until `retry_after` is over.
    pub(crate) is_blocked: bool,
}

impl StoreReply {
    /// An allowed reply without a count. It is also the reply to a refund that is not sent to the store.
    pub(crate) const ALLOWED: Self = Self {
        allowed: true,
        request_index: 0,
        remaining: 0,
        retry_after: Some(Duration::ZERO),
        reset_after: Duration::ZERO,
        stamp: 0,
        delay: Duration::ZERO,
        is_blocked: false,
    };

    /// The denial of a blocked key, about the request with this index, at this time of the store's clock.
    pub(crate) fn blocked(request_index: usize, left: Duration, stamp: u64) -> Self {
        let (retry_after, reset_after) = (Some(left), left);
        Self { allowed: false, request_index, retry_after, reset_after, stamp, is_blocked: true, ..Self::ALLOWED }
    }

    /// Merges the replies about several requests that one store evaluated together, each with the index of its request.
    pub(crate) fn merged(replies: &[Self]) -> Self {
        let denied = replies.iter().find(|reply| !reply.allowed);
        let decisive = denied.or_else(|| replies.iter().min_by_key(|reply| reply.remaining)).unwrap_or(&Self::ALLOWED);
        // `None`, which is never, outweighs any time.
        let retries = replies.iter().map(|reply| reply.retry_after).collect::<Option<Vec<_>>>();
        let is_blocked = replies.iter().any(|reply| reply.is_blocked);
        Self {
            retry_after: retries.map(|retries| retries.into_iter().max().unwrap_or_default()),
            is_blocked,
            ..*decisive
        }
    }
}

/// The reply of a store to the charge of one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChargeReply {
    /// Permits that the counter had no room for.
    pub(crate) uncounted: u32,
    pub(crate) remaining: u32,
    /// Permits beyond the limit.
    pub(crate) overdrawn: u32,
    pub(crate) reset_after: Duration,
}

/// The reply to one entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchEntryReply {
    /// Calls that are granted, in their order.
    pub(crate) granted: u32,
    /// Permits that are left after them.
    pub(crate) remaining: u32,
    /// `retry_after` of the calls that are denied. If none is, that of one permit more, where the script computes it.
    /// `None`: never.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reset_after: Duration,
    /// The time of the decision, in microseconds of the server's clock.
    pub(crate) stamp: u64,
    /// The rest of the reply to a charge, which is granted as one call.
    pub(crate) overdraft: Option<Overdraft>,
    /// The key is blocked for the calls that are denied.
    pub(crate) is_blocked: bool,
}

/// The permits of a charge that its counter had no room for, and those beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overdraft {
    pub(crate) uncounted: u32,
    pub(crate) overdrawn: u32,
}

impl BatchEntryReply {
    /// The reply to a charge; `None` for that to calls.
    pub(crate) fn charge(&self) -> Option<ChargeReply> {
        let &Self { remaining, reset_after, overdraft, .. } = self;
        overdraft.map(|Overdraft { uncounted, overdrawn }| ChargeReply { uncounted, remaining, overdrawn, reset_after })
    }

    /// The reply to the call with this index, each of `cost` permits.
    pub(crate) fn reply_for_call(&self, index: u32, cost: u32) -> StoreReply {
        let Self { granted, remaining, retry_after, reset_after, stamp, is_blocked, .. } = *self;
        if is_blocked && index >= granted {
            let left = retry_after.unwrap_or_default();
            return StoreReply { remaining, reset_after: reset_after.max(left), ..StoreReply::blocked(0, left, stamp) };
        }
        let later_calls = granted.saturating_sub(index.saturating_add(1));
        let (allowed, retry_after) = if index < granted { (true, Some(Duration::ZERO)) } else { (false, retry_after) };
        let remaining = remaining.saturating_add(later_calls.saturating_mul(cost));
        let (delay, is_blocked) = (Duration::ZERO, false);
        StoreReply { allowed, request_index: 0, remaining, retry_after, reset_after, stamp, delay, is_blocked }
    }
}

/// The permits left of one request after a decision, for observers and for [`Decision::limits`](crate::Decision::limits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestReport {
    pub(crate) remaining: u32,
    pub(crate) reset_after: Duration,
}

/// The data of a decision that each request has by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerRequest {
    /// The time at which the permits of each request were taken; empty if they were taken together.
    pub(crate) stamps: Vec<u64>,
    /// Empty unless [`CallOptions::wants_reports`] is set. Observed requests have none.
    pub(crate) reports: Vec<RequestReport>,
    /// The reply about each observed request. Empty where the reports are, and for a denial.
    pub(crate) observed: Vec<StoreReply>,
    /// The reply to the charge of each request. Only a charge has them.
    pub(crate) charges: Vec<ChargeReply>,
    /// Present if the store refuses a receipt. It has changed nothing then.
    pub(crate) refusal: Option<ReceiptRefusal>,
}

/// The reply to one decision, with the data of each request. Most replies have none.
#[derive(Clone, Debug)]
pub(crate) struct DecisionReply {
    pub(crate) reply: StoreReply,
    pub(crate) per_request: Option<Arc<PerRequest>>,
}

impl From<StoreReply> for DecisionReply {
    fn from(reply: StoreReply) -> Self {
        Self { reply, per_request: None }
    }
}

impl DecisionReply {
    /// The reply to a charge of all requests at this time of the store's clock.
    pub(crate) fn of_charges(charges: Vec<ChargeReply>, stamp: u64) -> Self {
        let per_request = PerRequest { charges, ..PerRequest::default() };
        Self { reply: StoreReply { stamp, ..StoreReply::ALLOWED }, per_request: Some(Arc::new(per_request)) }
    }

    /// The reply to a receipt that the store refuses.
    pub(crate) fn refused(refusal: ReceiptRefusal) -> Self {
        let per_request = PerRequest { refusal: Some(refusal), ..PerRequest::default() };
        Self { reply: StoreReply { allowed: false, ..StoreReply::ALLOWED }, per_request: Some(Arc::new(per_request)) }
    }

    /// The reason if the store refuses a receipt.
    pub(crate) fn refusal(&self) -> Option<ReceiptRefusal> {
        self.per_request.as_ref()?.refusal
    }

    pub(crate) fn with_reports(reply: StoreReply, per_request: PerRequest) -> Self {
        Self { reply, per_request: (!per_request.reports.is_empty()).then(|| Arc::new(per_request)) }
    }
}

/// The reply of the store, the denial cache or the standby limiter, with its source and the data for a refund.
#[derive(Clone, Debug)]
pub(crate) struct CountedReply {
    pub(crate) reply: StoreReply,
    pub(crate) source: Source,
    /// The time at which the standby limiter took the permits, in microseconds of its clock; 0 if it took none.
    pub(crate) mirror_stamp: u64,
    pub(crate) per_request: Option<Arc<PerRequest>>,
    /// The stamp of the permits, in microseconds of the store's clock. A refund needs it.
    pub(crate) permits_stamp: u64,
    /// The mark of the log to which alone the permits go back. Their stamp is ahead of the time of the call then.
    pub(crate) log_mark: Option<u32>,
    /// The requests, if they were copied for another thread.
    pub(crate) requests: Option<Arc<[OwnedRequest]>>,
}

/// The source and the stamps of granted permits, which a refund needs.
#[derive(Clone, Debug)]
pub(crate) struct RefundInfo {
    pub(crate) source: Source,
    /// Microseconds of the store's clock.
    pub(crate) stamp: u64,
    /// The stamp of each request, if their permits were not taken together.
    pub(crate) per_request: Option<Arc<PerRequest>>,
    /// The mark of the log to which alone the permits go back. Their stamp is ahead of the time of the call then.
    pub(crate) log_mark: Option<u32>,
    /// Microseconds of the standby limiter's clock; 0 if it has no record of the permits.
    pub(crate) mirror_stamp: u64,
    /// The most permits of each request that a refund returns. The request's cost is what the call holds before it.
    pub(crate) max_permits: u32,
}

impl Request<'_> {
    /// Returns how many permits a refund of at most `max_permits` returns, and how many the call keeps. The cost is
    /// what the call holds before it.
    pub(crate) fn refund_split(&self, max_permits: u32) -> (u32, u32) {
        let returned = self.cost.min(max_permits);
        (returned, self.cost - returned)
    }
}

impl CountedReply {
    /// The reply to a charge by the store, with the mirror's stamp.
    pub(crate) fn from_charge(DecisionReply { reply, per_request }: DecisionReply, mirror_stamp: u64) -> Self {
        Self { per_request, ..Self::from_store(reply, mirror_stamp) }
    }

    /// The reply to a charge of nothing by a lease whose level is unknown.
    pub(crate) fn of_no_charge() -> Self {
        let charged = DecisionReply::of_charges(vec![ChargeReply::default()], 0);
        Self { source: Source::Lease, ..Self::from_charge(charged, 0) }
    }

    /// The replies to the charges of the requests. Only a charge has them.
    pub(crate) fn charges(&self) -> &[ChargeReply] {
        self.per_request.as_ref().map_or(&[], |per_request| &per_request.charges)
    }

    pub(crate) fn from_store(reply: StoreReply, mirror_stamp: u64) -> Self {
        Self {
            reply,
            source: Source::Store,
            mirror_stamp,
            per_request: None,
            permits_stamp: reply.stamp,
            log_mark: None,
            requests: None,
        }
    }

    /// The reply of the store about several requests, with a report of each.
    pub(crate) fn with_reports(reply: StoreReply, per_request: PerRequest) -> Self {
        let DecisionReply { reply, per_request } = DecisionReply::with_reports(reply, per_request);
        Self { per_request, ..Self::from_store(reply, 0) }
    }

    pub(crate) fn from_denial_cache(reply: StoreReply) -> Self {
        Self { source: Source::DeniedUntil, ..Self::from_store(reply, 0) }
    }

    pub(crate) fn from_standby(reply: impl Into<DecisionReply>) -> Self {
        let DecisionReply { reply, per_request } = reply.into();
        Self { source: Source::Standby, per_request, ..Self::from_store(reply, reply.stamp) }
    }

    /// The store's reply with the mirror's stamp, or the denial of the standby limiter if it denies the admission after
    /// all.
    pub(crate) fn reconciled(reply: StoreReply, mirrored: Result<u64, StoreReply>) -> Self {
        match mirrored {
            Ok(mirror_stamp) => Self::from_store(reply, mirror_stamp),
            Err(denial) => Self::from_standby(denial),
        }
    }

    /// Returns whether the store has granted permits.
    pub(crate) fn is_store_admission(&self) -> bool {
        self.reply.allowed && self.source == Source::Store
    }

    pub(crate) fn refund_info(&self) -> RefundInfo {
        let &Self { source, mirror_stamp, ref per_request, permits_stamp: stamp, log_mark, .. } = self;
        let per_request = per_request.clone();
        RefundInfo { source, stamp, per_request, log_mark, mirror_stamp, max_permits: u32::MAX }
    }
}

impl RefundInfo {
    /// The data for permits that only the store has counted, at this time of its clock in microseconds.
    pub(crate) fn from_store(stamp: u64) -> Self {
        Self { source: Source::Store, stamp, per_request: None, log_mark: None, mirror_stamp: 0, max_permits: u32::MAX }
    }

    /// Returns it for a refund of at most so many permits of each request.
    pub(crate) fn with_max_permits(self, max_permits: u32) -> Self {
        Self { max_permits, ..self }
    }

    /// Returns it for some requests of the decision.
    pub(crate) fn of_requests(&self, indices: &[usize]) -> Self {
        let of_some = |per_request: &Arc<PerRequest>| {
            let stamps: Vec<_> = indices.iter().filter_map(|index| per_request.stamps.get(*index).copied()).collect();
            (!stamps.is_empty()).then(|| Arc::new(PerRequest { stamps, ..PerRequest::default() }))
        };
        Self { per_request: self.per_request.as_ref().and_then(of_some), ..self.clone() }
    }

    /// The stamp of one request of the decision.
    pub(crate) fn stamp_of_request(&self, index: usize) -> u64 {
        let stamp = |per_request: &Arc<PerRequest>| per_request.stamps.get(index).copied();
        self.per_request.as_ref().and_then(stamp).unwrap_or(self.stamp)
    }
}

/// A failure of the store: it sent no usable reply.
#[derive(Debug)]
pub(crate) struct StoreFailure {
    pub(crate) error: Error,
    /// The reply of the standby limiter, if it had reserved the permits for the call.
    pub(crate) reservation: Option<DecisionReply>,
}
