//! One decision on its way to the worker.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::direct_call::DirectCall;
use crate::request::{CountedReply, OwnedRequest, Request, SlottedRequests, StoreFailure};
use crate::store::redis::naming::RedisKeys;
use crate::store::redis::script::command::Action;
use crate::{Error, ErrorKind, Layout};

pub(crate) type CallResult = Result<CountedReply, StoreFailure>;

/// A decision for the worker. It owns its data, since its caller may be dropped before the reply.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) action: Action,
    pub(crate) requests: Arc<[OwnedRequest]>,
    /// The key of each request.
    pub(crate) keys: RedisKeys,
    pub(crate) deadline: Deadline,
    pub(crate) reply_to: oneshot::Sender<CallResult>,
    /// Present if the caller has sent it.
    pub(crate) direct: Option<Box<DirectCall>>,
}

/// The latest time of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) instant: Instant,
    /// The time from the start of the call.
    timeout: Duration,
}

impl Call {
    /// Returns whether it takes permits of one counter, now or not at all. Such calls are sent in batches.
    pub(crate) fn can_be_batched(&self) -> bool {
        let takes_now = matches!(self.action, Action::Take { max_wait, .. } if max_wait.is_zero());
        takes_now && matches!(&*self.requests, [request] if request.as_request().limit.layout() == Layout::Compact)
    }

    /// Returns whether its permits may come from a lease.
    pub(crate) fn takes_leases(&self) -> bool {
        matches!(self.action, Action::Take { leases: true, .. })
    }

    pub(crate) fn requests(&self) -> Vec<Request<'_>> {
        self.requests.iter().map(OwnedRequest::as_request).collect()
    }

    /// The requests with the slots of their keys. `requests` are those of [`requests`](Self::requests).
    pub(crate) fn with_slots<'a>(&'a self, requests: &'a [Request<'a>]) -> SlottedRequests<'a> {
        SlottedRequests { requests, slots: self.keys.slots() }
    }

    /// Returns whether the caller was dropped.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.reply_to.is_closed()
    }
}

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        Self { instant: Instant::now() + timeout, timeout }
    }

    /// A deadline with the same timeout, from now.
    pub(crate) fn renewed(self) -> Self {
        Self::after(self.timeout)
    }

    pub(crate) fn is_over(self) -> bool {
        Instant::now() >= self.instant
    }

    /// Returns whether less than a quarter of its time is left at this instant.
    pub(crate) fn is_nearly_over(self, at: Instant) -> bool {
        self.instant.saturating_duration_since(at) < self.timeout / 4
    }

    pub(crate) fn timeout(self) -> Duration {
        self.timeout
    }

    pub(crate) fn has_timeout_of(self, other: Self) -> bool {
        self.timeout == other.timeout
    }

    /// The error of a call that was sent and has no reply.
    pub(crate) fn no_reply_error(self) -> Error {
        Error::new(ErrorKind::Timeout, format!("no answer from Redis within {:?}", self.timeout))
    }

    /// The error of a call that was not sent: it has taken no permits.
    pub(crate) fn not_sent_error(self) -> Error {
        let causes = "the connection, earlier calls or this process took too long";
        Error::new(ErrorKind::Timeout, format!("not sent to Redis within {:?}: {causes}", self.timeout))
    }
}
