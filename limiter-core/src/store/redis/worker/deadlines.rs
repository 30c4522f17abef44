//! The deadlines of pending calls, with one timer for all.
//!
//! Each call gets its timeout here. The latest deadline of a batch also ends its script call (`batch.rs`): only there is
//! a reply counted as missed, and a batch as late.

use std::cell::{Cell, RefCell};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use crate::Error;
use crate::local::Local;
use crate::local::sent::batch::WaitingCall;
use crate::store::redis::worker::call::Deadline;
use crate::store::redis::worker::pending_call::PendingCall;

pub(crate) struct Deadlines {
    calls: RefCell<DeadlineQueue>,
    /// The length at which calls with a reply are removed.
    cleanup_len: Cell<usize>,
    /// The time for which the timer is set, while it is.
    timer: Cell<Option<Instant>>,
    /// Notified when a call is due before the timer ends.
    earlier: Notify,
    local: Arc<Local>,
    /// The errors of the latest timeouts: of a call that was not sent, and of one that was. Many calls have the same
    /// one.
    errors: RefCell<[Option<(Deadline, Error)>; 2]>,
}

/// Calls that time out at once, before other tasks of the worker run.
const MAX_BATCH: usize = 256;
/// The shortest length at which calls with a reply are removed.
const MIN_CLEANUP_LEN: usize = 1024;

impl Deadlines {
    pub(crate) fn new(local: &Arc<Local>) -> Self {
        Self {
            calls: RefCell::default(),
            cleanup_len: Cell::new(MIN_CLEANUP_LEN),
            timer: Cell::default(),
            earlier: Notify::new(),
            local: Arc::clone(local),
            errors: RefCell::default(),
        }
    }

    pub(crate) fn watch(&self, call: &Rc<PendingCall>) {
        let mut calls = self.calls.borrow_mut();
        while calls.first().is_some_and(|call| call.has_reply()) {
            calls.pop_first();
        }
        if calls.len() >= self.cleanup_len.get() {
            calls.retain(|call| !call.has_reply());
            self.cleanup_len.set(MIN_CLEANUP_LEN.max(2 * calls.len()));
        }
        // A timer that ends before the first deadline is set again then. So calls that come one at a time set one timer
        // for many of them.
        if self.timer.get().is_none_or(|timer| call.deadline.instant < timer) {
            self.earlier.notify_one();
        }
        calls.push(Rc::clone(call));
    }

    /// Replies with a timeout to each call whose deadline is over. Never returns.
    pub(crate) async fn enforce(&self) {
        loop {
            match self.expire() {
                None => self.earlier.notified().await,
                Some(first) if first <= Instant::now() => yield_now().await,
                Some(first) => {
                    self.timer.set(Some(first));
                    // The first of both.
                    let _ = timeout_at(first, self.earlier.notified()).await;
                    self.timer.set(None);
                }
            }
        }
    }

    /// Times out a batch of calls that are due, and returns when the next one is.
    pub(super) fn expire(&self) -> Option<Instant> {
        let now = Instant::now();
        let (batch, next) = self.due(now);
        self.fail(batch.iter().map(|call| &**call));
        if batch.len() == MAX_BATCH { Some(now) } else { next }
    }

    /// Fails calls whose deadline is over.
    pub(super) fn fail<'c>(&self, calls: impl Iterator<Item = &'c PendingCall> + Clone) {
        self.local.fail_calls(calls, |call| self.timeout(call));
    }

    /// Reports the timeout of a call that is due, and returns its error.
    pub(super) fn timeout(&self, call: &PendingCall) -> Error {
        call.report_timeout();
        self.timeout_error(call)
    }

    /// Removes a batch of calls that are due and have no reply. Returns when the next one is due.
    fn due(&self, now: Instant) -> (Vec<Rc<PendingCall>>, Option<Instant>) {
        let (mut calls, mut batch) = (self.calls.borrow_mut(), Vec::new());
        while let Some(first) = calls.first()
            && batch.len() < MAX_BATCH
        {
            let due = first.deadline.instant;
            if !first.has_reply() && due > now {
                return (batch, Some(due));
            }
            // A call that was not sent and has no caller has not failed.
            let is_failed = !first.has_reply() && (first.was_sent() || first.is_awaited());
            batch.extend(calls.pop_first().filter(|_| is_failed));
        }
        (batch, None)
    }

    /// The error of a call that is due; one for all calls with the same timeout.
    fn timeout_error(&self, call: &PendingCall) -> Error {
        let (deadline, was_sent) = (call.deadline, call.was_sent());
        let error = &mut self.errors.borrow_mut()[usize::from(was_sent)];
        match error {
            Some((known, error)) if known.has_timeout_of(deadline) => error.clone(),
            _ => {
                let new = if was_sent { deadline.no_reply_error() } else { deadline.not_sent_error() };
                error.insert((deadline, new)).1.clone()
            }
        }
    }
}

// Calls in the order of their deadlines.

/// A queue for the usual case: most calls have the same timeout, so they arrive nearly in the order of their deadlines.
/// A heap takes the others, since each step through a large heap costs a cache miss. With 100 000 calls of one timeout, a
/// heap alone took a third of the worker's time.
#[derive(Default)]
pub(crate) struct DeadlineQueue {
    in_order: VecDeque<Rc<PendingCall>>,
    others: BinaryHeap<Reverse<Due>>,
}

/// The most calls at the end of the queue that one is inserted before. Several threads send at a time.
const MAX_STEPS: usize = 64;

impl DeadlineQueue {
    pub(crate) fn push(&mut self, call: Rc<PendingCall>) {
        let due = call.deadline.instant;
        let later = self.in_order.iter().rev().take(MAX_STEPS).take_while(|other| other.deadline.instant > due).count();
        if later == MAX_STEPS {
            self.others.push(Reverse(Due(call)));
        } else {
            self.in_order.insert(self.in_order.len() - later, call);
        }
    }

    /// The call with the earliest deadline.
    pub(crate) fn first(&self) -> Option<&Rc<PendingCall>> {
        let other = self.others.peek().map(|Reverse(Due(call))| call);
        match (self.in_order.front(), other) {
            (Some(first), Some(other)) if other.deadline.instant < first.deadline.instant => Some(other),
            (first, other) => first.or(other),
        }
    }

    /// Removes the call with the earliest deadline, due or not.
    pub(crate) fn pop_first(&mut self) -> Option<Rc<PendingCall>> {
        let first = self.first()?;
        let is_in_order = self.in_order.front().is_some_and(|front| Rc::ptr_eq(front, first));
        if is_in_order { self.in_order.pop_front() } else { self.others.pop().map(|Reverse(Due(call))| call) }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&PendingCall) -> bool) {
        self.in_order.retain(|call| keep(call));
        self.others.retain(|Reverse(Due(call))| keep(call));
    }
}

/// A call, by its deadline.
struct Due(Rc<PendingCall>);

impl Due {
    fn instant(&self) -> Instant {
        self.0.deadline.instant
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.instant() == other.instant()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.instant().cmp(&other.instant())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::rc::Weak;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::task::{LocalSet, spawn_local};

    use super::*;
    use crate::clock::Clock;
    use crate::local::StoreTicket;
    use crate::request::{Request, StoreFailure};
    use crate::store::redis::naming::{Naming, RedisKeys};
    use crate::store::redis::script::action::Action;
    use crate::store::redis::worker::call::{Call, CallResult};
    use crate::store::redis::worker::tests::settings;
    use crate::{ErrorKind, Key, Limit};

    fn deadlines() -> Deadlines {
        Deadlines::new(&settings(Clock::System).local)
    }

    pub(crate) fn call(millis: u64) -> (Call, oneshot::Receiver<CallResult>) {
        let (reply_to, reply) = oneshot::channel();
        let key = Key::new("a");
        let requests = [Request::new(&key, Limit::WIDEST, 1)];
        let keys = RedisKeys::new(&requests, &Naming::new("", None, false)).expect("no secret");
        let ticket = StoreTicket::without_look_up(&requests);
        (Call::new(ticket, Action::TAKE_NOW, &requests, keys, Duration::from_millis(millis), reply_to), reply)
    }

    pub(super) fn pending(millis: u64) -> (Rc<PendingCall>, oneshot::Receiver<CallResult>) {
        let (call, reply) = call(millis);
        (PendingCall::new(call, Weak::new()), reply)
    }

    /// Replies to a call with an error.
    fn fail(call: &PendingCall) {
        call.reply(Err(StoreFailure { error: call.deadline.not_sent_error(), reservation: None }));
    }

    /// One call waits for long, and far more come and go than there are at once.
    #[test]
    fn calls_with_a_reply_are_removed_before_their_deadlines() {
        let deadlines = deadlines();
        let (first, _reply) = pending(10_000);
        deadlines.watch(&first);
        for _ in 0..50_000 {
            let (call, reply) = pending(60_000);
            deadlines.watch(&call);
            fail(&call);
            drop(reply);
            assert!(deadlines.calls.borrow().len() <= MIN_CLEANUP_LEN + 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_time_out_in_the_order_of_their_deadlines_and_not_before() {
        let deadlines = deadlines();
        let mut calls: Vec<_> = [400, 40, 400, 20, 60].map(pending).into();
        calls.iter().for_each(|(call, _)| deadlines.watch(call));
        assert!(deadlines.expire().is_some_and(|first| first == calls[3].0.deadline.instant));
        tokio::time::sleep_until(calls[1].0.deadline.instant).await;
        let next = deadlines.expire();
        let has_reply: Vec<_> = calls.iter_mut().map(|(_, reply)| reply.try_recv().is_ok()).collect();
        assert_eq!(has_reply[..4], [false, true, false, true]);
        assert!(has_reply[4] || next == Some(calls[4].0.deadline.instant));
    }

    #[tokio::test(start_paused = true)]
    async fn timer_ends_at_the_first_deadline_whatever_it_was_set_for() {
        let deadlines = Rc::new(deadlines());
        LocalSet::new()
            .run_until(async {
                let enforced = Rc::clone(&deadlines);
                spawn_local(async move { enforced.enforce().await });
                let started = Instant::now();
                let watch = |millis| {
                    let (call, reply) = pending(millis);
                    deadlines.watch(&call);
                    (call, reply)
                };
                let (first, late) = watch(400);
                yield_now().await;
                let (_second, early) = watch(20);
                early.await.expect("a reply").expect_err("a timeout");
                assert_eq!(started.elapsed().as_millis() / 10, 2);
                // The timer is set for the first call, which has a reply before the third one comes.
                fail(&first);
                late.await.expect("a reply").expect_err("no timeout");
                let (_third, last) = watch(1_000);
                last.await.expect("a reply").expect_err("a timeout");
                assert_eq!(started.elapsed().as_millis() / 10, 102);
            })
            .await;
    }

    #[test]
    fn error_of_a_queued_call_states_that_it_was_not_sent() {
        let deadlines = deadlines();
        let (call, mut reply) = pending(0);
        deadlines.watch(&call);
        assert!(deadlines.expire().is_none());
        let error = reply.try_recv().expect("a reply").expect_err("a timeout").error;
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().starts_with("not sent to Redis in time for a reply within 0ns: "), "{error}");
    }
}

#[cfg(test)]
mod queue_tests {
    use super::tests::pending;
    use super::*;

    #[test]
    fn calls_leave_in_the_order_of_their_deadlines_whatever_the_order_they_came_in() {
        let mut queue = DeadlineQueue::default();
        let mut random = limiter_testkit::Random::new(7);
        let (mut calls, mut answers) = (Vec::new(), Vec::new());
        for call in 0..2_000 {
            // Mostly the same time, some a little earlier, a few much earlier.
            let millis = match random.below(10) {
                0 => random.below(5_000),
                1..4 => 10_000 + call - random.below(20),
                _ => 10_000 + call,
            };
            let (call, answer) = pending(millis);
            calls.push(call.deadline.instant);
            answers.push(answer);
            queue.push(call);
        }
        assert_eq!(queue.len(), calls.len());
        assert!(!queue.others.is_empty() && queue.in_order.len() > 1_000);
        calls.sort();
        let left: Vec<_> = std::iter::from_fn(|| queue.pop_first()).map(|call| call.deadline.instant).collect();
        assert_eq!(left, calls);
    }
}
