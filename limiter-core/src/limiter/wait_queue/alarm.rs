//! The alarm of the queues: a sleep until their first timer.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::WaitQueues;
use crate::Error;
use crate::clock::{Clock, Moment};

/// A sleep until the first timer of the table or an earlier instant.
pub(super) struct Alarm {
    pub(super) at: Moment,
    sleep: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

thread_local! {
    /// The queues whose alarm this thread sets, under their lock.
    static SETS_ALARM_OF: Cell<*const WaitQueues> = const { Cell::new(std::ptr::null()) };
    /// That alarm has rung meanwhile, on this thread.
    static HAS_RUNG: Cell<bool> = const { Cell::new(false) };
}

impl Alarm {
    pub(super) fn new(clock: &Clock, at: Moment) -> Self {
        let clock = clock.clone();
        // The budget of the current task does not apply. Without budget the sleep would be woken at once.
        let sleep = tokio::task::unconstrained(async move { clock.sleep_until(at).await });
        Self { at, sleep: Box::pin(sleep) }
    }

    /// Sets the alarm of these queues, whose lock the caller holds. Ready if it rings at once.
    ///
    /// A timer that fires during the poll calls the waker on this thread: the waker must not take the lock.
    pub(super) fn set(&mut self, queues: &Arc<WaitQueues>) -> Poll<Result<(), Error>> {
        let waker = Waker::from(Arc::clone(queues));
        let setting = Setting::begin(queues);
        let slept = self.sleep.as_mut().poll(&mut Context::from_waker(&waker));
        if slept.is_pending() && setting.has_rung() { Poll::Ready(Ok(())) } else { slept }
    }

    /// Notes that the alarm of these queues rings while this thread sets it. Returns false if the thread does not.
    pub(super) fn rings_while_set(queues: &WaitQueues) -> bool {
        let is_set_here = std::ptr::eq(SETS_ALARM_OF.get(), queues);
        if is_set_here {
            HAS_RUNG.set(true);
        }
        is_set_here
    }
}

/// The time in which this thread sets an alarm. Afterwards it sets the one before again, if there was one.
struct Setting {
    before: (*const WaitQueues, bool),
}

impl Setting {
    fn begin(queues: &Arc<WaitQueues>) -> Self {
        Self { before: (SETS_ALARM_OF.replace(Arc::as_ptr(queues)), HAS_RUNG.replace(false)) }
    }

    fn has_rung(&self) -> bool {
        HAS_RUNG.get()
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        SETS_ALARM_OF.set(self.before.0);
        HAS_RUNG.set(self.before.1);
    }
}

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alarm").field("at", &self.at).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A sleep whose timer fires while its waker is registered.
    fn ringing(at: Moment) -> Alarm {
        let sleep = poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::Pending
        });
        Alarm { at, sleep: Box::pin(sleep) }
    }

    #[test]
    fn an_alarm_that_rings_while_it_is_set_takes_no_lock_twice() {
        let (is_set, set) = mpsc::channel();
        // A thread that waits for its own lock would wait for ever.
        thread::spawn(move || {
            let queues = WaitQueues::new(Clock::System, false);
            let state = queues.lock();
            let polled = ringing(Moment::PAST).set(&queues);
            drop(state);
            // Another thread, or one that sets no alarm, runs the timers.
            let rings_later = Alarm::rings_while_set(&queues);
            is_set.send((polled.is_ready(), rings_later)).expect("the test waits");
        });
        assert_eq!(set.recv_timeout(Duration::from_secs(30)), Ok((true, false)));
    }
}
