//! A check that a limit was kept, from the history of admissions.
//!
//! A permit is taken at some instant between a call's start and its end. So a window counts only calls that begin and
//! end in it: a limiter is never charged with an excess that may not have happened. `limiter_testkit::history` finds
//! more, but takes quadratic time, and there are a million calls here.

use std::time::Duration;

use crate::contestant::Rate;

/// An admitted call. Its instants count from the origin of the run.
#[derive(Debug, Clone, Copy)]
pub struct Admitted {
    /// The number of the key.
    pub key: usize,
    /// An instant before the call.
    pub start: Duration,
    /// An instant after its decision.
    pub end: Duration,
}

/// Returns the most calls on one key that were certainly within one window.
#[must_use]
pub fn most_in_a_window(admissions: &[Admitted], rate: Rate) -> usize {
    let mut admissions = admissions.to_vec();
    admissions.retain(|call| call.end - call.start < rate.window()); // longer ones are within no window
    admissions.sort_unstable_by_key(|call| call.key);
    admissions.chunk_by(|a, b| a.key == b.key).map(|calls| most_on_a_key(calls, rate.window())).max().unwrap_or(0)
}

/// Returns the most calls of one key within a window. A window's calls are those that end before its end, less those
/// that start before its start. No call is longer than a window, so the second group is part of the first.
fn most_on_a_key(calls: &[Admitted], window: Duration) -> usize {
    let mut starts: Vec<_> = calls.iter().map(|call| call.start).collect();
    let mut ends: Vec<_> = calls.iter().map(|call| call.end).collect();
    starts.sort_unstable();
    ends.sort_unstable();
    let within = |&start: &Duration| {
        let before = starts.partition_point(|&other| other < start);
        ends.partition_point(|&end| end < start + window).saturating_sub(before)
    };
    starts.iter().map(within).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use limiter_testkit::Random;
    use limiter_testkit::history::{Admission, max_permits_in_window};

    use super::*;

    const RATE: Rate = Rate { max: 5, seconds: 1 };

    fn call(key: usize, start_ms: u64, end_ms: u64) -> Admitted {
        Admitted { key, start: Duration::from_millis(start_ms), end: Duration::from_millis(end_ms) }
    }

    #[test]
    fn counts_calls_wholly_inside_a_window_for_each_key() {
        let calls = [call(0, 0, 10), call(0, 500, 999), call(0, 500, 1_000), call(0, 1_000, 1_001), call(1, 1, 2)];
        assert_eq!(most_in_a_window(&calls, RATE), 3);
        assert_eq!(most_in_a_window(&calls[..3], RATE), 2, "a window is half open");
        assert_eq!(most_in_a_window(&[call(0, 0, 5_000)], RATE), 0);
    }

    #[test]
    fn agrees_with_the_quadratic_count() {
        let mut random = Random::new(7);
        for _ in 0..200 {
            let calls: Vec<_> = (0..40)
                .map(|_| {
                    let start = random.below(4_000);
                    call(0, start, start + random.below(900))
                })
                .collect();
            let plain: Vec<_> =
                calls.iter().map(|call| Admission { start: call.start, end: call.end, cost: 1 }).collect();
            assert_eq!(most_in_a_window(&calls, RATE) as u64, max_permits_in_window(&plain, RATE.window()));
        }
    }
}
