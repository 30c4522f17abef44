//! Busy polling by a caller: it polls for the reply to a direct call for a short time, and completes the call itself if
//! the reply arrives. Else the worker takes the call over.

use std::future::poll_fn;
use std::hint;
use std::mem::{forget, replace};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::mpsc;

use super::call::Call;
use super::direct_sender::DirectSender;
use crate::request::CountedReply;
use crate::store::redis::pipelined::DirectPoll;
use crate::sync::process::{self, is_this};

/// A direct call whose caller polls for the reply. Dropping it leaves the call to the worker.
#[derive(Debug)]
pub(crate) struct CallerPoll<'a> {
    /// `None` once it is completed.
    call: Option<Box<Call>>,
    sender: &'a DirectSender,
    worker: &'a mpsc::UnboundedSender<Call>,
    /// The process that has sent the call.
    home: u32,
    /// The longest time of the poll.
    limit: Duration,
}

impl<'a> CallerPoll<'a> {
    pub(crate) fn new(
        call: Call,
        sender: &'a DirectSender,
        worker: &'a mpsc::UnboundedSender<Call>,
        limit: Duration,
    ) -> Self {
        Self { call: Some(Box::new(call)), sender, worker, home: process::id(), limit }
    }

    /// Returns the poll as a child of the process that has sent the call has it.
    #[cfg(test)]
    pub(super) fn in_a_child(self) -> Self {
        let mut poll = self;
        poll.home = 0;
        poll
    }

    /// Polls for the reply, and blocks the thread meanwhile. `None` if the call is left to the worker.
    ///
    /// To yield to the runtime at each turn took 1.4 of the time: it wakes its other threads. The core is not yielded
    /// either: while other programs use all cores, the thread would get it back some milliseconds later.
    pub(crate) async fn reply(mut self) -> Option<CountedReply> {
        if self.sender.is_turn_of_others() {
            yield_once().await;
        }
        // The time of the system also where that of the runtime is paused.
        let began = Instant::now();
        loop {
            match self.poll() {
                DirectPoll::Pending => {}
                DirectPoll::Ready(reply) => return Some(reply),
                DirectPoll::LeftToWorker => return None,
            }
            if began.elapsed() >= self.limit {
                self.record_miss();
                return None;
            }
            hint::spin_loop();
        }
    }

    fn poll(&mut self) -> DirectPoll<CountedReply> {
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

/// Yields to other tasks of the thread. Its own waker is woken at once: tokio's `yield_now` defers that until the thread
/// is back in the runtime, which it never is inside of a blocking call in a task.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Drop for CallerPoll<'_> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        if is_this(self.home) {
            // The worker ends only with this store.
            let _ = self.worker.send(*call);
        } else {
            // Its sender would wake the parent's thread.
            forget(call);
        }
    }
}
