//! The instant at which a future became ready, even if its task is polled late.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::unconstrained;

use crate::clock::{Clock, Moment};

/// Runs a future. Returns its output and the instant of the wake-up that led to it.
///
/// Without a wake-up the instant is that of the poll. It may be too early if the future was woken for another reason.
pub(super) async fn timed<F: Future>(clock: &Clock, future: F) -> (F::Output, Moment) {
    // Tokio's budget does not apply. A task without budget would be woken a second time, after the output was ready.
    let mut future = pin!(unconstrained(future));
    let mut last: Option<Arc<TimedWaker>> = None;
    poll_fn(|context| {
        let woken_at = last.take().and_then(|waker| waker.woken_at.get().copied());
        let waker =
            Arc::new(TimedWaker { clock: clock.clone(), woken_at: OnceLock::new(), waker: context.waker().clone() });
        match future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&waker)))) {
            Poll::Ready(output) => Poll::Ready((output, woken_at.unwrap_or_else(|| clock.now()))),
            Poll::Pending => {
                last = Some(waker);
                Poll::Pending
            }
        }
    })
    .await
}

/// A waker that records its first wake-up after a poll.
struct TimedWaker {
    clock: Clock,
    woken_at: OnceLock<Moment>,
    waker: Waker,
}

impl Wake for TimedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken_at.get_or_init(|| self.clock.now());
        self.waker.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::ManualClock;

    #[test]
    fn an_output_has_the_time_of_its_wake_up() {
        let time = ManualClock::new();
        let clock = Clock::Manual(time.clone());
        let state = Mutex::new((false, None::<Waker>));
        let lock = || state.lock().expect("no panic");
        let future = poll_fn(|context| {
            lock().1 = Some(context.waker().clone());
            if lock().0 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut timed = pin!(timed(&clock, future));
        let mut poll = || timed.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let advance = || time.advance(Duration::from_millis(20));
        let wake = || lock().1.take().expect("the waker of the last poll").wake();
        assert!(poll().is_pending());
        wake();
        advance();
        assert!(poll().is_pending(), "a wake-up without an output");
        advance();
        let expected = clock.now();
        lock().0 = true;
        wake();
        advance();
        assert_eq!(poll(), Poll::Ready(((), expected)));
    }

    #[tokio::test]
    async fn an_output_has_the_time_of_its_wake_up_in_a_task_without_budget() {
        let time = ManualClock::new();
        let clock = Clock::Manual(time.clone());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut timed = pin!(timed(&clock, receiver));
        assert!(timed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let expected = clock.now();
        sender.send(()).expect("a receiver");
        time.advance(Duration::from_millis(20));
        // This loop uses the budget up within one poll.
        while tokio::task::coop::has_budget_remaining() {
            tokio::task::coop::consume_budget().await;
        }
        let polled = timed.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready((Ok(()), expected)));
    }

    #[tokio::test]
    async fn an_output_without_a_wake_up_has_the_time_of_the_poll() {
        let time = ManualClock::new();
        let clock = Clock::Manual(time.clone());
        time.advance(Duration::from_millis(20));
        assert_eq!(timed(&clock, async { 1 }).await, (1, clock.now()));
    }
}
