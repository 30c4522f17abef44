//! A thread that notes when the machine itself stood still.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(1);
/// The least delay of a nap's end that is a stall. The kernel wakes a thread that slept before others that compute.
const LEAST_STALL: Duration = Duration::from_millis(5);

/// Start and end of each stall, as times since the origin.
pub(super) type Standstills = Vec<(Duration, Duration)>;

/// A watch that runs until it ends or is dropped.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Watched {
    is_over: AtomicBool,
    stalls: Mutex<Standstills>,
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, Standstills> {
        self.stalls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watchdog {
    /// Starts the watch.
    #[must_use]
    pub fn start(origin: Instant) -> Self {
        let shared = Arc::<Watched>::default();
        let watched = Arc::clone(&shared);
        let watch = move || {
            while !watched.is_over.load(Ordering::Relaxed) {
                let due = origin.elapsed() + NAP;
                thread::sleep(NAP);
                let woken = origin.elapsed();
                if woken >= due + LEAST_STALL {
                    watched.lock().push((due, woken));
                }
            }
        };
        Self { shared, thread: Some(thread::spawn(watch)) }
    }

    /// Ends the watch and returns the stalls, in order.
    #[must_use]
    pub fn end(mut self) -> Standstills {
        self.stop();
        mem::take(&mut self.shared.lock())
    }

    fn stop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // what it noted is in the list
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop();
    }
}
