//! Futures that a test polls itself.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rate_limited::{Decision, Limit, Limiter, ManualClock};

use crate::support::key;

/// The longest wait for a wake-up: more than any reply takes on a busy machine.
const WAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// A future with a flag that is set when it is woken after its last poll.
pub(super) struct Polled<T> {
    future: Option<Pin<Box<dyn Future<Output = T>>>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken {
    flag: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // Poisoning is ignored, because a failed test drops waiters, and these wake others.
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.flag.store(true, SeqCst);
        self.changed.notify_all();
    }
}

impl<T> Polled<T> {
    pub(super) fn new(future: impl Future<Output = T> + 'static) -> Self {
        Self { future: Some(Box::pin(future)), woken: Arc::default() }
    }

    /// Polls the future, unless it is done.
    pub(super) fn poll(&mut self) -> Poll<T> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        self.woken.flag.store(false, SeqCst);
        let polled = future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.woken))));
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }

    pub(super) fn is_woken(&self) -> bool {
        self.woken.flag.load(SeqCst)
    }

    /// Blocks until the future is woken.
    pub(super) fn wait_until_woken(&self) {
        let guard = self.woken.lock.lock().expect("no panic");
        let (_guard, result) =
            self.woken.changed.wait_timeout_while(guard, WAKE_TIMEOUT, |()| !self.is_woken()).expect("no panic");
        assert!(!result.timed_out(), "never woken");
    }

    /// Polls the future each time it is woken, until it is done, while advancing the clock.
    pub(super) fn finish_while_time_passes(&mut self, clock: &ManualClock) -> T {
        let until = Instant::now() + WAKE_TIMEOUT;
        loop {
            if self.is_woken()
                && let Poll::Ready(output) = self.poll()
            {
                return output;
            }
            assert!(Instant::now() < until, "never done");
            clock.advance(Duration::from_millis(1));
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Polls the future each time it is woken, until it is done.
    pub(super) fn finish(&mut self) -> T {
        loop {
            match self.poll() {
                Poll::Ready(output) => return output,
                Poll::Pending => self.wait_until_woken(),
            }
        }
    }
}

impl Polled<Decision> {
    /// Creates a `wait` for one permit of the key `a`.
    pub(super) fn wait(limiter: &Limiter, limit: Limit, max_wait: Duration) -> Self {
        let limiter = limiter.clone();
        Self::new(async move { limiter.wait(&key("a"), &limit, max_wait).await.expect("answers") })
    }

    /// Polls the call, and asserts that it still waits.
    #[track_caller]
    pub(super) fn assert_waits(&mut self) {
        if let Poll::Ready(decision) = self.poll() {
            panic!("{decision:?} instead of waiting");
        }
    }

    /// Polls the call, and asserts that it is admitted.
    #[track_caller]
    pub(super) fn assert_admitted(&mut self) {
        assert!(matches!(self.poll(), Poll::Ready(Decision::Allowed(_))), "not admitted");
    }
}
