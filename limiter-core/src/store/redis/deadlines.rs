//! Watches that every call is answered in time, with one timer for all.

use std::cell::RefCell;
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
    /// Told when a call is due before all others.
    earlier: Notify,
    standby: Arc<Standby>,
}

const A_FEW: usize = 64;

/// A call, by its deadline.
struct Due(Rc<Pending>);

impl Deadlines {
    pub(super) fn new(standby: &Arc<Standby>) -> Self {
        Self { calls: RefCell::default(), earlier: Notify::new(), standby: Arc::clone(standby) }
    }

    pub(super) fn watch(&self, call: &Rc<Pending>) {
        let mut calls = self.calls.borrow_mut();
        while calls.peek().is_some_and(|Reverse(Due(call))| call.is_answered()) {
            calls.pop();
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
            if !call.is_answered() {
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
