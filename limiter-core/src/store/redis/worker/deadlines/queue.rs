//! Calls in the order of their deadlines.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use tokio::time::Instant;

use crate::store::redis::worker::pending_call::PendingCall;

/// A queue for the usual case: most calls have the same timeout, so they arrive nearly in the order of their deadlines.
/// A heap takes the others, since each step through a large heap costs a cache miss.
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
mod tests {
    use super::super::tests::pending;
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
