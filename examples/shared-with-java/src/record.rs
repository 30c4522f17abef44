//! The calls of a run, and the most of them that were allowed in any window.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The calls of one language.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) allowed: usize,
    pub(crate) denied: usize,
}

/// A call that was allowed at some instant between these.
struct Allowed {
    sent: Instant,
    answered: Instant,
}

/// The calls of a run.
#[derive(Default)]
pub(crate) struct Record {
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    allowed: Vec<Allowed>,
    java: Counts,
    rust: Counts,
}

/// The language of a service.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Java,
    Rust,
}

impl Record {
    /// Adds a call that has just been answered.
    pub(crate) fn add(&self, language: Language, sent: Instant, is_allowed: bool) {
        let mut calls = self.lock();
        let counts = match language {
            Language::Java => &mut calls.java,
            Language::Rust => &mut calls.rust,
        };
        if is_allowed {
            counts.allowed += 1;
            calls.allowed.push(Allowed { sent, answered: Instant::now() });
        } else {
            counts.denied += 1;
        }
    }

    /// Returns the counts so far, of Java and of Rust.
    pub(crate) fn counts(&self) -> (Counts, Counts) {
        let calls = self.lock();
        (calls.java, calls.rust)
    }

    /// Returns the most calls that were certainly allowed in one window of this length.
    ///
    /// A call counts for a window that contains both its sending and its answer. So the number is never too large, and
    /// too small by the calls under way at the window's ends at most.
    pub(crate) fn most_in_window(&self, window: Duration) -> usize {
        let calls = self.lock();
        let mut sent: Vec<_> = calls.allowed.iter().map(|call| call.sent).collect();
        let mut answered: Vec<_> = calls.allowed.iter().map(|call| call.answered).collect();
        sent.sort_unstable();
        answered.sort_unstable();
        let in_window_from = |(sent_before, start): (usize, &Instant)| {
            let end = *start + window;
            answered.partition_point(|answered| *answered < end).saturating_sub(sent_before)
        };
        sent.iter().enumerate().map(in_window_from).max().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(calls: &[(u64, u64)]) -> Record {
        let origin = Instant::now();
        let at = |millis| origin + Duration::from_millis(millis);
        let allowed =
            calls.iter().map(|&(sent, answered)| Allowed { sent: at(sent), answered: at(answered) }).collect();
        Record { calls: Mutex::new(Calls { allowed, ..Calls::default() }) }
    }

    #[test]
    fn only_calls_wholly_inside_a_window_count() {
        for (calls, expected) in [
            (&[][..], 0),
            (&[(0, 1)], 1),
            (&[(0, 1), (5, 6), (9, 9)], 3),
            (&[(0, 1), (5, 6), (9, 10)], 2),
            (&[(0, 4), (2, 12), (3, 13)], 1),
            (&[(0, 30), (1, 2), (3, 4)], 2),
            (&[(0, 1), (20, 21), (22, 23), (24, 25), (40, 41)], 3),
        ] {
            assert_eq!(record(calls).most_in_window(Duration::from_millis(10)), expected, "{calls:?}");
        }
    }
}
