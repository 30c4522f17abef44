//! The pauses that peers have demanded, by the key of the calls.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use limiter_core::Key;

/// The most keys that are paused at a time.
const MAX_PAUSES: usize = 10_000;

/// The end of each key's pause, by the limiter's clock.
#[derive(Default)]
pub(super) struct Pauses {
    ends: Mutex<HashMap<Key, Duration>>,
}

impl Pauses {
    /// Pauses a key until `end`, unless it is paused longer. While [`MAX_PAUSES`] keys are paused, the pause that ends
    /// first makes room.
    pub(super) fn pause(&self, key: &Key, end: Duration, now: Duration) {
        let mut ends = self.lock();
        if let Some(present) = ends.get_mut(key) {
            *present = end.max(*present);
            return;
        }
        if ends.len() >= MAX_PAUSES {
            ends.retain(|_, end| *end > now);
        }
        if ends.len() >= MAX_PAUSES
            && let Some(first) = ends.iter().min_by_key(|(_, end)| **end).map(|(key, _)| key.clone())
        {
            ends.remove(&first);
        }
        ends.insert(key.clone(), end);
    }

    /// Returns the rest of a key's pause. `None` if it is not paused.
    pub(super) fn remaining(&self, key: &Key, now: Duration) -> Option<Duration> {
        let mut ends = self.lock();
        let end = *ends.get(key)?;
        if end <= now {
            ends.remove(key);
            return None;
        }
        Some(end - now)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Duration>> {
        // No code of the program runs under the lock.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys are not shown: they may be personal data.
impl Debug for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pauses").field("keys", &self.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_pause_ends_at_its_latest_end() {
        let (pauses, key) = (Pauses::default(), Key::new("a"));
        assert_eq!(pauses.remaining(&key, seconds(0)), None);
        pauses.pause(&key, seconds(10), seconds(0));
        pauses.pause(&key, seconds(7), seconds(1));
        assert_eq!(pauses.remaining(&key, seconds(4)), Some(seconds(6)));
        assert_eq!(pauses.remaining(&Key::new("b"), seconds(4)), None);
        assert_eq!(pauses.remaining(&key, seconds(10)), None);
        assert_eq!(pauses.lock().len(), 0);
    }

    #[test]
    fn the_pause_that_ends_first_makes_room() {
        let pauses = Pauses::default();
        let key = |number: usize| Key::new("k:").part(number);
        for number in 0..MAX_PAUSES {
            pauses.pause(&key(number), seconds(100 + number as u64), seconds(0));
        }
        pauses.pause(&key(MAX_PAUSES), seconds(50), seconds(1));
        let is_paused = |number| pauses.remaining(&key(number), seconds(2)).is_some();
        assert_eq!([0, 1, MAX_PAUSES].map(is_paused), [false, true, true]);
        // Pauses that are over make room first.
        pauses.pause(&key(MAX_PAUSES + 1), seconds(9_000), seconds(200));
        assert!(pauses.lock().len() < MAX_PAUSES);
    }
}
