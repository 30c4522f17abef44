//! Direct calls: a caller writes the command of a lone call itself, and polls for the reply. The worker does the rest.
//!
//! So a lone call to a server on the same machine needs no other thread. Behind a network the server is at work while
//! the worker's thread wakes up.

use std::hint;
use std::mem::replace;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::mpsc;

use super::call::{Call, DirectCall};
use crate::clock::Clock;
use crate::local::Local;
use crate::metrics::BatchSizes;
use crate::request::CountedReply;
use crate::store::redis::connection::gate_table::GateTable;
use crate::store::redis::packed::DeclaredCounts;
use crate::store::redis::pipelined::DirectPoll;
use crate::store::redis::script::command::{BatchEntry, Command, ServerTimes};

/// Sends calls on their callers' threads.
#[derive(Debug)]
pub(crate) struct DirectSender {
    gates: Arc<GateTable>,
    clock: Clock,
    local: Arc<Local>,
    batch_sizes: BatchSizes,
    /// The calls for whose replies callers have polled.
    polled_calls: AtomicU32,
}

/// The calls for whose replies callers poll before one yields to its runtime. Tasks of the same thread make their calls
/// then. If there are any, the calls are sent in batches.
const CALLS_PER_TURN: u32 = 16;

impl DirectSender {
    pub(crate) fn new(gates: Arc<GateTable>, clock: Clock, local: Arc<Local>, batch_sizes: BatchSizes) -> Self {
        Self { gates, clock, local, batch_sizes, polled_calls: AtomicU32::new(0) }
    }

    /// Sends a call, if it can be batched, does not need the worker, its server's connection is idle and the store
    /// decides alone. It does not wait.
    pub(crate) fn send(&self, call: &mut Call) {
        if call.can_be_batched && !call.action.needs_worker() && !call.has_block() {
            call.direct = self.try_send(call);
        }
    }

    fn try_send(&self, call: &Call) -> Option<Box<DirectCall>> {
        let (keys, request) = (&call.keys, call.requests[0].as_request());
        let gate = self.gates.gate_if(keys.first_slot(), |gate| gate.direct_writer.is_free())?;
        let entries = vec![BatchEntry::of_call(&call.action, &request)];
        let command = Command::batch(keys.as_slice().to_vec(), entries);
        let mut sent = None;
        let reply = gate.direct_writer.write(|digests| {
            // The worker takes the write half back before it records that this server has failed. What is returned here is
            // written.
            sent = Some(self.local.begin_direct(&call.requests, call.counter, keys.first_slot())?);
            let times = ServerTimes { clock_lead: gate.clock_lead(), ..ServerTimes::default() };
            let digest = digests.get(command.program() as usize)?;
            Some(command.for_server(digest, &self.clock, times, &DeclaredCounts::default()))
        })?;
        Some(Box::new(DirectCall { gate, command, sent, reply }))
    }

    /// Counts a call whose caller polls for the reply. Returns whether the caller has to yield to other tasks first.
    pub(super) fn is_turn_of_others(&self) -> bool {
        self.polled_calls.fetch_add(1, Ordering::Relaxed) % CALLS_PER_TURN == CALLS_PER_TURN - 1
    }
}

// Busy polling by a caller: it polls for the reply to a direct call for a short time, and completes the call itself if
// the reply arrives. Else the worker takes the call over.

/// A direct call whose caller polls for the reply. As a future it is the reply; `None` if the call is left to the worker,
/// as it is if this is dropped.
#[derive(Debug)]
pub(crate) struct CallerPoll<'a> {
    /// `None` once it is completed.
    call: Option<Call>,
    sender: &'a DirectSender,
    worker: &'a mpsc::UnboundedSender<Call>,
    /// The longest time of the poll.
    limit: Duration,
    has_begun: bool,
}

impl<'a> CallerPoll<'a> {
    pub(crate) fn new(
        call: Call,
        sender: &'a DirectSender,
        worker: &'a mpsc::UnboundedSender<Call>,
        limit: Duration,
    ) -> Self {
        Self { call: Some(call), sender, worker, limit, has_begun: false }
    }

    fn read(&mut self) -> DirectPoll<CountedReply> {
        let Some(call) = &mut self.call else { return DirectPoll::LeftToWorker };
        let Some(direct) = &mut call.direct else { return DirectPoll::LeftToWorker };
        let DirectCall { gate, command, sent, reply } = &mut **direct;
        // The worker has to complete it if the value is an error, or no reply to the call.
        let complete = |value: Value| {
            let entry_reply = command.decode_batch(value).ok()?.entries.pop()?.ok()?;
            let sent = sent.take()?;
            self.sender.batch_sizes.push(1);
            Some(sent.settle(&entry_reply))
        };
        let poll = gate.direct_writer.poll(reply, complete);
        if let DirectPoll::Ready(_) = poll {
            self.call = None;
        }
        poll
    }

    fn record_miss(&self) {
        if let Some(direct) = self.call.as_ref().and_then(|call| call.direct.as_ref()) {
            direct.gate.direct_writer.record_miss();
        }
    }
}

impl Future for CallerPoll<'_> {
    type Output = Option<CountedReply>;

    /// Polls the socket until the reply arrives, and blocks the thread meanwhile.
    ///
    /// To yield to the runtime at each turn took 1.4 of the time: it wakes its other threads. The core is not yielded
    /// either: while other programs use all cores, the thread would get it back some milliseconds later.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<CountedReply>> {
        if !replace(&mut self.has_begun, true) && self.sender.is_turn_of_others() {
            // Tokio's `yield_now` defers this until the thread is back in the runtime, which it never is inside of a
            // blocking call in a task.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // The time of the system also where that of the runtime is paused.
        let began = Instant::now();
        loop {
            match self.read() {
                DirectPoll::Pending => {}
                DirectPoll::Ready(reply) => return Poll::Ready(Some(reply)),
                DirectPoll::LeftToWorker => return Poll::Ready(None),
            }
            if began.elapsed() >= self.limit {
                self.record_miss();
                return Poll::Ready(None);
            }
            hint::spin_loop();
        }
    }
}

impl Drop for CallerPoll<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            // The worker ends only with this store.
            let _ = self.worker.send(call);
        }
    }
}
