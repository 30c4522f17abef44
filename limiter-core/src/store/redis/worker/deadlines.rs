//! Watches that every call is answered in time, with one timer for all.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use crate::Error;
use crate::local::standby::Standby;
use crate::store::redis::worker::call::Deadline;
use crate::store::redis::worker::pending_call::PendingCall;

mod queue;

use queue::DeadlineQueue;

pub(crate) struct Deadlines {
    calls: RefCell<DeadlineQueue>,
    /// So many calls are looked through for those that have been answered long before their deadlines.
    many: Cell<usize>,
    /// Notified when a call is due before all others.
    earlier: Notify,
    standby: Arc<Standby>,
    /// The error of the latest call that was late, and its time: many calls have the same.
    error: RefCell<Option<(Deadline, Error)>>,
}

/// Calls that are answered at a time, before other tasks of the worker run.
const MAX_BATCH: usize = 256;
const MANY: usize = 1024;

impl Deadlines {
    pub(crate) fn new(standby: &Arc<Standby>) -> Self {
        Self {
            calls: RefCell::default(),
            many: Cell::new(MANY),
            earlier: Notify::new(),
            standby: Arc::clone(standby),
            error: RefCell::default(),
        }
    }

    pub(crate) fn watch(&self, call: &Rc<PendingCall>) {
        let mut calls = self.calls.borrow_mut();
        while calls.first().is_some_and(|call| call.is_answered()) {
            calls.pop_first();
        }
        if calls.len() >= self.many.get() {
            calls.retain(|call| !call.is_answered());
            self.many.set(MANY.max(2 * calls.len()));
        }
        if calls.first().is_none_or(|first| call.until.instant < first.until.instant) {
            self.earlier.notify_one();
        }
        calls.push(Rc::clone(call));
    }

    /// Answers those whose time is over.
    pub(crate) async fn keep(&self) {
        loop {
            match self.first() {
                None => self.earlier.notified().await,
                Some(first) if first <= Instant::now() => yield_now().await,
                // Whichever is first.
                Some(first) => drop(timeout_at(first, self.earlier.notified()).await),
            }
        }
    }

    /// Returns when the next call is due, after answering a batch of those that are.
    fn first(&self) -> Option<Instant> {
        let now = Instant::now();
        let (batch, next) = self.due(now);
        // All of them before the first is answered: its caller may be the next to ask the stand-in.
        self.standby.calls_failed(batch.iter().map(|call| call.request()));
        let mut reported = Weak::new();
        for call in &batch {
            call.report_silence(&mut reported);
            call.fail(self.late(call.until));
        }
        if batch.len() == MAX_BATCH { Some(now) } else { next }
    }

    /// Calls that are due and not answered, up to a batch of them, and when the next one is due.
    fn due(&self, now: Instant) -> (Vec<Rc<PendingCall>>, Option<Instant>) {
        let (mut calls, mut batch) = (self.calls.borrow_mut(), Vec::new());
        while let Some(first) = calls.first()
            && batch.len() < MAX_BATCH
        {
            let due = first.until.instant;
            if !first.is_answered() && due > now {
                return (batch, Some(due));
            }
            // One that was never sent, and that nobody waits for, has not failed.
            let is_late = !first.is_answered() && (first.was_sent() || first.is_wanted());
            batch.extend(calls.pop_first().filter(|_| is_late));
        }
        (batch, None)
    }

    /// The error of a call with this deadline. Made once for all that have the same time.
    pub(crate) fn late(&self, until: Deadline) -> Error {
        let mut error = self.error.borrow_mut();
        match &*error {
            Some((known, error)) if known.is_as_long_as(until) => error.clone(),
            _ => error.insert((until, until.late())).1.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::clock::Clock;
    use crate::local::standby::StandbyConfig;
    use crate::request::{OwnedRequest, Request};
    use crate::store::naming::Naming;
    use crate::store::redis::worker::call::{Action, Call, Deadline, Reply};
    use crate::{Key, Limit};

    fn deadlines() -> Deadlines {
        let role = StandbyConfig {
            max_keys: 10,
            instances: NonZeroU32::MIN,
            slots: 1,
            naming: Arc::new(Naming::new("", None)),
        };
        Deadlines::new(&Arc::new(Standby::new(&role, Clock::System)))
    }

    pub(crate) fn pending(millis: u64) -> (Rc<PendingCall>, oneshot::Receiver<Reply>) {
        let (reply, answer) = oneshot::channel();
        let asked = OwnedRequest::copy_all(&[Request { key: &Key::new("a"), limit: Limit::WIDEST, cost: 1 }]);
        let action = Action::Take { max_wait: Duration::ZERO };
        let until = Deadline::within(Duration::from_millis(millis));
        (PendingCall::of(Call { action, asked, until, reply }, Weak::new()), answer)
    }

    /// One is under way for long, and far more come and go than there ever are at once.
    #[test]
    fn what_was_answered_long_before_its_deadline_is_not_kept() {
        let deadlines = deadlines();
        let (first, _waits) = pending(10_000);
        deadlines.watch(&first);
        for _ in 0..50_000 {
            let (call, answer) = pending(60_000);
            deadlines.watch(&call);
            call.fail(call.until.late());
            drop(answer);
            assert!(deadlines.calls.borrow().len() <= MANY + 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_is_due_is_told_first_and_nobody_before_its_time() {
        let deadlines = deadlines();
        let mut calls: Vec<_> = [400, 40, 400, 20, 60].map(pending).into();
        calls.iter().for_each(|(call, _)| deadlines.watch(call));
        assert!(deadlines.first().is_some_and(|first| first == calls[3].0.until.instant));
        tokio::time::sleep_until(calls[1].0.until.instant).await;
        let next = deadlines.first();
        let told: Vec<_> = calls.iter_mut().map(|(_, answer)| answer.try_recv().is_ok()).collect();
        assert_eq!(told[..4], [false, true, false, true]);
        assert!(told[4] || next == Some(calls[4].0.until.instant));
    }
}
