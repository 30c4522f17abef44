//! Random times at which one process is stopped and continued.

use std::time::{Duration, Instant};

use limiter_testkit::Random;

/// The shortest time for which a process is stopped or runs. It is less than the time of any lease.
const MIN_PAUSE_MICROS: u64 = 3_000;

/// The times at which one process is stopped and continued in turn. The first time is soon, in the start of the process.
#[derive(Debug)]
pub(super) struct Pauses {
    random: Random,
    max_micros: u64,
    next: Instant,
    is_stopped: bool,
}

/// The next change of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PauseChange {
    Stop,
    Continue,
}

impl Pauses {
    /// Creates the times with pauses of at most `max_pause`. `None` if that is zero.
    pub(super) fn new(max_pause: Duration, seed: u64, now: Instant) -> Option<Self> {
        let max_micros = u64::try_from(max_pause.as_micros()).expect("a time of a run");
        let mut pauses = Self {
            random: Random::new(seed),
            max_micros: max_micros.max(MIN_PAUSE_MICROS),
            next: now,
            is_stopped: false,
        };
        pauses.next = now + pauses.draw();
        (max_micros > 0).then_some(pauses)
    }

    /// Returns the time of the next change.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Returns the change that is due, and draws the time of the next one.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<PauseChange> {
        if now < self.next {
            return None;
        }
        self.next = now + self.draw();
        self.is_stopped = !self.is_stopped;
        Some(if self.is_stopped { PauseChange::Stop } else { PauseChange::Continue })
    }

    /// Draws a time. Short times are more frequent: most errors need a pause of about the time of a lease.
    fn draw(&mut self) -> Duration {
        let longest = self.random.between(MIN_PAUSE_MICROS, self.max_micros);
        Duration::from_micros(self.random.between(MIN_PAUSE_MICROS, longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_stopped_and_continued_in_turn() {
        let (max_pause, start) = (Duration::from_millis(50), Instant::now());
        assert!(Pauses::new(Duration::ZERO, 1, start).is_none());
        let mut pauses = Pauses::new(max_pause, 1, start).expect("pauses");
        let mut now = start;
        for change in [PauseChange::Stop, PauseChange::Continue].into_iter().cycle().take(200) {
            assert_eq!(pauses.take_due(now), None);
            let wait = pauses.next() - now;
            assert!(wait >= Duration::from_micros(MIN_PAUSE_MICROS) && wait <= max_pause, "{wait:?}");
            now = pauses.next();
            assert_eq!(pauses.take_due(now), Some(change));
        }
    }
}
