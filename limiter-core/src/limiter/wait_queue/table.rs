//! The waiters of all queues and their timers, without the lock around them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::clock::Moment;
use crate::limiter::wait_queue::id::QueueId;

/// The time that a woken waiter has to be polled, before it is passed over.
pub(crate) const GRACE: Duration = Duration::from_millis(10);

/// The interval at which more waiters are woken behind one that is not polled.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);

/// Every waiter that has not been passed over. Each operation takes O(log n) of all waiters.
///
/// Only the first waiter of a queue checks the store. The others sleep, each with one timer: the end of its wait. The
/// first one's timer is its next retry, or the end of its grace period once it was woken. A waiter that is passed over
/// leaves the table, and its next poll puts it back at its number: so those that nobody polls cost nothing.
#[derive(Debug, Default)]
pub(crate) struct WaitTable {
    waiters: BTreeMap<WaiterId, Waiter>,
    timers: BTreeSet<(Moment, WaiterId)>,
}

/// A waiter's queue, and its number in it: earlier calls have lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId {
    pub(crate) queue: QueueId,
    pub(crate) number: u64,
}

/// The times that a waiter acts at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// The store need not be checked before.
    pub(crate) retry_at: Moment,
    /// The end of the wait.
    pub(crate) give_up: Moment,
}

/// What a waiter that was polled has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the first of its queue, and its retry time has come.
    Check,
    /// Its wait is over. It has left the queue.
    TimedOut,
}

/// What a call keeps between its polls.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) id: WaiterId,
    pub(crate) schedule: Schedule,
}

#[derive(Debug)]
struct Waiter {
    schedule: Schedule,
    state: State,
    waker: Option<Waker>,
    /// Its entry in the timers; [`Moment::NEVER`] if it has none.
    timer: Moment,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Its last poll was then, and nothing has woken it since.
    Asleep { polled_at: Moment },
    /// It was woken then, and has not been polled since.
    Woken { at: Moment },
    /// Its check of the store has no answer yet.
    Checking,
    /// The answer came then, and it has not been polled since.
    Answered { at: Moment },
}

/// One step under the lock: its time, and the wakers that it calls and drops once the lock is released, since both may
/// run code of the program.
#[derive(Debug)]
pub(crate) struct Step {
    now: Moment,
    wake: Vec<Waker>,
    drop: Vec<Waker>,
}

impl Step {
    pub(crate) fn at(now: Moment) -> Self {
        Self { now, wake: Vec::new(), drop: Vec::new() }
    }

    pub(crate) fn set_time(&mut self, now: Moment) {
        self.now = now;
    }

    /// Calls the wakers. The caller has released the lock.
    pub(crate) fn finish(self) {
        for waker in self.wake {
            // One that panics must not leave the others asleep: they may be of tasks that have nothing to do with it.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        drop(self.drop);
    }
}

impl WaitTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn has(&self, queue: QueueId) -> bool {
        self.first(queue).is_some()
    }

    pub(crate) fn next_timer(&self) -> Option<Moment> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns what the waiter may do now. Puts it into its queue if it is not there.
    pub(crate) fn poll(&mut self, place: &Place, waker: Waker, step: &mut Step) -> Poll<Turn> {
        let Place { id, schedule } = place;
        let waiter = self.waiters.entry(*id).or_insert_with(|| Waiter::new(*schedule));
        waiter.schedule = *schedule;
        // As long as it checks it is not passed over by what follows.
        waiter.state = State::Checking;
        step.drop.extend(waiter.waker.take());
        self.advance(id.queue, step);
        let is_first = self.first(id.queue) == Some(*id);
        if is_first && schedule.retry_at <= step.now {
            step.drop.push(waker);
            return Poll::Ready(Turn::Check);
        }
        if schedule.give_up <= step.now {
            step.drop.push(waker);
            self.leave(*id, step);
            return Poll::Ready(Turn::TimedOut);
        }
        if let Some(waiter) = self.waiters.get_mut(id) {
            waiter.state = State::Asleep { polled_at: step.now };
            waiter.waker = Some(waker);
        }
        self.set_timer(*id, if is_first { schedule.due() } else { schedule.give_up });
        Poll::Pending
    }

    /// Notes that the waiter's check was polled.
    pub(crate) fn check_polled(&mut self, id: WaiterId) {
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.state = State::Checking;
        }
    }

    /// Notes that the waiter's check can go on: from now on it has its grace period to be polled.
    pub(crate) fn check_woken(&mut self, id: WaiterId, step: &mut Step) {
        if let Some(waiter) = self.waiters.get_mut(&id)
            && let State::Checking = waiter.state
        {
            waiter.state = State::Answered { at: step.now };
            self.set_timer(id, self.next_probe(id.queue, step.now));
            self.advance(id.queue, step);
        }
    }

    /// Removes a waiter, if it is in a queue.
    pub(crate) fn leave(&mut self, id: WaiterId, step: &mut Step) {
        if self.remove(id, step) {
            self.advance(id.queue, step);
        }
    }

    /// Acts on every timer whose time has come.
    pub(crate) fn run_timers(&mut self, step: &mut Step) {
        while let Some(&(at, id)) = self.timers.first()
            && at <= step.now
        {
            if self.first(id.queue) == Some(id) {
                self.advance(id.queue, step);
                continue;
            }
            let Some(waiter) = self.waiters.get_mut(&id) else {
                self.timers.pop_first();
                continue;
            };
            // One that was the first of its queue may have another timer than the end of its wait.
            let timer = if waiter.schedule.give_up <= step.now {
                waiter.wake(step);
                Moment::NEVER
            } else {
                waiter.schedule.give_up
            };
            self.set_timer(id, timer);
        }
    }

    /// The instant by which the first waiter of a queue is expected to go on; `None` if there is no waiter.
    pub(crate) fn first_turn(&self, queue: QueueId, now: Moment) -> Option<Moment> {
        let first = self.waiters.get(&self.first(queue)?)?;
        let turn = match first.state {
            State::Asleep { .. } => first.schedule.due(),
            State::Woken { at } | State::Answered { at } => at.after(GRACE),
            State::Checking => now.after(GRACE),
        };
        // Its time may have come already, if the machine is late.
        Some(turn.max(now.after(PROBE_INTERVAL)))
    }

    /// Passes over waiters that were woken a grace period ago, and wakes the first one if its time has come.
    fn advance(&mut self, queue: QueueId, step: &mut Step) {
        while let Some((&id, first)) = self.waiters.range_mut(of_queue(queue)).next() {
            let timer = match first.state {
                State::Checking => Moment::NEVER,
                State::Asleep { .. } if first.schedule.due() <= step.now => {
                    first.wake(step);
                    self.next_probe(queue, step.now)
                }
                State::Asleep { .. } => first.schedule.due(),
                State::Woken { at } | State::Answered { at } => {
                    let (end, timer) = (at.after(GRACE), first.timer);
                    if end <= step.now {
                        self.remove(id, step);
                        continue;
                    }
                    if step.now < timer && timer <= end {
                        timer
                    } else if self.probe(queue, at, step) {
                        end
                    } else {
                        step.now.after(PROBE_INTERVAL).min(end)
                    }
                }
            };
            self.set_timer(id, timer);
            return;
        }
    }

    /// The first timer of a first waiter that is woken now. One that is alone has nobody to delay.
    fn next_probe(&self, queue: QueueId, now: Moment) -> Moment {
        let is_alone = self.waiters.range(of_queue(queue)).nth(1).is_none();
        now.after(if is_alone { GRACE } else { PROBE_INTERVAL })
    }

    /// Wakes as many more waiters as are woken already, behind a first one that was woken at `since` and not polled.
    /// Returns whether that is enough: one of them was polled meanwhile, or there are no more.
    ///
    /// So however many of them nobody polls, their grace periods run at nearly the same time.
    fn probe(&mut self, queue: QueueId, since: Moment, step: &mut Step) -> bool {
        let mut more = 0_u64;
        for waiter in self.waiters.range_mut(of_queue(queue)).map(|(_, waiter)| waiter) {
            match waiter.state {
                State::Asleep { polled_at } if polled_at > since => return true,
                State::Asleep { .. } if more == 0 => return false,
                State::Asleep { .. } => {
                    waiter.wake(step);
                    more -= 1;
                }
                State::Woken { .. } | State::Answered { .. } | State::Checking => more += 1,
            }
        }
        true
    }

    fn first(&self, queue: QueueId) -> Option<WaiterId> {
        self.waiters.range(of_queue(queue)).next().map(|(id, _)| *id)
    }

    /// Removes a waiter. Returns whether it was there.
    fn remove(&mut self, id: WaiterId, step: &mut Step) -> bool {
        let Some(waiter) = self.waiters.remove(&id) else { return false };
        self.timers.remove(&(waiter.timer, id));
        step.drop.extend(waiter.waker);
        true
    }

    fn set_timer(&mut self, id: WaiterId, at: Moment) {
        let Some(waiter) = self.waiters.get_mut(&id) else { return };
        if waiter.timer == at {
            return;
        }
        self.timers.remove(&(waiter.timer, id));
        waiter.timer = at;
        if at < Moment::NEVER {
            self.timers.insert((at, id));
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.waiters.len(), self.timers.len())
    }
}

impl Schedule {
    /// The first instant at which the first waiter of a queue has something to do.
    fn due(&self) -> Moment {
        self.retry_at.min(self.give_up)
    }
}

impl Waiter {
    fn new(schedule: Schedule) -> Self {
        Self { schedule, state: State::Checking, waker: None, timer: Moment::NEVER }
    }

    /// Wakes it, unless it was woken already or checks the store.
    fn wake(&mut self, step: &mut Step) {
        if let State::Asleep { .. } = self.state {
            self.state = State::Woken { at: step.now };
            step.wake.extend(self.waker.take());
        }
    }
}

/// The waiters of one queue, in their order.
fn of_queue(queue: QueueId) -> RangeInclusive<WaiterId> {
    WaiterId { queue, number: 0 }..=WaiterId { queue, number: u64::MAX }
}
