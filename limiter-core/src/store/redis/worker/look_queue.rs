//! The queue of the looks that are due at one server, and the messages in flight to it.
//!
//! A look makes a message, whose reply must come within a deadline. After a reconnect all keys are due at once: too many
//! messages at a time would have their replies too late, and be sent again. So a bounded number is in flight, and the
//! rest stays due.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::iter;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use super::call::Deadline;
use super::slot_looks::{LookPlace, SlotLooks};
use crate::concurrency::SlotsOfKey;
use crate::store::redis::connection::managed::{ManagedConnection, with_jitter};
use crate::store::redis::naming::RedisKey;

/// The looks that are due at one server, or at those that are not connected.
#[derive(Default)]
pub(super) struct LookQueue {
    connection: Weak<ManagedConnection>,
    /// Its messages are about keys of several slots, which have a script call each.
    is_of_cluster: bool,
    due: RefCell<VecDeque<DueLook>>,
    /// Those for which calls wait.
    awaited: RefCell<VecDeque<(DueLook, Deadline)>>,
    is_turn_of_due: Cell<bool>,
    in_flight: Cell<usize>,
    /// The batches that were sent, also up to the last failure that counts.
    sent: Cell<u64>,
    sent_before_failure: Cell<u64>,
    /// The failures since the last reply. Of batches that were in flight at the same time, one counts.
    failures: Cell<u32>,
}

/// A look that is due at the slots of a key.
pub(super) struct DueLook {
    pub(super) slots: Arc<SlotsOfKey>,
    pub(super) key: RedisKey,
}

/// A batch of messages in flight. Its drop makes room for others.
pub(super) struct SlotPermit {
    pub(super) queue: Rc<LookQueue>,
    messages: usize,
    sent_before: u64,
}

/// The most messages of one script call.
pub(super) const MAX_BATCH_MESSAGES: usize = 64;
/// The most messages in flight to one server.
const MAX_MESSAGES: usize = 4 * MAX_BATCH_MESSAGES;
/// The shortest time after a failure until the next message.
const MIN_RETRY: Duration = Duration::from_millis(100);
/// The longest one.
const MAX_RETRY: Duration = Duration::from_secs(1);

impl LookQueue {
    pub(super) fn new(connection: Weak<ManagedConnection>, is_of_cluster: bool) -> Self {
        Self { connection, is_of_cluster, ..Self::default() }
    }

    /// Returns whether it is the queue of this server.
    pub(super) fn is_of(&self, connection: &Weak<ManagedConnection>) -> bool {
        self.connection.ptr_eq(connection)
    }

    /// Returns whether nothing would be lost with it: the server has left the cluster, and no look is due.
    pub(super) fn is_unused(&self) -> bool {
        self.connection.strong_count() == 0 && self.len() == 0 && self.in_flight.get() == 0
    }

    pub(super) fn push(&self, look: DueLook) {
        self.due.borrow_mut().push_back(look);
    }

    /// Adds a look for which calls wait. They get an outcome soon after the deadline.
    pub(super) fn push_awaited(&self, look: DueLook, deadline: Deadline) {
        self.awaited.borrow_mut().push_back((look, deadline));
    }

    fn len(&self) -> usize {
        self.due.borrow().len() + self.awaited.borrow().len()
    }

    /// The number of messages that may be sent now. Failures make it smaller: the server may have too much to do.
    ///
    /// A small batch costs the server more for each message. So looks for which there is no room wait for that of a whole
    /// batch, and those for which no call waits until they are a whole batch or nothing is in flight.
    pub(super) fn room(&self) -> usize {
        let max = MAX_MESSAGES >> self.failures.get().min(2);
        let room = max.saturating_sub(self.in_flight.get());
        let is_small = self.len() < MAX_BATCH_MESSAGES && !self.is_of_cluster;
        let can_wait = is_small && self.awaited.borrow().is_empty() && self.in_flight.get() > 0;
        if can_wait || room < self.len().min(MAX_BATCH_MESSAGES) { 0 } else { room }
    }

    /// Takes the next look out, if it may be sent, or if its calls have waited for too long. Then it has their deadline.
    ///
    /// Every other one is a look for which no call waits: without its message slots may be lost.
    pub(super) fn next(&self, looks: &mut SlotLooks, has_room: bool) -> Option<(DueLook, Option<Deadline>)> {
        let (mut awaited, mut due) = (self.awaited.borrow_mut(), self.due.borrow_mut());
        let is_over = awaited.front().is_some_and(|(_, deadline)| deadline.is_over());
        if !has_room && !is_over {
            return None;
        }
        // A call may have come for some of them: their looks have moved.
        let mut next_due = || iter::from_fn(|| due.pop_front()).find(|look| looks.end(&look.slots, LookPlace::Due));
        let is_turn = has_room && self.is_turn_of_due.replace(!self.is_turn_of_due.get());
        if is_turn && let Some(look) = next_due() {
            return Some((look, None));
        }
        match awaited.pop_front() {
            Some((look, deadline)) => {
                looks.end(&look.slots, LookPlace::Awaited);
                Some((look, is_over.then_some(deadline)))
            }
            None => next_due().map(|look| (look, None)),
        }
    }

    /// Counts a batch of so many messages as in flight.
    pub(super) fn send(self: &Rc<Self>, messages: usize) -> SlotPermit {
        let sent_before = self.sent.replace(self.sent.get() + 1);
        self.in_flight.set(self.in_flight.get() + messages);
        SlotPermit { queue: Rc::clone(self), messages, sent_before }
    }

    /// The time after a failure until the next message about a key: a random one, which grows with each failure.
    pub(super) fn retry_pause(&self) -> Duration {
        let growth = 1 << self.failures.get().saturating_sub(1).min(4);
        with_jitter((growth * MIN_RETRY).min(MAX_RETRY))
    }
}

impl SlotPermit {
    pub(super) fn replied(&self) {
        self.queue.failures.set(0);
    }

    pub(super) fn failed(&self) {
        let LookQueue { sent, sent_before_failure, failures, .. } = &*self.queue;
        if self.sent_before >= sent_before_failure.get() {
            sent_before_failure.set(sent.get());
            failures.set(failures.get().saturating_add(1));
        }
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        let in_flight = &self.queue.in_flight;
        in_flight.set(in_flight.get() - self.messages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use crate::clock::Clock;
    use crate::concurrency::SlotTable;
    use crate::store::redis::naming::Naming;

    fn look_at(slots: &Arc<SlotsOfKey>) -> DueLook {
        DueLook { slots: Arc::clone(slots), key: Naming::new("", None, false).slots_key(slots.key()) }
    }

    #[test]
    fn the_messages_in_flight_are_bounded_and_fewer_after_failures() {
        let queue = Rc::new(LookQueue::default());
        let in_flight: Vec<_> = (0..4).map(|_| queue.send(MAX_BATCH_MESSAGES)).collect();
        assert_eq!(queue.room(), 0);
        // All of them were sent before the first failure.
        in_flight.iter().for_each(SlotPermit::failed);
        drop(in_flight);
        assert_eq!(queue.room(), MAX_MESSAGES / 2);
        for _ in 0..10 {
            queue.send(1).failed();
            assert_eq!(queue.room(), MAX_MESSAGES / 4);
        }
        queue.send(1).replied();
        assert_eq!(queue.room(), MAX_MESSAGES);
    }

    #[test]
    fn the_pause_after_a_failure_is_random_and_grows_up_to_a_second() {
        let queue = Rc::new(LookQueue::default());
        for longest in [100, 100, 200, 400, 800, 1000, 1000, 1000].map(Duration::from_millis) {
            let pauses: Vec<_> = (0..100).map(|_| queue.retry_pause()).collect();
            assert!(pauses.iter().all(|pause| (longest / 2..=longest).contains(pause)), "{pauses:?}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]));
            queue.send(1).failed();
        }
    }

    /// Adds looks, of which calls wait for the last ones.
    fn fill(queue: &LookQueue, looks: &mut SlotLooks, due: usize, awaited: usize) -> Vec<Arc<SlotsOfKey>> {
        let table = SlotTable::new(Clock::System, None);
        let all: Vec<_> = (0..due + awaited).map(|number| table.slots_of(&Key::new("k:").part(number))).collect();
        for slots in &all {
            looks.set_place(slots, LookPlace::Due);
            queue.push(look_at(slots));
        }
        for slots in &all[due..] {
            looks.set_place(slots, LookPlace::Awaited);
            queue.push_awaited(look_at(slots), Deadline::after(Duration::from_millis(100)));
        }
        all
    }

    #[test]
    fn looks_for_which_there_is_no_room_wait_for_that_of_a_batch() {
        let (queue, mut looks) = (Rc::new(LookQueue::default()), SlotLooks::default());
        let mut in_flight: Vec<_> = (2..MAX_MESSAGES).map(|_| queue.send(1)).collect();
        // It has a place among those that are due as well.
        fill(&queue, &mut looks, 0, 1);
        assert_eq!(queue.room(), 2);
        fill(&queue, &mut looks, MAX_BATCH_MESSAGES, 0);
        while in_flight.len() > MAX_MESSAGES - MAX_BATCH_MESSAGES {
            assert_eq!(queue.room(), 0);
            in_flight.pop();
        }
        assert_eq!(queue.room(), MAX_BATCH_MESSAGES);
    }

    #[test]
    fn looks_without_calls_wait_while_messages_are_in_flight_until_they_are_a_batch() {
        let (queue, mut looks) = (Rc::new(LookQueue::default()), SlotLooks::default());
        let in_flight = queue.send(1);
        for _ in 1..MAX_BATCH_MESSAGES {
            fill(&queue, &mut looks, 1, 0);
            assert_eq!(queue.room(), 0);
        }
        fill(&queue, &mut looks, 1, 0);
        assert_eq!(queue.room(), MAX_MESSAGES - 1);
        queue.next(&mut looks, true).expect("a whole batch");
        assert_eq!(queue.room(), 0, "the rest");
        fill(&queue, &mut looks, 0, 1);
        assert_eq!(queue.room(), MAX_MESSAGES - 1, "a call waits");
        while queue.next(&mut looks, true).is_some() {}
        fill(&queue, &mut looks, 1, 0);
        assert_eq!(queue.room(), 0);
        drop(in_flight);
        assert_eq!(queue.room(), MAX_MESSAGES, "nothing is in flight");
    }

    #[test]
    fn looks_take_turns_with_those_for_which_calls_wait() {
        let (queue, mut looks) = (LookQueue::default(), SlotLooks::default());
        let all = fill(&queue, &mut looks, 3, 2);
        let order: Vec<_> = iter::from_fn(|| queue.next(&mut looks, true))
            .map(|(look, _)| all.iter().position(|slots| Arc::ptr_eq(slots, &look.slots)))
            .collect();
        assert_eq!(order, [3, 0, 4, 1, 2].map(Some));
        assert_eq!(looks.len(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn without_room_looks_wait_unless_their_calls_have_waited_for_too_long() {
        let (queue, mut looks) = (LookQueue::default(), SlotLooks::default());
        let all = fill(&queue, &mut looks, 1, 1);
        assert!(queue.next(&mut looks, false).is_none());
        tokio::time::advance(Duration::from_millis(100)).await;
        let (next, missed) = queue.next(&mut looks, false).expect("its calls have waited for too long");
        assert!(Arc::ptr_eq(&next.slots, &all[1]) && missed.is_some());
        assert!(queue.next(&mut looks, false).is_none());
        assert!(queue.next(&mut looks, true).is_some());
    }
}
