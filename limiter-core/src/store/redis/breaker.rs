//! The circuit breaker of one server: what callers look at before they ask, and what opens it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::Error;

/// Closed while the server is there, or was never tried; open while it is known to be away. The connection's keeper opens and
/// closes it: its attempts to connect are the probes, one at a time.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    open: AtomicBool,
    cause: Mutex<Option<Error>>,
}

impl Breaker {
    /// Why nothing need be asked, if so: costs no I/O, and is read on the caller's own thread.
    pub(super) fn refusal(&self) -> Option<Error> {
        if !self.open.load(Ordering::Acquire) {
            return None;
        }
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn open(&self, cause: Error) {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
        self.open.store(true, Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.open.store(false, Ordering::Release);
    }
}

/// Counts how calls end, and tells when too many are late for a server that is there but too slow to be of use.
#[derive(Debug)]
pub(super) struct Tally {
    since: Cell<Instant>,
    answered: Cell<u32>,
    late: Cell<u32>,
}

/// Calls are counted over so long.
const SPAN: Duration = Duration::from_secs(1);
/// So many late calls are needed, and three of four.
const LEAST: u32 = 8;

impl Tally {
    pub(super) fn from(now: Instant) -> Self {
        Self { since: Cell::new(now), answered: Cell::new(0), late: Cell::new(0) }
    }

    pub(super) fn answered(&self, now: Instant) {
        self.turn(now);
        self.answered.set(self.answered.get().saturating_add(1));
    }

    /// Whether that was one too many.
    pub(super) fn late(&self, now: Instant) -> bool {
        self.turn(now);
        let late = self.late.get().saturating_add(1);
        self.late.set(late);
        late >= LEAST && late / 3 >= self.answered.get()
    }

    fn turn(&self, now: Instant) {
        if now.duration_since(self.since.get()) >= SPAN {
            self.since.set(now);
            self.answered.set(0);
            self.late.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_when_three_of_four_are_late() {
        let now = Instant::now();
        let tally = Tally::from(now);
        assert!((0..LEAST - 1).all(|_| !tally.late(now)), "too few to tell");
        assert!(tally.late(now));
        (0..4).for_each(|_| tally.answered(now));
        assert!((9..12).all(|_| !tally.late(now)));
        assert!(tally.late(now), "12 of 16");
    }

    #[test]
    fn forgets_what_was_a_second_ago() {
        let now = Instant::now();
        let tally = Tally::from(now);
        (0..1000).for_each(|_| tally.answered(now));
        assert!(!tally.late(now));
        let later = now + SPAN;
        assert!((0..LEAST - 1).all(|_| !tally.late(later)));
        assert!(tally.late(later));
    }
}
