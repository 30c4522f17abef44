//! Evaluation of the admitted calls of all processes.

use std::time::Duration;

use rate_limited::Limit;

/// The begin and the end of an admitted call, in nanoseconds of a clock that all processes share.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdmittedCall {
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// Returns the greatest number of calls that one half-open window certainly contains: those that begin after its begin
/// and end by its end. Calls that take a window or longer lie in none.
///
/// [`max_permits_in_window`](limiter_testkit::history::max_permits_in_window) counts the same in a way that can be checked
/// by eye, but compares all calls of a window. Here are millions of them.
pub(super) fn max_in_window(admitted: &[AdmittedCall], window: Duration) -> u64 {
    let window = nanos(window);
    let shorter = admitted.iter().filter(|call| call.end - call.begin < window);
    let (mut begins, mut ends): (Vec<_>, Vec<_>) = shorter.map(|call| (call.begin, call.end)).unzip();
    begins.sort_unstable();
    ends.sort_unstable();
    // The window is `(end - window, end]`. Each call that begins before it also ends by `end`.
    let (mut before, mut most) = (0, 0);
    for (ended, end) in (1..).zip(&ends) {
        while begins[before] + window <= *end {
            before += 1;
        }
        most = most.max(ended - before);
    }
    u64::try_from(most).expect("fewer calls than bytes of memory")
}

/// Returns the share of the limit that was used: the time that all limits but one needed at least, by the time that
/// they took. It is measured from the middle of the first limit on, since the limit may be used in bursts.
pub(super) fn share_used(admitted: &[AdmittedCall], limit: Limit) -> Option<f64> {
    let max = usize::try_from(limit.max()).expect("a limit of this run");
    let mut ends: Vec<_> = admitted.iter().map(|call| call.end).collect();
    ends.sort_unstable();
    let limits = u32::try_from(ends.len() / max).expect("few limits").checked_sub(1).filter(|limits| *limits > 0)?;
    let first = max / 2;
    let last = first + max * usize::try_from(limits).expect("few limits");
    let took = Duration::from_nanos(ends[last] - ends[first]);
    Some((limit.window() * limits).as_secs_f64() / took.as_secs_f64())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a time of a run")
}

#[cfg(test)]
mod tests {
    use super::*;
    use limiter_testkit::Random;
    use limiter_testkit::history::{Admission, max_permits_in_window};

    fn calls(intervals: &[(u64, u64)]) -> Vec<AdmittedCall> {
        intervals.iter().map(|&(begin, end)| AdmittedCall { begin, end }).collect()
    }

    #[test]
    fn a_window_contains_calls_that_begin_after_its_begin_and_end_by_its_end() {
        let table: [(&[(u64, u64)], u64); 6] = [
            (&[], 0),
            (&[(0, 9)], 1),
            (&[(0, 10)], 0),
            (&[(0, 0), (9, 9)], 2),
            (&[(0, 0), (10, 10)], 1),
            (&[(20, 20), (0, 1), (22, 23), (3, 4), (24, 25)], 3),
        ];
        for (intervals, expected) in table {
            assert_eq!(max_in_window(&calls(intervals), Duration::from_nanos(10)), expected, "{intervals:?}");
        }
    }

    #[test]
    fn the_count_is_that_of_a_comparison_of_all_calls() {
        let mut random = Random::new(3);
        for _ in 0..2_000 {
            let span = random.between(1, 60);
            let calls: Vec<_> = (0..random.between(0, 40))
                .map(|_| {
                    let begin = random.below(span);
                    AdmittedCall { begin, end: begin + random.below(15) }
                })
                .collect();
            let recorded: Vec<_> = calls
                .iter()
                .map(|call| {
                    let [start, end] = [call.begin, call.end].map(Duration::from_nanos);
                    Admission { start, end, cost: 1 }
                })
                .collect();
            let window = Duration::from_nanos(random.between(1, 30));
            assert_eq!(max_in_window(&calls, window), max_permits_in_window(&recorded, window), "{window:?} {calls:?}");
        }
    }

    #[test]
    fn the_share_used_is_that_of_whole_limits() {
        let limit: Limit = "4/1s".parse().expect("a limit");
        let at_millis = |times: &[u64]| {
            let nanos = |millis: &u64| millis * 1_000_000;
            calls(&times.iter().map(|time| (nanos(time), nanos(time))).collect::<Vec<_>>())
        };
        assert_eq!(share_used(&at_millis(&[0, 1, 2, 3, 1000, 1001, 1002]), limit), None);
        assert_eq!(share_used(&at_millis(&[0, 1, 2, 3, 1000, 1001, 1002, 1003]), limit), Some(1.0));
        assert_eq!(share_used(&at_millis(&[0, 0, 0, 0, 2000, 2000, 2000, 2000]), limit), Some(0.5));
    }
}
