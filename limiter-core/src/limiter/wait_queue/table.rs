//! The waiters of all queues and their timers, without the lock around them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::clock::Moment;
use crate::limiter::wait_queue::QueueId;
use crate::limiter::wait_queue::changes::MovingCalls;
use crate::limiter::wait_queue::demand::Demands;
use crate::limiter::wait_queue::queues::{Costs, Queues};
use crate::run::run_contained;

/// The time after which a woken waiter is passed over if it was not polled.
pub(crate) const GRACE: Duration = Duration::from_millis(10);

/// The interval at which more waiters are woken behind one that is not polled.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);

/// The shortest time between two wake-ups of all waiters after changes of the rules.
const RULES_INTERVAL: Duration = Duration::from_millis(100);

/// The part of that time for each waiter, so that wake-ups of many waiters do not fill the time.
const RULES_INTERVAL_PER_WAITER: Duration = Duration::from_micros(10);

/// Every waiter that has not been passed over. Each operation takes O(log n) of all waiters, but for those that act on
/// all queues after a change of the rules.
///
/// Only the first waiter of a queue checks the store. The others sleep, each with one timer for the end of its wait.
/// The first one's timer is its next retry, or the end of its grace period once it was woken. A waiter that is passed
/// over leaves the table, and its next poll puts it back at its number. So waiters that are never polled cost nothing.
#[derive(Debug)]
pub(crate) struct WaitTable {
    waiters: BTreeMap<WaiterId, Waiter>,
    timers: BTreeSet<(Moment, WaiterId)>,
    queues: Queues,
    moving: MovingCalls,
    /// The instant at which all waiters are woken, because the rules have changed.
    wake_all_at: Option<Moment>,
    /// The earliest instant of the next such wake-up.
    next_wake_all: Moment,
}

/// A waiter's queue, and its number in it: earlier calls have lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId {
    pub(crate) queue: QueueId,
    pub(crate) number: u64,
}

/// The times at which a waiter acts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// The earliest instant of the next check of the store.
    pub(crate) retry_at: Moment,
    /// The end of the wait.
    pub(crate) deadline: Moment,
    /// The version of the call's counters before its last check. If it is another one now, permits came back, and the
    /// call checks again at once.
    pub(crate) version: u64,
}

/// The next action of a waiter that was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the first of its queue, and its retry time has come or permits came back.
    Check,
    /// It is the first of its queue. Another process may have given permits back since its last check.
    ExtraCheck,
    /// Its wait is over. It has left the queue.
    TimedOut,
    /// The rules have changed since the call read them. It keeps its position.
    RulesChanged,
}

/// The data that a call keeps between its polls.
#[derive(Debug)]
pub(crate) struct WaiterEntry {
    pub(crate) id: WaiterId,
    pub(crate) schedule: Schedule,
    pub(crate) demands: Demands,
}

#[derive(Debug)]
struct Waiter {
    schedule: Schedule,
    demands: Demands,
    state: WaiterState,
    waker: Option<Waker>,
    /// The instant of its timer; [`Moment::NEVER`] if it has none.
    timer: Moment,
}

#[derive(Clone, Copy, Debug)]
enum WaiterState {
    /// Last polled at `polled_at`, and not woken since.
    Asleep { polled_at: Moment },
    /// Woken, and not polled since.
    Woken { at: Moment },
    /// Checking the store, without a reply so far.
    Checking,
    /// Woken by the reply to its check, and not polled since.
    Replied { at: Moment },
}

/// One step under the lock: its time, and the wakers that it calls and drops once the lock is released. Both may run
/// code of the program.
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
            // A waker that panics must not leave unrelated tasks asleep.
            run_contained(|| waker.wake());
        }
        drop(self.drop);
    }
}

impl WaitTable {
    pub(crate) fn new(queues: Queues) -> Self {
        let (waiters, timers, moving) = (BTreeMap::new(), BTreeSet::new(), MovingCalls::default());
        Self { waiters, timers, queues, moving, wake_all_at: None, next_wake_all: Moment::PAST }
    }

    /// Returns whether no call waits, and none moves to another queue.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.moving.is_empty()
    }

    /// The instant at which the move of calls to other queues ends at the latest; `None` if no call moves.
    pub(crate) fn end_of_move(&self) -> Option<Moment> {
        self.moving.end()
    }

    /// Records that a call is in its queue after a change of the rules, or has ended.
    pub(crate) fn settle(&mut self, number: u64, step: &mut Step) {
        if self.moving.settle(number) {
            self.advance_all(step);
        }
    }

    pub(crate) fn has(&self, queue: QueueId) -> bool {
        self.first(queue).is_some()
    }

    pub(crate) fn next_timer(&self) -> Option<Moment> {
        if self.is_empty() {
            return None;
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        [timer, self.wake_all_at, self.moving.end(), self.queues.next_wake()].into_iter().flatten().min()
    }

    /// Returns the waiter's next action, if there is one now. Puts the waiter into its queue if it is not there.
    pub(crate) fn poll(&mut self, entry: &mut WaiterEntry, waker: Waker, step: &mut Step) -> Poll<Turn> {
        let WaiterEntry { id, schedule, demands } = entry;
        let waiter = self.waiters.entry(*id).or_insert_with(|| {
            self.queues.add(id.queue, demands, step.now);
            Waiter::new(*schedule, demands.clone())
        });
        waiter.schedule = *schedule;
        // A checking waiter is not passed over by the next lines.
        waiter.state = WaiterState::Checking;
        step.drop.extend(waiter.waker.take());
        self.settle(id.number, step);
        self.advance(id.queue, step);
        let is_first = self.first(id.queue) == Some(*id);
        let turn = if is_first && self.checks_at(*id, schedule) <= step.now {
            Some(Turn::Check)
        } else if schedule.deadline <= step.now {
            Some(Turn::TimedOut)
        } else if is_first && self.extra_check_at(*id) <= step.now {
            Some(Turn::ExtraCheck)
        } else {
            None
        };
        if let Some(turn) = turn {
            step.drop.push(waker);
            match turn {
                Turn::Check | Turn::ExtraCheck => {
                    schedule.version = self.queues.begin_check(id.queue, schedule.version, step.now);
                }
                Turn::TimedOut | Turn::RulesChanged => self.leave(*id, step),
            }
            return Poll::Ready(turn);
        }
        if let Some(waiter) = self.waiters.get_mut(id) {
            waiter.state = WaiterState::Asleep { polled_at: step.now };
            waiter.waker = Some(waker);
        }
        let timer = if is_first { self.due(*id, schedule) } else { schedule.deadline };
        self.set_timer(*id, timer);
        Poll::Pending
    }

    /// Records that the waiter's check was polled.
    pub(crate) fn check_polled(&mut self, id: WaiterId) {
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.state = WaiterState::Checking;
        }
    }

    /// Records that the waiter's check can go on. The waiter's grace period begins.
    pub(crate) fn check_woken(&mut self, id: WaiterId, step: &mut Step) {
        if let Some(waiter) = self.waiters.get_mut(&id)
            && let WaiterState::Checking = waiter.state
        {
            waiter.state = WaiterState::Replied { at: step.now };
            self.set_timer(id, self.next_probe(id.queue, step.now));
            self.advance(id.queue, step);
        }
    }

    /// Removes a waiter if it is in a queue.
    pub(crate) fn leave(&mut self, id: WaiterId, step: &mut Step) {
        if self.remove(id, step) {
            self.advance(id.queue, step);
        }
    }

    /// Wakes the first waiter of each queue whose calls need permits of a counter, because permits of it came back. Many
    /// queues are paced.
    pub(crate) fn counter_changed(&mut self, counter: u64, step: &mut Step) {
        let queues = self.queues.by_counter().changed(counter, step.now);
        queues.into_iter().for_each(|queue| self.advance(queue, step));
    }

    /// Wakes all waiters, because the rules have changed: now, or a while after the last change.
    pub(crate) fn rules_changed(&mut self, step: &mut Step) {
        self.wake_all_at.get_or_insert(self.next_wake_all);
        self.wake_all_if_due(step);
    }

    fn wake_all_if_due(&mut self, step: &mut Step) {
        if self.wake_all_at.is_none_or(|at| at > step.now) {
            return;
        }
        self.wake_all_at = None;
        let waiters = u32::try_from(self.waiters.len()).unwrap_or(u32::MAX);
        let interval = RULES_INTERVAL.max(RULES_INTERVAL_PER_WAITER.saturating_mul(waiters));
        self.next_wake_all = step.now.after(interval);
        self.moving.begin(self.waiters.keys().map(|id| id.number), step.now.after(GRACE));
        self.waiters.values_mut().for_each(|waiter| waiter.wake(step));
        self.advance_all(step);
    }

    fn advance_all(&mut self, step: &mut Step) {
        self.queues.ids().into_iter().for_each(|queue| self.advance(queue, step));
    }

    /// Runs every timer that is due.
    pub(crate) fn run_timers(&mut self, step: &mut Step) {
        if self.moving.end_if_due(step.now) {
            self.advance_all(step);
        }
        self.wake_all_if_due(step);
        let queues = self.queues.by_counter().due(step.now);
        queues.into_iter().for_each(|queue| self.advance(queue, step));
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
            // A former first waiter may have another timer than the end of its wait.
            let timer = if waiter.schedule.deadline <= step.now {
                waiter.wake(step);
                Moment::NEVER
            } else {
                waiter.schedule.deadline
            };
            self.set_timer(id, timer);
        }
    }

    /// Returns the instant by which the first waiter of a queue is expected to take its permits; `None` without a
    /// waiter.
    pub(crate) fn first_turn(&self, queue: QueueId, now: Moment) -> Option<Moment> {
        let id = self.first(queue)?;
        let first = self.waiters.get(&id)?;
        let turn = match first.state {
            WaiterState::Asleep { .. } => self.checks_at(id, &first.schedule).min(first.schedule.deadline),
            WaiterState::Woken { at } | WaiterState::Replied { at } => at.after(GRACE),
            WaiterState::Checking => now.after(GRACE),
        };
        // On a machine that is late the time may have come already.
        Some(turn.max(now.after(PROBE_INTERVAL)))
    }

    /// The costs of the waiters that are ahead of a call; `None` if its queue is empty.
    pub(crate) fn costs_ahead(&self, id: WaiterId) -> Option<Costs> {
        let mut costs = self.queues.costs(id.queue)?;
        // Few calls have entered the queue before one with a lower number.
        for (_, behind) in self.waiters.range(id..=last_of(id.queue)) {
            costs.change(&behind.demands, u64::saturating_sub);
        }
        let ahead = self.waiters.range(WaiterId { number: 0, ..id }..id).map(|(_, waiter)| waiter);
        for waiter in ahead.take_while(|waiter| waiter.may_have_permits()) {
            costs.change(&waiter.demands, u64::saturating_sub);
        }
        Some(costs)
    }

    /// Passes over waiters whose grace period is over, and wakes the first waiter if its time has come.
    fn advance(&mut self, queue: QueueId, step: &mut Step) {
        while let Some((&id, first)) = self.waiters.range(of_queue(queue)).next() {
            let due = self.due(id, &first.schedule);
            let Some(first) = self.waiters.get_mut(&id) else { return };
            let timer = match first.state {
                WaiterState::Checking => Moment::NEVER,
                WaiterState::Asleep { .. } if due <= step.now => {
                    first.wake(step);
                    self.next_probe(queue, step.now)
                }
                WaiterState::Asleep { .. } => due,
                WaiterState::Woken { at } | WaiterState::Replied { at } => {
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

    /// The instant at which a waiter that is first in its queue acts next.
    fn due(&self, id: WaiterId, schedule: &Schedule) -> Moment {
        self.checks_at(id, schedule).min(schedule.deadline).min(self.extra_check_at(id))
    }

    /// The instant at which a waiter that is first in its queue checks the store, unless its wait is over before.
    fn checks_at(&self, id: WaiterId, schedule: &Schedule) -> Moment {
        let after_change = self.queues.change_check_at(id.queue, schedule.version);
        let retry_at = after_change.map_or(schedule.retry_at, |at| at.min(schedule.retry_at));
        retry_at.max(self.moving.may_check_at(id.number).min(schedule.deadline))
    }

    /// The instant at which a waiter that is first in its queue checks the store again.
    fn extra_check_at(&self, id: WaiterId) -> Moment {
        self.queues.extra_check_at(id.queue).max(self.moving.may_check_at(id.number))
    }

    /// The timer of a first waiter that is woken now. A waiter that is alone in its queue delays no other.
    fn next_probe(&self, queue: QueueId, now: Moment) -> Moment {
        let is_alone = self.waiters.range(of_queue(queue)).nth(1).is_none();
        now.after(if is_alone { GRACE } else { PROBE_INTERVAL })
    }

    /// Doubles the number of woken waiters, behind a first one that was woken at `since` and not polled. Returns
    /// whether no more probes are needed: one of them was polled meanwhile, or all are woken.
    ///
    /// So the grace periods of waiters that are not polled run at nearly the same time, however many there are.
    fn probe(&mut self, queue: QueueId, since: Moment, step: &mut Step) -> bool {
        let mut more = 0_u64;
        for waiter in self.waiters.range_mut(of_queue(queue)).map(|(_, waiter)| waiter) {
            match waiter.state {
                WaiterState::Asleep { polled_at } if polled_at > since => return true,
                WaiterState::Asleep { .. } if more == 0 => return false,
                WaiterState::Asleep { .. } => {
                    waiter.wake(step);
                    more -= 1;
                }
                WaiterState::Woken { .. } | WaiterState::Replied { .. } | WaiterState::Checking => more += 1,
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
        if waiter.may_have_permits() {
            self.queues.end_interval(id.queue);
        }
        self.queues.remove(id.queue, &waiter.demands);
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

impl Waiter {
    fn new(schedule: Schedule, demands: Demands) -> Self {
        Self { schedule, demands, state: WaiterState::Checking, waker: None, timer: Moment::NEVER }
    }

    /// Returns whether its check runs or has ended, so that it may have its permits already.
    fn may_have_permits(&self) -> bool {
        matches!(self.state, WaiterState::Checking | WaiterState::Replied { .. })
    }

    /// Wakes the waiter, unless it was woken already or checks the store.
    fn wake(&mut self, step: &mut Step) {
        if let WaiterState::Asleep { .. } = self.state {
            self.state = WaiterState::Woken { at: step.now };
            step.wake.extend(self.waker.take());
        }
    }
}

/// The waiters of one queue, in their order.
fn of_queue(queue: QueueId) -> RangeInclusive<WaiterId> {
    WaiterId { queue, number: 0 }..=last_of(queue)
}

fn last_of(queue: QueueId) -> WaiterId {
    WaiterId { queue, number: u64::MAX }
}
