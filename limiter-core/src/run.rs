//! Running futures and code of the program: blocking on a future, joining several, and containing panics.

use std::future::poll_fn;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Blocks this thread until the future is ready, and returns its output.
///
/// It works on any thread, including those of a runtime, because the limiter's own threads drive the future. Tokio's
/// task budget does not apply, because nothing renews it here.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // A future that is ready at once needs no waker, and so no allocation. If tokio's budget keeps it from being ready,
    // the next poll is without that.
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return output;
    }
    let mut future = tokio::task::unconstrained(future);
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    loop {
        match Pin::new(&mut future).poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => parker.park(),
        }
    }
}

/// The waker of one blocking call.
///
/// It is not `thread::park`, because the token of the thread belongs to the program, whose executor may rely on it.
/// Each call has its own, so that a nested call does not use up a wake-up of the outer one.
#[derive(Debug, Default)]
struct Parker {
    state: Mutex<ParkerState>,
    woken: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParkerState {
    #[default]
    Running,
    Parked,
    Woken,
}

impl Parker {
    /// Blocks until a wake-up, and uses it up.
    fn park(&self) {
        let mut state = self.state();
        while *state != ParkerState::Woken {
            *state = ParkerState::Parked;
            state = self.woken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        *state = ParkerState::Running;
    }

    fn unpark(&self) {
        // The lock is released before the notification, because the other thread needs it. If that thread is not
        // parked, no system call is made.
        let before = mem::replace(&mut *self.state(), ParkerState::Woken);
        if before == ParkerState::Parked {
            self.woken.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, ParkerState> {
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

// Several futures at a time.

/// Waits for all futures, and returns their outputs in order.
pub(crate) async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut running {
            if output.is_none() {
                match Pin::new(future).poll(context) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

// Panics of the program's code, which must not end a decision.

/// Runs code of the program. Returns false if it panicked.
#[inline]
pub(crate) fn run_contained(run: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(()) => true,
        Err(panic) => {
            // Dropping the payload may panic as well.
            mem::forget(panic);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::thread;

    use super::*;

    /// A future that is pending once, and is woken by another thread.
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

    /// A future that is polled `count` times, with a wake-up at each poll.
    async fn other_wake_ups(mut count: u32) {
        poll_fn(|context| {
            context.waker().wake_by_ref();
            count -= 1;
            if count == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// The first poll of a blocking call has a no-op waker. The counts leave at least two polls for this module's
    /// waker.
    #[test]
    fn a_nested_call_takes_no_wake_up_of_the_outer_call() {
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
