//! Requests to a store and its replies: the types that the store, the failure policy and the limiter exchange.

use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::CounterKind;
use crate::error::Error;
use crate::key::Key;
use crate::limit::Limit;
use crate::on_error::OnError;
use crate::source::Source;

/// One request to a store: may `cost` permits be taken? Several make one decision, all or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request<'a> {
    pub(crate) key: &'a Key,
    pub(crate) limit: Limit,
    pub(crate) cost: u32,
}

impl Request<'_> {
    /// Permits that the requests before it in the same decision take of the same count.
    pub(crate) fn pending(&self, before: &[Self]) -> u32 {
        let same =
            |other: &&Self| CounterKind::from(other.limit) == CounterKind::from(self.limit) && other.key == self.key;
        before.iter().filter(same).fold(0, |sum, other| sum.saturating_add(other.cost))
    }

    /// As many of it in one.
    #[cfg(feature = "redis")]
    pub(crate) fn times(self, many: usize) -> Self {
        Self { cost: u32::try_from(many).unwrap_or(u32::MAX).saturating_mul(self.cost), ..self }
    }
}

/// A request that owns its key.
#[derive(Clone, Debug)]
pub(crate) struct OwnedRequest {
    key: Key,
    limit: Limit,
    cost: u32,
}

impl OwnedRequest {
    /// For a call that another thread decides, and the receipt of it.
    pub(crate) fn copy_all(requests: &[Request<'_>]) -> Arc<[Self]> {
        requests.iter().map(Self::from).collect()
    }

    pub(crate) fn as_request(&self) -> Request<'_> {
        Request { key: &self.key, limit: self.limit, cost: self.cost }
    }
}

impl From<&Request<'_>> for OwnedRequest {
    #[inline]
    fn from(&Request { key, limit, cost }: &Request<'_>) -> Self {
        Self { key: key.clone(), limit, cost }
    }
}

/// What a store says about one decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreReply {
    pub(crate) allowed: bool,
    /// Which request `remaining` and `reset_after` are about: the first that denies, or the one with the least left.
    pub(crate) request_index: usize,
    pub(crate) remaining: u32,
    /// Until every request would be allowed; `None`: never.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reset_after: Duration,
    /// When the permits were taken, by the store's clock in microseconds: with it they can be given back.
    pub(crate) stamp: u64,
    /// Until the turn that an allowed call was given, where it has to wait for one.
    pub(crate) delay: Duration,
}

#[cfg(any(feature = "redis", test))]
impl StoreReply {
    /// An admission without a count: the reply to a refund that the store is not sent.
    pub(crate) const ALLOWED: Self = Self {
        allowed: true,
        request_index: 0,
        remaining: 0,
        retry_after: Some(Duration::ZERO),
        reset_after: Duration::ZERO,
        stamp: 0,
        delay: Duration::ZERO,
    };
}

/// What becomes of a call.
#[derive(Clone, Debug)]
pub(crate) enum Resolution {
    Counted(CountedReply),
    /// Allowed without a count, because a policy says so.
    FailedOpen,
    /// Denied without a count, because a policy says so.
    FailedClosed,
}

/// The store's or the stand-in's word.
#[derive(Clone, Debug)]
pub(crate) struct CountedReply {
    pub(crate) reply: StoreReply,
    pub(crate) source: Source,
    /// When the stand-in took the permits, by its own clock; 0 if it did not.
    pub(crate) mirror_stamp: u64,
    /// When the permits of each request were taken, where they were not taken together.
    pub(crate) stamps: Option<Arc<[u64]>>,
    /// What was asked, where that was put down for another thread.
    pub(crate) requests: Option<Arc<[OwnedRequest]>>,
}

/// Who granted permits, and when: what it takes to give them back.
#[derive(Clone, Debug)]
pub(crate) struct RefundInfo {
    pub(crate) source: Source,
    /// By the store's clock, in microseconds.
    pub(crate) stamp: u64,
    /// The same for each request, where they were not taken together.
    stamps: Option<Arc<[u64]>>,
    /// By the stand-in's; 0 if it knows nothing of them.
    pub(crate) mirror_stamp: u64,
}

impl CountedReply {
    pub(crate) fn from_store(reply: StoreReply, mirror_stamp: u64) -> Self {
        Self { reply, source: Source::Store, mirror_stamp, stamps: None, requests: None }
    }

    pub(crate) fn from_denial_cache(reply: StoreReply) -> Self {
        Self { reply, source: Source::DeniedUntil, mirror_stamp: 0, stamps: None, requests: None }
    }

    pub(crate) fn from_standby(reply: StoreReply) -> Self {
        Self { reply, source: Source::Standby, mirror_stamp: reply.stamp, stamps: None, requests: None }
    }

    pub(crate) fn refund_info(&self) -> RefundInfo {
        let Self { reply, source, mirror_stamp, stamps, .. } = self;
        RefundInfo { source: *source, stamp: reply.stamp, stamps: stamps.clone(), mirror_stamp: *mirror_stamp }
    }
}

impl RefundInfo {
    /// By the store alone, at this time of its clock.
    pub(crate) fn from_store(stamp: u64) -> Self {
        Self { source: Source::Store, stamp, stamps: None, mirror_stamp: 0 }
    }

    /// What was granted to one request.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no store has several clocks"))]
    pub(crate) fn for_request(&self, index: usize) -> Self {
        let stamp = self.stamps.as_ref().and_then(|stamps| stamps.get(index));
        Self::from_store(stamp.copied().unwrap_or(self.stamp))
    }
}

/// How a call is to be decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    pub(crate) on_error: OnError,
    /// How long it may wait for its turn, where its algorithm gives turns.
    pub(crate) max_wait: Duration,
    /// How long the store may take; the limiter's own deadline if it is not said.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "there is no such store then"))]
    pub(crate) deadline: Option<Duration>,
}

/// The store gave no reply. Permits that the stand-in holds for the call meanwhile are its reply.
#[derive(Debug)]
pub(crate) struct StoreFailure {
    pub(crate) error: Error,
    pub(crate) reservation: Option<StoreReply>,
}
