//! Whether a limit was kept, by the history of what was admitted.
//!
//! A permit was taken somewhere between a call's start and its end. So only calls that begin and end within one window
//! are counted in it: no limiter is blamed for what it may not have done. `limiter_testkit::history` sees more, but
//! takes a square of the calls, of which there are a million here.

use std::time::Duration;

use crate::contestant::Rate;

/// An admitted call. Instants count from the origin of the run.
#[derive(Debug, Clone, Copy)]
pub struct Admitted {
    /// Which key.
    pub key: usize,
    /// Before it asked.
    pub start: Duration,
    /// After it had its answer.
    pub end: Duration,
}

/// The most calls on one key that were certainly within one window.
#[must_use]
pub fn most_in_a_window(admissions: &[Admitted], rate: Rate) -> usize {
    let mut admissions = admissions.to_vec();
    admissions.retain(|call| call.end - call.start < rate.window()); // longer ones are within no window
    admissions.sort_unstable_by_key(|call| call.key);
    admissions.chunk_by(|a, b| a.key == b.key).map(|calls| most_on_a_key(calls, rate.window())).max().unwrap_or(0)
}

/// Those that end before a window's end, without those that start before its start: no call is longer than a window,
/// so the latter are all among the former.
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
    fn counts_what_is_wholly_inside_and_apart_by_key() {
        let calls = [call(0, 0, 10), call(0, 500, 999), call(0, 500, 1_000), call(0, 1_000, 1_001), call(1, 1, 2)];
        assert_eq!(most_in_a_window(&calls, RATE), 3);
        assert_eq!(most_in_a_window(&calls[..3], RATE), 2, "a window is half open");
        assert_eq!(most_in_a_window(&[call(0, 0, 5_000)], RATE), 0);
    }

    #[test]
    fn agrees_with_the_plain_count() {
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
