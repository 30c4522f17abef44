//! A sound check of a limit from the records of its calls.

use std::collections::BinaryHeap;

use rate_limited::Limit;

use crate::buyers::Call;

/// The share of a window by which the clocks of Redis and of this process may drift apart.
const CLOCK_DRIFT: u32 = 1_000;

/// Returns the number of calls beyond the limit in the fullest window.
///
/// A call was decided at some moment between its start and its answer. A window begins with the start of a call. It has
/// the calls that were sent in it and answered before its end: these were decided in it, whatever the moments were. So
/// each excess is real, while one among calls that took long may remain unseen.
pub(super) fn calls_beyond(limit: Limit, mut calls: Vec<Call>) -> usize {
    let window = limit.window() - limit.window() / CLOCK_DRIFT;
    calls.sort_unstable_by_key(|call| std::cmp::Reverse(call.sent));
    let mut answered = BinaryHeap::new();
    let mut fullest = 0;
    // From the last window to the first one: an answer behind the end of a window is behind that of all earlier ones.
    for call in calls {
        answered.push(call.answered);
        while answered.peek().is_some_and(|last| *last >= call.sent + window) {
            answered.pop();
        }
        fullest = fullest.max(answered.len());
    }
    fullest.saturating_sub(usize::try_from(limit.max()).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rate_limited::Limit;

    use super::{CLOCK_DRIFT, calls_beyond};
    use crate::buyers::{Call, Outcome};

    fn calls(times: &[(u64, u64)]) -> Vec<Call> {
        let call = |(sent, answered): &(u64, u64)| Call {
            sent: Duration::from_millis(*sent),
            answered: Duration::from_millis(*answered),
            outcome: Outcome::Admitted,
        };
        times.iter().map(call).collect()
    }

    /// Counts the calls of each window one by one.
    fn naive(limit: Limit, calls: &[Call]) -> usize {
        let window = limit.window() - limit.window() / CLOCK_DRIFT;
        let in_window =
            |start: Duration| calls.iter().filter(|call| call.sent >= start && call.answered < start + window).count();
        let fullest = calls.iter().map(|call| in_window(call.sent)).max().unwrap_or(0);
        fullest.saturating_sub(usize::try_from(limit.max()).expect("few"))
    }

    #[test]
    fn an_excess_is_found_if_the_answers_prove_it() {
        let limit = "2/10s".parse().expect("a limit");
        let cases: [(&[(u64, u64)], usize); 6] = [
            (&[], 0),
            (&[(0, 1), (1, 2)], 0),
            (&[(0, 1), (1, 2), (9_000, 9_900)], 1),
            // The last one may have been decided after the window.
            (&[(0, 1), (1, 2), (9_000, 10_100)], 0),
            // The first one may have been decided before the window of the others.
            (&[(0, 9_000), (5_000, 5_001), (10_500, 10_501)], 0),
            (&[(0, 1), (0, 1), (0, 1), (20_000, 20_001), (20_000, 20_001), (20_000, 20_002), (20_001, 20_002)], 2),
        ];
        for (times, excess) in cases {
            assert_eq!(calls_beyond(limit, calls(times)), excess, "{times:?}");
        }
    }

    #[test]
    fn the_heap_agrees_with_counting_each_window() {
        let mut random = fastrand::Rng::with_seed(17);
        let limit = "3/100ms".parse().expect("a limit");
        for _ in 0..2_000 {
            let mut time = || {
                let sent = random.u64(..400);
                (sent, sent + random.u64(..150))
            };
            let times: Vec<_> = (0..20).map(|_| time()).collect();
            let calls = calls(&times);
            assert_eq!(calls_beyond(limit, calls.clone()), naive(limit, &calls), "{times:?}");
        }
    }
}
