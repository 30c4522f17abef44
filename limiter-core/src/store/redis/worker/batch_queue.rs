//! What waits for a server: calls queue here while others are under way, and go together when one of those comes back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;
use std::rc::{Rc, Weak};

use crate::store::redis::connection::script_call::ScriptCall;
use crate::store::redis::worker::pending_call::PendingCall;

#[derive(Default)]
pub(crate) struct BatchQueue {
    queue: RefCell<VecDeque<Rc<PendingCall>>>,
    /// Groups, and the calls in them.
    under_way: Cell<usize>,
    aboard: Cell<usize>,
    exchanges: RefCell<Vec<Weak<ScriptCall>>>,
}

/// Groups under way at a time, however large: while the server decides one, the next is on the wire.
const UNDER_WAY: usize = 2;
/// The same, while few calls are under way: small groups keep the server busy only if they are more.
const SMALL_UNDER_WAY: usize = 4;
const FEW_CALLS: usize = 64;
/// Calls that are looked at for a group.
const MOST_CALLS: usize = 1024;

impl BatchQueue {
    pub(crate) fn push(&self, call: Rc<PendingCall>) {
        self.queue.borrow_mut().push_back(call);
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// The calls that are to go now, if any may. Nothing waits for a group to fill: the first is sent alone.
    pub(crate) fn depart(&self) -> Option<Vec<Rc<PendingCall>>> {
        let mut queue = self.queue.borrow_mut();
        let most = if self.aboard.get() < FEW_CALLS { SMALL_UNDER_WAY } else { UNDER_WAY };
        if queue.is_empty() || self.under_way.get() >= most {
            return None;
        }
        self.under_way.set(self.under_way.get() + 1);
        let calls = queue.len().min(MOST_CALLS);
        Some(queue.drain(..calls).collect())
    }

    /// Calls that have found no room in their group are the first of the next.
    pub(crate) fn put_back(&self, calls: Vec<Rc<PendingCall>>) {
        let mut queue = self.queue.borrow_mut();
        calls.into_iter().rev().for_each(|call| queue.push_front(call));
    }

    /// So many calls have found room in the group that departs.
    pub(crate) fn board(&self, calls: usize) {
        self.aboard.set(self.aboard.get() + calls);
    }

    /// A group with so many calls is back.
    pub(crate) fn arrive(&self, calls: usize) {
        self.under_way.set(self.under_way.get() - 1);
        self.aboard.set(self.aboard.get() - calls);
    }

    /// What calls in the queue wait for from now on.
    pub(crate) fn left(&self, exchange: &Rc<ScriptCall>) {
        self.exchanges.borrow_mut().push(Rc::downgrade(exchange));
    }

    pub(crate) fn came_back(&self, exchange: &Rc<ScriptCall>) {
        self.exchanges.borrow_mut().retain(|other| !ptr::eq(other.as_ptr(), Rc::as_ptr(exchange)));
    }

    /// The time of a call was over in the queue: what is under way has taken it.
    pub(crate) fn late(&self) {
        self.exchanges.borrow().iter().filter_map(Weak::upgrade).for_each(|exchange| exchange.late());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::request::{OwnedRequest, Request};
    use crate::store::redis::worker::call::{Action, Call, Deadline};
    use crate::{Key, Limit};

    fn call() -> Rc<PendingCall> {
        let asked = OwnedRequest::copy_all(&[Request { key: &Key::new("a"), limit: Limit::WIDEST, cost: 1 }]);
        let action = Action::Take { max_wait: Duration::ZERO };
        let until = Deadline::within(Duration::from_secs(1));
        PendingCall::of(Call { action, asked, until, reply: oneshot::channel().0 }, Weak::new())
    }

    /// Lines up so many more, and gives how many go.
    fn departs(lane: &BatchQueue, calls: usize) -> Option<usize> {
        (0..calls).for_each(|_| lane.push(call()));
        let calls = lane.depart()?.len();
        lane.board(calls);
        Some(calls)
    }

    #[test]
    fn four_small_groups_are_under_way_and_two_large_ones() {
        let lane = BatchQueue::default();
        for _ in 0..4 {
            assert_eq!(departs(&lane, 1), Some(1));
        }
        assert_eq!(departs(&lane, 100), None);
        lane.arrive(1);
        assert_eq!(departs(&lane, 0), Some(100));
        for calls in [1, 1] {
            lane.arrive(calls);
            assert_eq!(departs(&lane, 1), None, "so that the others share a call");
        }
        lane.arrive(1);
        assert_eq!(departs(&lane, 0), Some(2), "the second");
        assert_eq!(departs(&lane, 1), None);
        lane.arrive(100);
        for calls in [1, 1, 1] {
            assert_eq!(departs(&lane, calls - usize::from(lane.is_waited_for())), Some(1), "small again");
        }
        assert_eq!(departs(&lane, 1), None);
    }
}
