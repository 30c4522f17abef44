//! When busy polling is of use: the rules that callers and the worker have in common.
//!
//! A server on the same machine replies to a small batch within some tens of microseconds, and a sleeping thread takes
//! about as long to wake up. A server behind a network replies later. A poll then ends without a reply after its time
//! limit, and there is no poll after most of the next calls.

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

/// The calls for which there is no poll, since earlier polls have missed the reply.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// The number of calls without a poll after the latest poll.
    next_skips: u32,
    /// The number of those that are left.
    skips: u32,
}

/// The most calls in a row without a poll.
const MAX_SKIPS: u32 = 63;

/// Returns the limit of a poll on this machine. With one core a poll would keep the server from running, so there is
/// none.
pub(crate) fn usable_limit(limit: Duration) -> Duration {
    limit_on_cores(limit, thread::available_parallelism().map_or(1, NonZeroUsize::get))
}

fn limit_on_cores(limit: Duration, cores: usize) -> Duration {
    if cores > 1 { limit } else { Duration::ZERO }
}

impl Backoff {
    /// Returns whether there is no poll for the next call.
    pub(crate) fn skip(&mut self) -> bool {
        let is_skipped = self.skips > 0;
        self.skips = self.skips.saturating_sub(1);
        is_skipped
    }

    /// Records a poll. Each miss in a row doubles the calls without a poll: 1, 3, 7, … 63.
    pub(crate) fn record(&mut self, is_hit: bool) {
        self.next_skips = if is_hit { 0 } else { (2 * self.next_skips + 1).min(MAX_SKIPS) };
        self.skips = self.next_skips;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_in_a_row_double_the_calls_without_a_poll() {
        let mut backoff = Backoff::default();
        for expected in [0, 1, 3, 7, 15, 31, 63, 63] {
            let skips = (0..100).take_while(|_| backoff.skip()).count();
            assert_eq!(skips, expected);
            backoff.record(false);
        }
        backoff.record(true);
        assert!(!backoff.skip());
        backoff.record(false);
        assert!(backoff.skip() && !backoff.skip());
    }

    #[test]
    fn one_core_turns_polling_off() {
        let limit = Duration::from_micros(50);
        assert_eq!([1, 2, 64].map(|cores| limit_on_cores(limit, cores)), [Duration::ZERO, limit, limit]);
    }
}
