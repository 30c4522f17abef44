//! A thread that runs callbacks of the program: log subscribers, and observers of the store's state.
//!
//! A callback may block, panic, or call a limiter, so it must not run on the thread of a worker or of a caller. All
//! limiters of a process share one thread, which runs the callbacks in order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{mem, thread};

use crate::run::run_contained;
use crate::sync::process::PerProcess;
use crate::{Error, ErrorKind, TARGET};

type Callback = Box<dyn FnOnce() + Send>;

/// The most callbacks that wait for the thread. Further ones are dropped and counted.
const MAX_QUEUED_CALLBACKS: usize = 256;

/// Runs a callback on the notifier thread of this process, after all earlier callbacks. It does not wait for them.
///
/// A callback that does not fit into the queue is dropped on the calling thread. The number of dropped callbacks is
/// logged when the queue is empty.
pub(crate) fn notify(callback: impl FnOnce() + Send + 'static) {
    notifier().push(Box::new(callback), MAX_QUEUED_CALLBACKS);
}

/// Runs a callback like [`notify`], and never drops it. A caller must have at most one such callback in the queue.
pub(crate) fn notify_always(callback: impl FnOnce() + Send + 'static) {
    notifier().push(Box::new(callback), usize::MAX);
}

/// The notifier of this process.
fn notifier() -> &'static Notifier {
    static NOTIFIER: PerProcess<Notifier> = PerProcess::new();
    NOTIFIER.get(|_| Notifier::new())
}

/// The queue and the thread of one process, which the first callback starts.
///
/// The thread never ends: a thread that begins or ends during a `fork` holds a lock of the standard library, and the
/// child could start no thread.
struct Notifier {
    queue: Mutex<NotifierQueue>,
    /// Notified when a callback is queued.
    queued: Condvar,
}

struct NotifierQueue {
    callbacks: VecDeque<Callback>,
    dropped: u64,
    is_running: bool,
}

impl Notifier {
    const fn new() -> Self {
        let queue = NotifierQueue { callbacks: VecDeque::new(), dropped: 0, is_running: false };
        Self { queue: Mutex::new(queue), queued: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, NotifierQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a callback, unless `max_queued` or more wait already.
    fn push(&'static self, callback: Callback, max_queued: usize) {
        let mut queue = self.lock();
        if queue.callbacks.len() < max_queued {
            queue.callbacks.push_back(callback);
        } else {
            queue.dropped += 1;
        }
        if mem::replace(&mut queue.is_running, true) {
            self.queued.notify_one();
            return;
        }
        drop(queue);
        let thread = thread::Builder::new().name("rate-limited-notifier".to_owned());
        if thread.spawn(|| self.run()).is_err() {
            // The next callback tries again.
            self.lock().is_running = false;
        }
    }

    fn run(&self) -> ! {
        loop {
            run_contained(self.next());
        }
    }

    /// Waits for a callback.
    fn next(&self) -> Callback {
        let mut queue = self.lock();
        loop {
            if let Some(callback) = queue.callbacks.pop_front() {
                return callback;
            }
            let dropped = mem::take(&mut queue.dropped);
            if dropped > 0 {
                return Box::new(move || {
                    tracing::warn!(target: TARGET, dropped, "log lines were dropped: too many waited for the log subscriber");
                });
            }
            queue = self.queued.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

// Log lines about errors of a store: one for each kind of error, instead of one for each failed call.

/// Logs each kind of error once until the store grants a permit again, which ends the errors of all kinds.
///
/// Errors that concern only some calls alternate with successes. At most three recoveries a minute are logged, and
/// after them no further error until the minute ends.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    /// The servers, for the log lines.
    servers: String,
    /// One bit for each kind of error that has been logged.
    logged: AtomicU8,
    recoveries: Mutex<Recoveries>,
}

/// The number of recoveries that were logged in the current interval.
#[derive(Debug, Default)]
struct Recoveries {
    interval_start: Option<Instant>,
    count: u32,
}

const INTERVAL: Duration = Duration::from_secs(60);
const MAX_RECOVERIES_PER_INTERVAL: u32 = 3;

impl LogThrottle {
    pub(crate) fn new(servers: String) -> Self {
        Self { servers, logged: AtomicU8::new(0), recoveries: Mutex::default() }
    }

    pub(crate) fn on_failure(&self, error: &Error) {
        let Some((bit, message)) = classify(error.kind()) else { return };
        if self.logged.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let (error, servers) = (error.clone(), self.servers.clone());
            notify(move || tracing::error!(target: TARGET, %error, servers, "{message}"));
        }
    }

    /// Records that the store granted a permit. That proves write access and free memory.
    pub(crate) fn on_success(&self) {
        // All threads read `logged`, so it is written only if an error was logged.
        if self.logged.load(Ordering::Relaxed) != 0 && self.record_recovery(Instant::now()) {
            let servers = self.servers.clone();
            notify(move || tracing::info!(target: TARGET, servers, "Redis grants permits again"));
        }
    }

    /// Returns true if the recovery must be logged, resets the logged errors and counts it. Returns false, and changes
    /// neither, if no error was logged or the interval has its recoveries.
    fn record_recovery(&self, now: Instant) -> bool {
        let mut recoveries = self.recoveries.lock().unwrap_or_else(PoisonError::into_inner);
        if recoveries.interval_start.is_none_or(|start| now.saturating_duration_since(start) >= INTERVAL) {
            *recoveries = Recoveries { interval_start: Some(now), count: 0 };
        }
        if recoveries.count == MAX_RECOVERIES_PER_INTERVAL || self.logged.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        recoveries.count += 1;
        true
    }
}

/// Returns the bit and the message of an error. Returns `None` if a lost connection is logged for it, or if it concerns
/// a single key.
fn classify(kind: ErrorKind) -> Option<(u8, &'static str)> {
    match kind {
        ErrorKind::OutOfMemory => Some((1, "Redis is out of memory; falling back to `on_error`")),
        ErrorKind::Refused => Some((2, "Redis refuses access; falling back to `on_error`")),
        ErrorKind::NotServing => Some((4, "Redis rejects writes; falling back to `on_error`")),
        ErrorKind::Loading => Some((8, "Redis is loading or busy; falling back to `on_error`")),
        ErrorKind::Overloaded => {
            Some((16, "`max_in_flight` calls are waiting for Redis; further calls fall back to `on_error`"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(60);

    fn leaked_notifier() -> &'static Notifier {
        Box::leak(Box::new(Notifier::new()))
    }

    fn push(notifier: &'static Notifier, callback: Callback) {
        notifier.push(callback, MAX_QUEUED_CALLBACKS);
    }

    /// Queues a callback that blocks until the returned sender is dropped, and waits until it runs.
    fn block(notifier: &'static Notifier) -> Sender<()> {
        let (release, released) = channel::<()>();
        let (started, starts) = channel();
        push(
            notifier,
            Box::new(move || {
                started.send(()).expect("the test waits");
                let _ = released.recv();
            }),
        );
        starts.recv_timeout(LONG).expect("the callback runs");
        release
    }

    /// Queues callbacks that send their numbers.
    fn send_numbers(notifier: &'static Notifier, count: usize) -> Receiver<usize> {
        let (sender, numbers) = channel();
        for number in 0..count {
            let sender = sender.clone();
            push(notifier, Box::new(move || sender.send(number).expect("the test waits")));
        }
        numbers
    }

    fn receive(numbers: &Receiver<usize>, count: usize) -> Vec<usize> {
        (0..count).map(|_| numbers.recv_timeout(LONG).expect("a number")).collect()
    }

    #[test]
    fn callbacks_run_in_order_on_one_thread() {
        let notifier = leaked_notifier();
        let (sender, threads) = channel();
        let numbers = send_numbers(notifier, 50);
        for _ in 0..2 {
            let sender = sender.clone();
            push(notifier, Box::new(move || sender.send(thread::current().id()).expect("the test waits")));
        }
        assert_eq!(receive(&numbers, 50), (0..50).collect::<Vec<_>>());
        let id = || threads.recv_timeout(LONG).expect("an id");
        let (first, second) = (id(), id());
        assert!(first == second && first != thread::current().id());
    }

    #[test]
    fn a_panic_does_not_stop_later_callbacks() {
        struct PanicsOnDrop;
        impl Drop for PanicsOnDrop {
            fn drop(&mut self) {
                panic!("the payload's own fault");
            }
        }
        let notifier = leaked_notifier();
        push(notifier, Box::new(|| panic!("the callback's own fault")));
        push(notifier, Box::new(|| std::panic::panic_any(PanicsOnDrop)));
        assert_eq!(receive(&send_numbers(notifier, 1), 1), [0]);
    }

    #[test]
    fn a_callback_may_queue_another() {
        let notifier = leaked_notifier();
        let (sender, numbers) = channel();
        push(
            notifier,
            Box::new(move || {
                push(notifier, Box::new(move || sender.send(7).expect("the test waits")));
            }),
        );
        assert_eq!(receive(&numbers, 1), [7]);
    }

    #[test]
    fn a_callback_without_a_bound_is_queued_behind_a_full_queue() {
        let notifier = leaked_notifier();
        let release = block(notifier);
        let numbers = send_numbers(notifier, MAX_QUEUED_CALLBACKS);
        let (sender, last) = channel();
        notifier.push(Box::new(move || sender.send(7).expect("the test waits")), usize::MAX);
        drop(release);
        assert_eq!(receive(&numbers, MAX_QUEUED_CALLBACKS).len(), MAX_QUEUED_CALLBACKS);
        assert_eq!(receive(&last, 1), [7]);
    }

    /// Records the field `dropped` of each event.
    struct DroppedCounts(Sender<usize>);

    impl Subscriber for DroppedCounts {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == TARGET
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn event(&self, event: &Event<'_>) {
            event.record(&mut DroppedField(&self.0));
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    struct DroppedField<'a>(&'a Sender<usize>);

    impl Visit for DroppedField<'_> {
        fn record_u64(&mut self, field: &Field, value: u64) {
            assert_eq!(field.name(), "dropped");
            let _ = self.0.send(usize::try_from(value).expect("few"));
        }

        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }

    #[test]
    fn while_a_callback_blocks_the_queue_is_bounded_and_the_rest_is_counted() {
        let notifier = leaked_notifier();
        let release = block(notifier);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..MAX_QUEUED_CALLBACKS + 44 {
            let ran = Arc::clone(&ran);
            push(
                notifier,
                Box::new(move || {
                    ran.fetch_add(1, Ordering::SeqCst);
                }),
            );
        }
        assert_eq!(notifier.lock().callbacks.len(), MAX_QUEUED_CALLBACKS);
        assert_eq!(notifier.lock().dropped, 44);
        assert_eq!(ran.load(Ordering::SeqCst), 0);
        // A subscriber of the notifier's thread only, in place of the last callback that fits.
        let (sender, counts) = channel();
        let last = Box::new(move || {
            mem::forget(tracing::subscriber::set_default(DroppedCounts(sender)));
        });
        notifier.lock().callbacks[MAX_QUEUED_CALLBACKS - 1] = last;
        drop(release);
        assert_eq!(receive(&counts, 1), [44]);
        assert_eq!(ran.load(Ordering::SeqCst), MAX_QUEUED_CALLBACKS - 1);
        assert_eq!(receive(&send_numbers(notifier, 1), 1), [0]);
        assert_eq!(notifier.lock().dropped, 0);
    }
}

#[cfg(test)]
mod log_throttle_tests {
    use super::*;

    #[test]
    fn logs_only_errors_no_other_message_covers() {
        let throttle = LogThrottle::new(String::new());
        for kind in [ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::ReadOnly, ErrorKind::Protocol] {
            throttle.on_failure(&Error::new(kind, "no"));
        }
        assert_eq!(throttle.logged.load(Ordering::Relaxed), 0);
    }

    /// Such errors occur if a permission is missing that only some calls need.
    #[test]
    fn flapping_errors_are_logged_at_most_3_times_a_minute() {
        let (throttle, start) = (LogThrottle::new(String::new()), Instant::now());
        let logged_recoveries = |seconds: std::ops::Range<u64>| {
            let logged = seconds.filter(|second| {
                throttle.on_failure(&Error::new(ErrorKind::Refused, "no"));
                throttle.record_recovery(start + Duration::from_secs(*second))
            });
            logged.collect::<Vec<_>>()
        };
        assert_eq!(logged_recoveries(0..60), [0, 1, 2]);
        assert_eq!(logged_recoveries(60..100), [60, 61, 62]);
    }
}
