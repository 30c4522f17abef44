//! Queues of calls that wait in this process: one for each set of counts, in the order of the calls' numbers.
//!
//! A waiter sleeps in its future, and all waiters share one alarm on the limiter's clock. The alarm acts on the queues
//! even while none of their futures is polled: so a waiter that nobody polls does not block those behind it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::Error;
use crate::clock::{Clock, Moment};
use crate::request::Request;
use crate::sync::process::{self, forked, is_this};
use crate::sync::{Mutex, MutexGuard};

mod id;
mod table;

use id::QueueIds;
use table::{Place, Step, WaitTable, WaiterId};
pub(crate) use table::{Schedule, Turn};

/// The queues of one limiter.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    clock: Clock,
    /// The process that made them.
    home: u32,
    ids: QueueIds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    table: WaitTable,
    alarm: Option<Alarm>,
}

/// A sleep until the first timer of the table, or until an earlier instant.
struct Alarm {
    at: Moment,
    sleep: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

/// The number of a call that begins now. One sequence for the whole process, which a child of `fork` goes on with: so a call
/// has its number before it is known whether it waits, and in which process's queues.
pub(crate) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A call's place in its queue; dropping it lets the others move up.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    queues: &'a Arc<WaitQueues>,
    place: Place,
}

impl WaitQueues {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        let (home, ids, state) = (process::id(), QueueIds::default(), Mutex::new(State::default()));
        Arc::new(Self { clock, home, ids, state })
    }

    /// Returns whether no call waits at all. A lock that is taken, perhaps for good by a thread that a fork left behind, may
    /// mean that one does.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.table.is_empty())
    }

    /// Returns whether a call waits for these counts.
    pub(crate) fn has(&self, requests: &[Request<'_>]) -> bool {
        let state = self.lock();
        !state.table.is_empty() && state.table.has(self.ids.id(requests))
    }

    /// The instant by which the first call that waits for these counts is expected to go on.
    pub(crate) fn first_turn(&self, requests: &[Request<'_>]) -> Option<Moment> {
        let queue = self.ids.id(requests);
        self.lock().table.first_turn(queue, self.clock.now())
    }

    /// A place for the call of this number. It is in no queue before [`Ticket::turn`] is polled.
    pub(crate) fn ticket(self: &Arc<Self>, requests: &[Request<'_>], number: u64, schedule: Schedule) -> Ticket<'_> {
        Ticket { queues: self, place: Place { id: WaiterId { queue: self.ids.id(requests), number }, schedule } }
    }

    /// Changes the table, and sets the alarm by what it became. Calls wakers after the lock is released.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut WaitTable, &mut Step) -> T) -> Result<T, Error> {
        let mut step = Step::at(self.clock.now());
        let mut state = self.lock();
        let changed = change(&mut state.table, &mut step);
        let alarm = self.set_alarm(&mut state, &mut step);
        drop(state);
        step.finish();
        alarm.map(|()| changed)
    }

    fn set_alarm(self: &Arc<Self>, state: &mut State, step: &mut Step) -> Result<(), Error> {
        while let Some(at) = state.table.next_timer() {
            if state.alarm.as_ref().is_some_and(|alarm| alarm.at <= at) {
                return Ok(());
            }
            let clock = self.clock.clone();
            // Not by the budget of the task that happens to be here: without one left it would be woken at once.
            let sleep = tokio::task::unconstrained(async move { clock.sleep_until(at).await });
            let mut alarm = Alarm { at, sleep: Box::pin(sleep) };
            let waker = Waker::from(Arc::clone(self));
            match alarm.sleep.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => {
                    state.alarm = Some(alarm);
                    return Ok(());
                }
                Poll::Ready(slept) => slept?,
            }
            step.set_time(self.clock.now());
            state.table.run_timers(step);
        }
        // It holds these queues.
        state.alarm = None;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The alarm.
impl Wake for WaitQueues {
    fn wake(self: Arc<Self>) {
        let mut step = Step::at(self.clock.now());
        let mut state = self.lock();
        state.alarm = None;
        state.table.run_timers(&mut step);
        // The thread that watches the time runs already, or nothing would have been woken.
        let _ = self.set_alarm(&mut state, &mut step);
        drop(state);
        step.finish();
    }
}

impl Ticket<'_> {
    /// Waits until the call may check the store, or its wait is over.
    ///
    /// # Errors
    /// The thread that watches the time could not be started, or this is a child of the process that the call waits in.
    ///
    /// # Cancel safety
    /// The call keeps its place until the ticket is dropped.
    pub(crate) async fn turn(&self) -> Result<Turn, Error> {
        let Self { queues, place } = self;
        poll_fn(|context| {
            if !is_this(queues.home) {
                return Poll::Ready(Err(forked()));
            }
            let waker = context.waker().clone();
            match queues.change(|table, step| table.poll(place, waker, step)) {
                Ok(turn) => turn.map(Ok),
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Runs the call's check of the store. Once its answer has come, the call has to be polled in time to keep its turn.
    ///
    /// # Errors
    /// This is a child of the process that the call waits in.
    pub(crate) async fn check<F: Future + Unpin>(&self, mut check: F) -> Result<F::Output, Error> {
        let Self { queues, place } = self;
        poll_fn(|context| {
            if !is_this(queues.home) {
                return Poll::Ready(Err(forked()));
            }
            queues.lock().table.check_polled(place.id);
            let waker = CheckWaker { queues: Arc::clone(queues), id: place.id, waker: context.waker().clone() };
            Pin::new(&mut check).poll(&mut Context::from_waker(&Waker::from(Arc::new(waker)))).map(Ok)
        })
        .await
    }

    /// Moves the call's next check of the store.
    pub(crate) fn retry_at(&mut self, retry_at: Moment) {
        self.place.schedule.retry_at = retry_at;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // In a child of `fork` the queues are a copy that no call uses, and their lock may be taken for ever.
        if !is_this(self.queues.home) {
            return;
        }
        let _ = self.queues.change(|table, step| table.leave(self.place.id, step));
    }
}

/// Notes when a check can go on, and wakes its task.
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

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alarm").field("at", &self.at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
