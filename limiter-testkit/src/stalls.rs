//! Times in which the whole machine stalled. A call that was in flight during a stall is not slow by its own fault.

use std::mem;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The number of threads that a call passes through: the limiter's, a proxy's, the server's, and back.
const RELAY_THREADS: usize = 5;

/// The pause before each round.
const NAP_LENGTH: Duration = Duration::from_millis(5);

/// The time that a nap and a round through all threads may take beyond [`NAP_LENGTH`] on an idle machine.
const MAX_EXTRA_TIME: Duration = Duration::from_millis(2);

/// A background watch for stalls. It sends a token through a chain of threads, as a call passes through them, and
/// records each round that came back late.
///
/// The watch runs until [`end`](Self::end) or until it is dropped.
#[derive(Debug)]
pub struct Stalls {
    shared: Arc<Mutex<StallLog>>,
    origin: Instant,
    watcher: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct StallLog {
    stalls: Vec<(Duration, Duration)>,
    /// The end of the last round, as the time since the origin.
    watched_until: Duration,
    over: bool,
}

impl Stalls {
    /// Starts the watch. It reports instants as the time since `origin`.
    pub fn watch(origin: Instant) -> Self {
        let shared = Arc::new(Mutex::new(StallLog::default()));
        let log = Arc::clone(&shared);
        let watch = move || {
            let (back, returned) = channel();
            let first = (0..RELAY_THREADS).fold(back, |next, _| spawn_relay(next));
            loop {
                let due = origin.elapsed() + NAP_LENGTH;
                thread::sleep(NAP_LENGTH);
                let returned_token = first.send(()).is_ok() && returned.recv().is_ok();
                let woken = origin.elapsed();
                let mut log = lock(&log);
                if returned_token && woken > due + MAX_EXTRA_TIME {
                    log.stalls.push((due, woken));
                }
                log.watched_until = woken;
                if log.over {
                    return;
                }
            }
        };
        Self { shared, origin, watcher: Some(thread::spawn(watch)) }
    }

    /// Returns the total stall time from `start` until now.
    ///
    /// Waits until the watch has reached the current instant, so that a stall that ends now counts.
    pub fn stall_time_since(&self, start: Instant) -> Duration {
        let end = self.origin.elapsed();
        while lock(&self.shared).watched_until < end {
            thread::sleep(NAP_LENGTH / 5);
        }
        stall_time_between(&lock(&self.shared).stalls, start.saturating_duration_since(self.origin), end)
    }

    /// Ends the watch and returns the start and end of each stall, in order.
    pub fn end(mut self) -> Vec<(Duration, Duration)> {
        self.stop();
        mem::take(&mut lock(&self.shared).stalls)
    }

    fn stop(&mut self) {
        lock(&self.shared).over = true;
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join(); // its results are in the log
        }
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock(log: &Mutex<StallLog>) -> MutexGuard<'_, StallLog> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that forwards tokens to `next` until its own sender is dropped.
fn spawn_relay(next: Sender<()>) -> Sender<()> {
    let (sender, tokens) = channel();
    thread::spawn(move || tokens.into_iter().try_for_each(|()| next.send(())));
    sender
}

/// Returns the total stall time between two instants.
pub fn stall_time_between(stalls: &[(Duration, Duration)], start: Duration, end: Duration) -> Duration {
    let overlap = |&(from, to): &(Duration, Duration)| to.min(end).saturating_sub(from.max(start));
    let first = stalls.partition_point(|(_, to)| *to <= start);
    stalls[first..].iter().take_while(|(from, _)| *from < end).map(overlap).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_counts_stalls_up_to_now_and_ends_with_its_threads() {
        let stalls = Stalls::watch(Instant::now());
        let start = Instant::now();
        assert!(stalls.stall_time_since(start) <= start.elapsed());
        let all = stalls.end();
        assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{all:?}");
    }

    #[test]
    fn only_overlapping_stalls_count() {
        let millis = Duration::from_millis;
        let stalls = [(millis(10), millis(20)), (millis(30), millis(50))];
        for (start, end, expected) in [(0, 10, 0), (0, 15, 5), (12, 18, 6), (15, 40, 15), (0, 99, 30), (50, 60, 0)] {
            assert_eq!(stall_time_between(&stalls, millis(start), millis(end)), millis(expected), "{start} to {end}");
        }
    }
}
