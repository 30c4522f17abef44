//! Watches that every call is answered in time, with one timer for all.

use std::cell::{Cell, RefCell};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::pending::Pending;
use crate::standby::Standby;

pub(super) struct Deadlines {
    calls: RefCell<BinaryHeap<Reverse<Due>>>,
    /// So many calls are looked through for those that have been answered long before their deadlines.
    many: Cell<usize>,
    /// Told when a call is due before all others.
    earlier: Notify,
    standby: Arc<Standby>,
}

const A_FEW: usize = 64;
const MANY: usize = 1024;

/// A call, by its deadline.
struct Due(Rc<Pending>);

impl Deadlines {
    pub(super) fn new(standby: &Arc<Standby>) -> Self {
        Self { calls: RefCell::default(), many: Cell::new(MANY), earlier: Notify::new(), standby: Arc::clone(standby) }
    }

    pub(super) fn watch(&self, call: &Rc<Pending>) {
        let mut calls = self.calls.borrow_mut();
        while calls.peek().is_some_and(|Reverse(Due(call))| call.is_answered()) {
            calls.pop();
        }
        if calls.len() >= self.many.get() {
            calls.retain(|Reverse(Due(call))| !call.is_answered());
            self.many.set(MANY.max(2 * calls.len()));
        }
        if calls.peek().is_none_or(|Reverse(first)| call.until.instant < first.instant()) {
            self.earlier.notify_one();
        }
        calls.push(Reverse(Due(Rc::clone(call))));
    }

    /// Answers those whose time is over.
    pub(super) async fn keep(&self) {
        loop {
            match self.first() {
                None => self.earlier.notified().await,
                Some(first) if first <= Instant::now() => yield_now().await,
                // Whichever is first.
                Some(first) => drop(timeout_at(first, self.earlier.notified()).await),
            }
        }
    }

    /// When the next call is due, after answering those that are: a few, so that others get their turn.
    fn first(&self) -> Option<Instant> {
        let now = Instant::now();
        for _ in 0..A_FEW {
            let Reverse(Due(call)) = {
                let mut calls = self.calls.borrow_mut();
                let Reverse(first) = calls.peek()?;
                if !first.0.is_answered() && first.instant() > now {
                    return Some(first.instant());
                }
                calls.pop()?
            };
            // One that was never sent, and that nobody waits for, has not failed.
            if !call.is_answered() && (call.was_sent() || call.is_wanted()) {
                self.standby.call_failed(&[call.question()]);
                call.late();
            }
        }
        Some(now)
    }
}

impl Due {
    fn instant(&self) -> Instant {
        self.0.until.instant
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
mod tests {
    use std::num::NonZeroU32;
    use std::rc::Weak;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::clock::Clock;
    use crate::standby::Role;
    use crate::store::naming::Naming;
    use crate::store::redis::call::{Action, Call, Reply, Until};
    use crate::store::{Asked, Question};
    use crate::{Key, Limit};

    fn deadlines() -> Deadlines {
        let role = Role { max_keys: 10, instances: NonZeroU32::MIN, slots: 1, naming: Arc::new(Naming::new("", None)) };
        Deadlines::new(&Arc::new(Standby::new(&role, Clock::System)))
    }

    fn pending(millis: u64) -> (Rc<Pending>, oneshot::Receiver<Reply>) {
        let (reply, answer) = oneshot::channel();
        let asked = Asked::all(&[Question { key: &Key::new("a"), limit: Limit::WIDEST, cost: 1 }]);
        let action = Action::Take { patience: Duration::ZERO };
        let until = Until::within(Duration::from_millis(millis));
        (Pending::of(Call { action, asked, until, reply }, Weak::new()), answer)
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
            call.late();
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
