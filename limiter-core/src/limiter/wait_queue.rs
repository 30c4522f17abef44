//! Queues of calls that wait in this process: one for each set of counters, in the order of the calls' numbers.
//!
//! A waiter sleeps in its future. All waiters share one alarm on the limiter's clock. The alarm acts on the queues even
//! while no future is polled, so a waiter that is not polled does not block the next one.

use std::collections::hash_map::RandomState;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::Error;
use crate::clock::{Clock, Moment};
use crate::request::Request;
use crate::sync::process::Process;
use crate::sync::{Mutex, MutexGuard, lock};

mod alarm;
mod demand;
mod changes;
mod queues;
mod table;

use alarm::Alarm;
use changes::Changes;
pub(crate) use demand::Demands;
use demand::{in_order, most_permits};
use queues::Queues;
pub(crate) use table::{Schedule, Turn};
use table::{Step, WaitTable, WaiterEntry, WaiterId};

/// The queues of one limiter.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    clock: Clock,
    /// The process of the calls that wait. A child of `fork` has a copy that no call of its own uses, and its lock may be
    /// held for ever.
    process: Process,
    ids: QueueIds,
    /// The changes of all counters, of which the table has a reference.
    changes: Arc<Changes>,
    state: Mutex<QueuesState>,
}

#[derive(Debug)]
struct QueuesState {
    table: WaitTable,
    alarm: Option<Alarm>,
}

/// Returns the number of a call that begins now.
///
/// There is one sequence for all queues. So a call can take its number before it is known whether it waits.
fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The number of a call, which decides about its place in every queue. Dropping it ends the call.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    /// The queues in which the call has waited.
    queues: Option<Arc<WaitQueues>>,
}

impl Place {
    /// Creates the place of a call that begins now.
    pub(crate) fn new() -> Self {
        Self { number: next_number(), queues: None }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Records that the call waits in these queues.
    pub(crate) fn enter(&mut self, queues: &Arc<WaitQueues>) {
        self.queues.get_or_insert_with(|| Arc::clone(queues));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(queues) = &self.queues {
            queues.call_ended(self.number);
        }
    }
}

/// A call's position in its queue. Dropping it removes the call, and the next call moves up.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    queues: &'a Arc<WaitQueues>,
    entry: WaiterEntry,
}

impl WaitQueues {
    /// Creates the queues. Their first waiters check the store again each second if other processes may give permits
    /// back.
    pub(crate) fn new(clock: Clock, has_extra_checks: bool) -> Arc<Self> {
        let (process, ids, changes) = (Process::current(), QueueIds::default(), Arc::<Changes>::default());
        let table = WaitTable::new(Queues::new(Arc::clone(&changes), has_extra_checks));
        let state = Mutex::new(QueuesState { table, alarm: None });
        Arc::new(Self { clock, process, ids, changes, state })
    }

    /// Returns whether certainly no call waits. While the lock is taken a call may wait.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.table.is_empty())
    }

    /// Returns whether a call that begins now, and waits until this instant, is behind others: in the queue of these
    /// counters and limits, or moving to a queue.
    pub(crate) fn has_calls_ahead(&self, requests: &[Request<'_>], deadline: Moment) -> bool {
        let state = self.lock();
        let is_moving = state.table.end_of_move().is_some_and(|end| end <= deadline);
        is_moving || self.has_queue(&state, requests)
    }

    /// Returns whether a call waits in the queue of these counters and limits.
    pub(crate) fn has_queue_for(&self, requests: &[Request<'_>]) -> bool {
        self.has_queue(&self.lock(), requests)
    }

    fn has_queue(&self, state: &QueuesState, requests: &[Request<'_>]) -> bool {
        !state.table.is_empty() && state.table.has(self.ids.id(requests))
    }

    /// Returns the instant by which the first call that waits for these counters is expected to take its permits.
    pub(crate) fn first_turn(&self, requests: &[Request<'_>]) -> Option<Moment> {
        let queue = self.ids.id(requests);
        self.lock().table.first_turn(queue, self.clock.now())
    }

    /// The number of changes that gave permits of these counters back. A call reads it before its check.
    pub(crate) fn version(&self, demands: &Demands) -> u64 {
        self.changes.version(demands.counters())
    }

    /// Wakes the first waiters for permits of these counters, some of which came back.
    pub(crate) fn permits_returned(self: &Arc<Self>, counters: impl Iterator<Item = u64> + Clone) {
        // A call that enters its queue later sees the new version.
        counters.clone().for_each(|counter| self.changes.count(counter));
        if !self.is_idle() {
            // An error of the alarm is that of the next call that waits.
            let _ = self.change(|table, step| counters.for_each(|counter| table.counter_changed(counter, step)));
        }
    }

    /// Records that a call has ended: no other one waits for it to move to its queue.
    fn call_ended(self: &Arc<Self>, number: u64) {
        if self.process.is_this() && self.lock().table.end_of_move().is_some() {
            // An error of the alarm is that of the next call that waits.
            let _ = self.change(|table, step| table.settle(number, step));
        }
    }

    /// Wakes all waiters to read the rules again, at most ten times a second.
    pub(crate) fn rules_changed(self: &Arc<Self>) {
        // A call that enters its queue later reads the rules after that.
        if !self.is_idle() {
            let _ = self.change(WaitTable::rules_changed);
        }
    }

    /// Returns whether a call cannot be served in time if all calls ahead of it are served.
    ///
    /// `wait` is the time since before its check, until its deadline. `free` returns the permits of a request that were
    /// free at its check.
    pub(crate) fn is_too_long(
        &self,
        requests: &[Request<'_>],
        number: u64,
        wait: Duration,
        free: impl Fn(&Request<'_>) -> u32,
    ) -> bool {
        let id = WaiterId { queue: self.ids.id(requests), number };
        let Some(ahead) = self.lock().table.costs_ahead(id) else { return false };
        let exceeds = |(request, ahead): (&Request<'_>, &u64)| {
            *ahead > 0
                && ahead.saturating_add(request.own_take().into()) > most_permits(&request.limit, wait, free(request))
        };
        in_order(requests).into_iter().zip(ahead.as_slice()).any(exceeds)
    }

    /// Returns a ticket for the call of this number. The call is in no queue before [`Ticket::turn`] is polled.
    pub(crate) fn ticket(
        self: &Arc<Self>,
        requests: &[Request<'_>],
        demands: Demands,
        number: u64,
        schedule: Schedule,
    ) -> Ticket<'_> {
        let id = WaiterId { queue: self.ids.id(requests), number };
        Ticket { queues: self, entry: WaiterEntry { id, schedule, demands } }
    }

    /// Returns an error in a child of the process that the calls wait in.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.process.check()
    }

    /// Changes the table and then sets the alarm. Calls wakers after the lock is released.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut WaitTable, &mut Step) -> T) -> Result<T, Error> {
        self.check_process()?;
        let mut step = Step::at(self.clock.now());
        let mut state = self.lock();
        let changed = change(&mut state.table, &mut step);
        let alarm = self.set_alarm(&mut state, &mut step);
        drop(state);
        step.finish();
        alarm.map(|()| changed)
    }

    /// Sets the alarm to the first timer of the table, and runs the timers that are due.
    fn set_alarm(self: &Arc<Self>, state: &mut QueuesState, step: &mut Step) -> Result<(), Error> {
        while let Some(at) = state.table.next_timer() {
            if state.alarm.as_ref().is_some_and(|alarm| alarm.at <= at) {
                return Ok(());
            }
            let mut alarm = Alarm::new(&self.clock, at);
            match alarm.set(self) {
                Poll::Pending => {
                    state.alarm = Some(alarm);
                    return Ok(());
                }
                Poll::Ready(slept) => slept?,
            }
            step.set_time(self.clock.now());
            state.table.run_timers(step);
        }
        // The alarm holds an `Arc` of these queues.
        state.alarm = None;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, QueuesState> {
        lock(&self.state)
    }
}

/// The alarm's waker: it runs the timers that are due.
impl Wake for WaitQueues {
    fn wake(self: Arc<Self>) {
        if Alarm::rings_while_set(&self) {
            return;
        }
        let mut step = Step::at(self.clock.now());
        let mut state = self.lock();
        state.alarm = None;
        state.table.run_timers(&mut step);
        // This cannot fail: the timer thread runs already, as it has called this waker.
        let _ = self.set_alarm(&mut state, &mut step);
        drop(state);
        step.finish();
    }
}

impl Ticket<'_> {
    /// Waits until the call may check the store, or its wait is over, or its rules have changed. `rules_changed` is called
    /// at each poll.
    ///
    /// # Errors
    /// The timer thread could not be started, or this is a child of the process that the call waits in.
    ///
    /// # Cancel safety
    /// The call keeps its position until the ticket is dropped.
    pub(crate) async fn turn(&mut self, rules_changed: impl Fn() -> bool) -> Result<Turn, Error> {
        let Self { queues, entry } = self;
        poll_fn(|context| {
            queues.check_process()?;
            if rules_changed() {
                return Poll::Ready(Ok(Turn::RulesChanged));
            }
            let waker = context.waker().clone();
            match queues.change(|table, step| table.poll(entry, waker, step)) {
                // Read again: a change from before the call was in the table has not woken it.
                Ok(Poll::Pending) if rules_changed() => Poll::Ready(Ok(Turn::RulesChanged)),
                Ok(turn) => turn.map(Ok),
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Runs the call's check of the store. Once the reply has arrived, the call must be polled within
    /// [`GRACE`](table::GRACE) to keep its turn.
    ///
    /// # Errors
    /// This is a child of the process that the call waits in.
    pub(crate) async fn check<F: Future + Unpin>(&self, mut check: F) -> Result<F::Output, Error> {
        let Self { queues, entry } = self;
        poll_fn(|context| {
            queues.check_process()?;
            queues.lock().table.check_polled(entry.id);
            let waker = CheckWaker { queues: Arc::clone(queues), id: entry.id, waker: context.waker().clone() };
            Pin::new(&mut check).poll(&mut Context::from_waker(&Waker::from(Arc::new(waker)))).map(Ok)
        })
        .await
    }

    /// The end of the call's wait.
    pub(crate) fn deadline(&self) -> Moment {
        self.entry.schedule.deadline
    }

    /// Sets the instant of the call's next check of the store.
    pub(crate) fn retry_at(&mut self, retry_at: Moment) {
        self.entry.schedule.retry_at = retry_at;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let _ = self.queues.change(|table, step| table.leave(self.entry.id, step));
    }
}

/// A waker that records when a check can go on, and wakes its task.
struct CheckWaker {
    queues: Arc<WaitQueues>,
    id: WaiterId,
    waker: Waker,
}

impl Wake for CheckWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = self.queues.change(|table, step| table.check_woken(self.id, step));
        self.waker.wake_by_ref();
    }
}

// The identity of a queue.

/// The hash of the set of counters that a decision takes permits from. Calls with equal sets wait in one queue.
///
/// Sharing one counter is not enough: a waiter on its own counter would block unrelated calls. Calls with another `max`
/// or burst have another queue as well: they share the counter but not the number of free permits.
///
/// The hash has 128 bits, by random keys of this process, so it identifies a set as a digest does. No set is stored,
/// however many calls wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId([u64; 2]);

impl QueueId {
    pub(crate) const FIRST: Self = Self([0; 2]);
    pub(crate) const LAST: Self = Self([u64::MAX; 2]);
}
/// The keys of the hash.
#[derive(Debug, Default)]
pub(crate) struct QueueIds([RandomState; 2]);

impl QueueIds {
    pub(crate) fn id(&self, requests: &[Request<'_>]) -> QueueId {
        if let [request] = requests {
            return self.id_of_one(request);
        }
        let mut ids: Vec<_> = requests.iter().map(|request| self.id_of_one(request)).collect();
        // The order of the limits in a decision makes no difference.
        ids.sort_unstable();
        QueueId(self.0.each_ref().map(|keys| keys.hash_one(&ids)))
    }

    fn id_of_one(&self, Request { key, limit, .. }: &Request<'_>) -> QueueId {
        let (encoding, algorithm, layout) = (key.encoding(), limit.algorithm(), (limit.layout(), limit.packed()));
        let count = (encoding, algorithm, layout, limit.window_millis(), limit.max(), limit.burst());
        QueueId(self.0.each_ref().map(|keys| keys.hash_one(&count)))
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod id_tests {
    use super::*;
    use crate::{Algorithm, Key, Layout, Limit};

    fn ids<const N: usize>(sets: [&[(&Key, Limit)]; N]) -> [QueueId; N] {
        let ids = QueueIds::default();
        sets.map(|set| {
            let requests: Vec<_> = set.iter().map(|&(key, limit)| Request::new(key, limit, 1)).collect();
            ids.id(&requests)
        })
    }

    #[test]
    fn another_key_or_part_of_a_limit_makes_another_queue() {
        let (a, b) = (Key::new("a"), Key::new("b"));
        let limit: Limit = "5/10s".parse().expect("a limit");
        let bucket = limit.with_algorithm(Algorithm::TokenBucket);
        let ids = ids([
            &[(&a, limit)],
            &[(&b, limit)],
            &[(&a, "6/10s".parse().expect("a limit"))],
            &[(&a, "5/11s".parse().expect("a limit"))],
            &[(&a, limit.with_layout(Layout::Zset).expect("a sliding window"))],
            &[(&a, bucket)],
            &[(&a, bucket.with_burst(6).expect("a bucket"))],
            &[(&a, limit), (&b, limit)],
            &[(&a, limit), (&a, limit)],
        ]);
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id), "{index}");
        }
    }

    #[test]
    fn neither_the_order_of_limits_nor_an_explicit_default_burst_makes_another_queue() {
        let (a, b) = (Key::new("a"), Key::new("b"));
        let limit: Limit = "5/10s".parse().expect("a limit");
        let bucket = limit.with_algorithm(Algorithm::TokenBucket);
        let [one, other] = ids([&[(&a, limit), (&b, limit)], &[(&b, limit), (&a, limit)]]);
        assert_eq!(one, other);
        let [one, other] = ids([&[(&a, bucket)], &[(&a, bucket.with_burst(5).expect("a bucket"))]]);
        assert_eq!(one, other);
    }
}
