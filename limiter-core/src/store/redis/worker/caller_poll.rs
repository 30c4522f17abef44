//! Busy polling by a caller: it polls for the reply to a direct call for a short time, and completes the call itself if
//! the reply arrives. Else the worker takes the call over.

use std::hint;
use std::mem::{forget, replace};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::mpsc;

use super::call::Call;
use super::direct_sender::DirectSender;
use crate::request::CountedReply;
use crate::store::redis::pipelined::DirectPoll;
use crate::sync::process::{self, is_this};

/// A direct call whose caller polls for the reply. As a future it is the reply; `None` if the call is left to the worker,
/// as it is if this is dropped.
#[derive(Debug)]
pub(crate) struct CallerPoll<'a> {
    /// `None` once it is completed.
    call: Option<Call>,
    sender: &'a DirectSender,
    worker: &'a mpsc::UnboundedSender<Call>,
    /// The process that has sent the call.
    home: u32,
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
        Self { call: Some(call), sender, worker, home: process::id(), limit, has_begun: false }
    }

    /// Returns the poll as a child of the process that has sent the call has it.
    #[cfg(test)]
    pub(super) fn in_a_child(self) -> Self {
        let mut poll = self;
        poll.home = 0;
        poll
    }

    fn read(&mut self) -> DirectPoll<CountedReply> {
        // A child of `fork` has the parent's socket.
        let Some(call) = self.call.as_ref().filter(|_| is_this(self.home)) else { return DirectPoll::LeftToWorker };
        let Some(direct) = &call.direct else { return DirectPoll::LeftToWorker };
        let complete = |value: Value| {
            let requests = call.requests();
            self.sender.complete(direct, call.with_slots(&requests), value)
        };
        let poll = direct.gate.direct_writer.poll(&direct.reply, complete);
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
        let Some(call) = self.call.take() else { return };
        if is_this(self.home) {
            // The worker ends only with this store.
            let _ = self.worker.send(call);
        } else {
            // Its sender would wake the parent's thread.
            forget(call);
        }
    }
}
