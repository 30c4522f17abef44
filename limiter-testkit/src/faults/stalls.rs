//! How long the machine itself stood still: a call that was under way then is no slower for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What a call passes, one after the other: the limiter's thread, a proxy and the server, and back again.
const HANDS: usize = 5;

const NAP: Duration = Duration::from_millis(5);

/// What sleeping and passing takes on a machine that has time for it.
const USUAL: Duration = Duration::from_millis(2);

/// Threads that do nothing but pass on a word, as a call is passed on, and one that writes down when it came back late.
#[derive(Debug)]
pub(super) struct Stalls {
    over: Arc<AtomicBool>,
    watcher: JoinHandle<Vec<(Duration, Duration)>>,
}

impl Stalls {
    pub(super) fn watch(origin: Instant) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let watch = move || {
            let (back, returned) = channel();
            let first = (0..HANDS).fold(back, |next, _| hand(next));
            let mut stalls = Vec::new();
            while !told.load(Relaxed) {
                let due = origin.elapsed() + NAP;
                thread::sleep(NAP);
                let passed = first.send(()).is_ok() && returned.recv().is_ok();
                let woken = origin.elapsed();
                if passed && woken > due + USUAL {
                    stalls.push((due, woken));
                }
            }
            stalls
        };
        Self { over, watcher: thread::spawn(watch) }
    }

    /// When it stood still, in order.
    pub(super) fn end(self) -> Vec<(Duration, Duration)> {
        self.over.store(true, Relaxed);
        self.watcher.join().expect("a thread that sleeps")
    }
}

/// A thread that passes on to the next one, until the one before it is gone.
fn hand(next: Sender<()>) -> Sender<()> {
    let (before, words) = channel();
    thread::spawn(move || words.into_iter().try_for_each(|()| next.send(())));
    before
}

/// How much of the time between two instants the machine stood still.
pub(super) fn within(stalls: &[(Duration, Duration)], start: Duration, end: Duration) -> Duration {
    let overlap = |&(from, to): &(Duration, Duration)| to.min(end).saturating_sub(from.max(start));
    let first = stalls.partition_point(|(_, to)| *to <= start);
    stalls[first..].iter().take_while(|(from, _)| *from < end).map(overlap).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_overlaps_counts() {
        let millis = Duration::from_millis;
        let stalls = [(millis(10), millis(20)), (millis(30), millis(50))];
        for (start, end, expected) in [(0, 10, 0), (0, 15, 5), (12, 18, 6), (15, 40, 15), (0, 99, 30), (50, 60, 0)] {
            assert_eq!(within(&stalls, millis(start), millis(end)), millis(expected), "{start} to {end}");
        }
    }
}
