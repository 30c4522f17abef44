//! One decision on its way to the worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::local::StoreTicket;
use crate::local::counter_hash::CounterHash;
use crate::local::sent::SentDirect;
use crate::request::{CountedReply, OwnedRequest, Request, SlottedRequests, StoreFailure};
use crate::store::redis::connection::gate_table::ServerGate;
use crate::store::redis::naming::RedisKeys;
use crate::store::redis::pipelined::DirectReply;
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::Command;
use crate::{Error, ErrorKind, Layout};

pub(crate) type CallResult = Result<CountedReply, StoreFailure>;

/// A decision for the worker. It owns its data, since its caller may be dropped before the reply.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) action: Action,
    pub(crate) requests: Arc<[OwnedRequest]>,
    /// The hash of the first counter.
    pub(crate) counter: CounterHash,
    /// The key of each request.
    pub(crate) keys: RedisKeys,
    pub(crate) deadline: Deadline,
    pub(crate) reply_to: oneshot::Sender<CallResult>,
    /// Present if the caller has sent it.
    pub(crate) direct: Option<Box<DirectCall>>,
    /// It takes permits of one counter, now or not at all, or charges it. Such calls are sent in batches.
    pub(crate) can_be_batched: bool,
}

/// The latest time of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) instant: Instant,
    /// The time from the start of the call.
    pub(super) timeout: Duration,
}

impl Call {
    /// Copies the requests. The ticket and the keys are theirs.
    pub(crate) fn new(
        ticket: StoreTicket,
        action: Action,
        requests: &[Request<'_>],
        keys: RedisKeys,
        timeout: Duration,
        reply_to: oneshot::Sender<CallResult>,
    ) -> Self {
        let is_batched =
            |request: &Request<'_>| request.limit.layout() == Layout::Compact && !request.role.is_postpaid();
        let can_be_batched = action.is_batched() && matches!(requests, [request] if is_batched(request));
        let (counter, deadline) = (ticket.into_counter(), Deadline::after(timeout));
        let requests = OwnedRequest::copy_all(requests);
        Self { action, requests, counter, keys, deadline, reply_to, direct: None, can_be_batched }
    }

    /// Returns whether a denial of its first request blocks the key.
    pub(crate) fn has_block(&self) -> bool {
        self.requests.first().is_some_and(|request| request.as_request().block.is_some())
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
        Error::new(
            ErrorKind::Timeout,
            format!("not sent to Redis in time for a reply within {:?}: {causes}", self.timeout),
        )
    }
}

// The part of a direct call that its caller has sent.

/// The part of a call that its caller has sent.
#[derive(Debug)]
pub(crate) struct DirectCall {
    pub(super) gate: Arc<ServerGate>,
    pub(super) command: Command,
    /// `None` once its caller has settled it.
    pub(super) sent: Option<SentDirect>,
    pub(super) reply: DirectReply,
}

impl DirectCall {
    /// Returns whether its caller is to poll for the reply.
    pub(crate) fn is_polled(&self) -> bool {
        self.reply.is_polled()
    }
}

// The number of calls in flight to the worker, and its bound.

/// Counts the calls that were sent to the worker, or by their callers, and whose callers still wait.
///
/// They are counted on the caller's side, by a value that the call's future holds. So a dropped call gives its place back
/// wherever it is.
#[derive(Debug)]
pub(crate) struct InFlight {
    calls: AtomicU32,
    max: u32,
    /// The error of a call above the bound. It is made once, since many calls fail at a time.
    overloaded: Error,
}

/// One call in flight. Dropping it, with the future of the call, ends it.
#[derive(Debug)]
pub(crate) struct InFlightCall<'a> {
    calls: &'a AtomicU32,
}

impl InFlight {
    pub(crate) fn new(max: u32) -> Self {
        let problem = format!("{max} calls wait for Redis already, which is the `max_in_flight` of this limiter");
        Self { calls: AtomicU32::new(0), max, overloaded: Error::new(ErrorKind::Overloaded, problem) }
    }

    /// Counts one more call.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] at the bound.
    pub(crate) fn enter(&self) -> Result<InFlightCall<'_>, Error> {
        // Never above the bound, not even for a moment: another call would be rejected for it.
        let one_more = |calls| (calls < self.max).then_some(calls + 1);
        match self.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(InFlightCall { calls: &self.calls }),
            Err(_) => Err(self.overloaded.clone()),
        }
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_bound_is_exact_while_threads_come_and_go() {
        const MAX: u32 = 3;
        let (in_flight, inside) = (InFlight::new(MAX), AtomicU32::new(0));
        thread::scope(|scope| {
            // As many threads as the bound: none is ever rejected.
            for _ in 0..MAX {
                scope.spawn(|| {
                    for _ in 0..100_000 {
                        let _call = in_flight.enter().expect("room for each thread");
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < MAX);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        let calls: Vec<_> = (0..MAX).map(|_| in_flight.enter().expect("room")).collect();
        assert_eq!(in_flight.enter().expect_err("full").kind(), ErrorKind::Overloaded);
        drop(calls);
        assert!(in_flight.enter().is_ok());
    }
}
