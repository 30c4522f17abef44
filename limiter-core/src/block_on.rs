//! Waiting for a decision on a thread that is not async, or must not be.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Blocks this thread until the future is done.
///
/// Works on any thread, one of a runtime too: what the future waits for happens on the limiter's own thread. The
/// budget that tokio gives its tasks is left aside, since nobody would renew it here.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(tokio::task::unconstrained(future));
    // What is ready at once needs nobody to wake it, and no allocation for that.
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return output;
    }
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => parker.park(),
        }
    }
}

/// The wake-up of one blocking call.
///
/// Not `thread::park`: the token of the thread belongs to the program, whose executor may rely on it. One for each call,
/// so that a call within a call takes no wake-up of the outer one.
#[derive(Debug, Default)]
struct Parker {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Running,
    Parked,
    Woken,
}

impl Parker {
    /// Blocks until a wake-up, which is used up.
    fn park(&self) {
        let mut state = self.state();
        while *state != State::Woken {
            *state = State::Parked;
            state = self.woken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        *state = State::Running;
    }

    fn unpark(&self) {
        // Notified after the lock is released: the other thread needs it. A thread that is not parked costs no system call.
        let before = std::mem::replace(&mut *self.state(), State::Woken);
        if before == State::Parked {
            self.woken.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::thread;

    use super::*;

    /// Pending once; its wake-up comes from another thread.
    async fn other_thread() {
        let mut is_first = true;
        poll_fn(|context| {
            if !is_first {
                return Poll::Ready(());
            }
            is_first = false;
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            Poll::Pending
        })
        .await;
        other_wake_ups(3).await;
    }

    /// Pending so often, with a wake-up before each.
    async fn other_wake_ups(mut count: u32) {
        poll_fn(|context| {
            context.waker().wake_by_ref();
            count -= 1;
            if count == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// The first poll of each is by a waker that does nothing, so both are polled twice by one of this module.
    #[test]
    fn a_call_within_a_call_takes_no_wake_up_of_the_outer_one() {
        let mut polls = 0;
        block_on(poll_fn(|context| {
            context.waker().wake_by_ref();
            block_on(async {
                other_wake_ups(2).await;
                other_wake_ups(3).await;
            });
            polls += 1;
            if polls == 5 { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert_eq!(polls, 5);
    }

    #[test]
    fn a_wake_up_of_another_thread_is_not_lost() {
        for _ in 0..1_000 {
            block_on(async {
                other_wake_ups(2).await;
                other_thread().await;
            });
        }
    }
}
