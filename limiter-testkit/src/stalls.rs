//! Times in which the machine itself stood still: a call that was under way then is no slower for it.

use std::mem;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The number of threads that a call passes, one after the other: the limiter's, a proxy's and the server's, and back.
const HANDS: usize = 5;

const NAP: Duration = Duration::from_millis(5);

/// The time that a nap and a word passed on take beyond the nap, on a machine that has time for them.
const USUAL: Duration = Duration::from_millis(2);

/// A watch for stalls: threads that pass on a word, as a call is passed on, and one that records when it came back late.
///
/// It runs until [`end`](Self::end), or until it is dropped.
#[derive(Debug)]
pub struct Stalls {
    shared: Arc<Mutex<Record>>,
    origin: Instant,
    watcher: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Record {
    stalls: Vec<(Duration, Duration)>,
    /// The end of the last round, from the origin.
    watched: Duration,
    over: bool,
}

impl Stalls {
    /// Starts the watch. It gives instants as the time since `origin`.
    pub fn watch(origin: Instant) -> Self {
        let shared = Arc::new(Mutex::new(Record::default()));
        let record = Arc::clone(&shared);
        let watch = move || {
            let (back, returned) = channel();
            let first = (0..HANDS).fold(back, |next, _| hand(next));
            loop {
                let due = origin.elapsed() + NAP;
                thread::sleep(NAP);
                let passed = first.send(()).is_ok() && returned.recv().is_ok();
                let woken = origin.elapsed();
                let mut record = lock(&record);
                if passed && woken > due + USUAL {
                    record.stalls.push((due, woken));
                }
                record.watched = woken;
                if record.over {
                    return;
                }
            }
        };
        Self { shared, origin, watcher: Some(thread::spawn(watch)) }
    }

    /// Returns the time for which the machine stood still from `start` until now.
    ///
    /// Waits for the watch to come as far as now, so that a stall that is just ending counts.
    pub fn since(&self, start: Instant) -> Duration {
        let end = self.origin.elapsed();
        while lock(&self.shared).watched < end {
            thread::sleep(NAP / 5);
        }
        within(&lock(&self.shared).stalls, start.saturating_duration_since(self.origin), end)
    }

    /// Ends the watch, and returns when the machine stood still, in order.
    pub fn end(mut self) -> Vec<(Duration, Duration)> {
        self.stop();
        mem::take(&mut lock(&self.shared).stalls)
    }

    fn stop(&mut self) {
        lock(&self.shared).over = true;
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join(); // it has no more to tell than what it recorded
        }
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that passes on to the next one, until the one before it is gone.
fn hand(next: Sender<()>) -> Sender<()> {
    let (before, words) = channel();
    thread::spawn(move || words.into_iter().try_for_each(|()| next.send(())));
    before
}

/// Returns the time for which the machine stood still between two instants.
pub fn within(stalls: &[(Duration, Duration)], start: Duration, end: Duration) -> Duration {
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
        assert!(stalls.since(start) <= start.elapsed());
        let all = stalls.end();
        assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{all:?}");
    }

    #[test]
    fn only_what_overlaps_counts() {
        let millis = Duration::from_millis;
        let stalls = [(millis(10), millis(20)), (millis(30), millis(50))];
        for (start, end, expected) in [(0, 10, 0), (0, 15, 5), (12, 18, 6), (15, 40, 15), (0, 99, 30), (50, 60, 0)] {
            assert_eq!(within(&stalls, millis(start), millis(end)), millis(expected), "{start} to {end}");
        }
    }
}
