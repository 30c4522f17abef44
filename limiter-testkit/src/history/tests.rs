use super::*;
use crate::Random;

const WINDOW: Duration = Duration::from_millis(10);

fn call(start: u64, end: u64, cost: u32) -> Admission {
    Admission { start: Duration::from_millis(start), end: Duration::from_millis(end), cost }
}

fn calls(intervals: &[(u64, u64)]) -> Vec<Admission> {
    intervals.iter().map(|&(start, end)| call(start, end, 1)).collect()
}

#[test]
fn counts_calls_wholly_inside_one_window() {
    let table: [(&[(u64, u64)], u64); 9] = [
        (&[], 0),
        (&[(0, 0)], 1),
        (&[(0, 9)], 1),
        (&[(0, 10)], 0), // the permit may be at the window's open end
        (&[(0, 0), (9, 9)], 2),
        (&[(0, 0), (10, 10)], 1),
        (&[(0, 2), (5, 9), (5, 10)], 2),
        (&[(20, 20), (0, 1), (22, 23), (3, 4), (24, 25)], 3), // in no order
        (&[(0, 100), (3, 4), (3, 4)], 2),
    ];
    for (intervals, expected) in table {
        assert_eq!(max_permits_in_window(&calls(intervals), WINDOW), expected, "{intervals:?}");
    }
    assert_eq!(max_permits_in_window(&[call(0, 0, 3), call(1, 1, 4), call(10, 10, 5)], WINDOW), 9);
}

#[test]
fn the_fullest_window_has_the_permits_of_a_plain_count() {
    let mut random = Random::new(5);
    for _ in 0..3_000 {
        let span = random.between(1, 60);
        let mut any_call = |_| {
            let (start, cost) = (random.below(span), random.between(0, 3));
            call(start, start + random.below(15), cost.try_into().expect("small"))
        };
        let calls: Vec<_> = (0..30).map(&mut any_call).collect();
        let (start, permits) = fullest_window(&calls, WINDOW);
        assert_eq!(permits, max_permits_in_window(&calls, WINDOW), "{calls:?}");
        let is_inside = |call: &&Admission| start <= call.start && call.end < start + WINDOW;
        let inside: u32 = calls.iter().filter(is_inside).map(|call| call.cost).sum();
        assert_eq!(permits, u64::from(inside), "{calls:?}");
    }
}

/// Intervals, the limit, and true if some placement satisfies it.
type PlacementCase<'a> = (&'a [(u64, u64)], u32, bool);

#[track_caller]
fn assert_feasibility(table: &[PlacementCase<'_>]) {
    for &(intervals, max, expected) in table {
        let result = feasible(&calls(intervals), WINDOW, max);
        assert_eq!(result.is_ok(), expected, "{intervals:?} at most {max}: {result:?}");
    }
}

#[test]
fn accepts_the_limit_and_rejects_one_more() {
    assert_feasibility(&[
        (&[], 1, true),
        (&[(0, 0)], 1, true),
        (&[(0, 0)], 0, false),
        (&[(0, 0), (10, 10)], 1, true),
        (&[(0, 0), (9, 9)], 1, false),
        (&[(0, 0), (9, 10)], 1, true),
        (&[(0, 5), (5, 14)], 1, true),
        (&[(1, 5), (5, 10)], 1, false),
        (&[(0, 0), (0, 0), (10, 10), (10, 10)], 2, true),
        (&[(0, 0), (1, 1), (10, 10), (10, 10)], 2, false),
    ]);
}

/// No single window is too full, so `max_permits_in_window` reports nothing; all windows together are.
#[test]
fn detects_violations_that_no_single_window_shows() {
    let chain = calls(&[(0, 8), (5, 15), (9, 19)]);
    assert_eq!(max_permits_in_window(&chain, WINDOW), 1);
    assert!(feasible(&chain, WINDOW, 1).is_err());
    assert!(feasible(&calls(&[(0, 8), (5, 15), (9, 20)]), WINDOW, 1).is_ok());
}

#[test]
fn nested_intervals_give_no_false_alarm() {
    assert_feasibility(&[
        (&[(0, 100), (5, 5)], 1, true),
        (&[(0, 10), (0, 0)], 1, true),
        (&[(0, 30), (10, 10), (20, 20)], 1, true),
        (&[(1, 9), (3, 4)], 1, false),
        (&[(0, 100), (5, 5), (6, 6)], 1, false), // wherever the long one is placed
        (&[(0, 100), (5, 6), (15, 16), (24, 25)], 1, true),
        (&[(0, 100), (5, 6), (15, 16), (23, 24)], 1, false),
    ]);
}

/// One case for each relaxed problem, which the other two do not detect.
#[test]
fn detects_violations_among_nested_intervals() {
    assert_feasibility(&[
        (&[(0, 100), (10, 18), (15, 25), (19, 29)], 1, false), // without the longer
        (&[(0, 18), (17, 17), (19, 36), (20, 33)], 1, false),  // with a later end for the shorter
        (&[(4, 22), (9, 17), (14, 34), (17, 21)], 1, false),   // with an earlier start for it
    ]);
}

#[test]
fn equal_costs_are_counted_in_whole_calls() {
    let pair = |start| [call(0, 0, 3), call(start, start, 3)];
    assert!(feasible(&pair(9), WINDOW, 5).is_err());
    assert!(feasible(&pair(9), WINDOW, 6).is_ok());
    assert!(feasible(&pair(10), WINDOW, 3).is_ok());
    let chain = [call(0, 8, 3), call(5, 15, 3), call(9, 19, 3)];
    assert!(feasible(&chain, WINDOW, 5).is_err()); // 9 permits would have found room for 5 + 4
    assert!(feasible(&chain, WINDOW, 6).is_ok());
}

#[test]
fn different_costs_are_counted_in_permits() {
    assert!(feasible(&[call(0, 0, 3), call(9, 9, 2)], WINDOW, 5).is_ok());
    assert!(feasible(&[call(0, 0, 3), call(9, 9, 3), call(9, 9, 0)], WINDOW, 5).is_err());
    assert!(feasible(&[call(0, 8, 3), call(5, 15, 2), call(9, 19, 3)], WINDOW, 2).is_err());
    assert!(feasible(&[call(0, 50, 3), call(0, 50, 1)], WINDOW, 2).is_err()); // 3 never fit at one instant
    assert!(feasible(&[call(0, 8, 3), call(5, 15, 2), call(9, 19, 3)], WINDOW, 3).is_err());
    assert!(feasible(&[call(0, 8, 3), call(5, 15, 2), call(9, 20, 3)], WINDOW, 3).is_ok());
    // The solution is 3 + 2 twice, which the order of arrival would miss.
    let late = [call(0, 10, 3), call(0, 10, 3), call(0, 10, 2), call(0, 10, 2)];
    assert!(feasible(&late, WINDOW, 5).is_ok());
}

#[test]
fn a_violation_names_the_call_and_the_limit() {
    let over = feasible(&calls(&[(0, 1), (2, 3)]), WINDOW, 1).expect_err("over");
    assert_eq!(over.to_string(), "2 permits, 1 allowed, within the 10ms from 0ns on");
    let dear = feasible(&[call(0, 1, 3)], WINDOW, 2).expect_err("over");
    assert_eq!(dear.to_string(), "3 permits, 2 allowed, in the one call between 0ns and 1ms");
    let late = feasible(&calls(&[(0, 8), (5, 15), (9, 19)]), WINDOW, 1).expect_err("over");
    let expected = "a call of cost 1 was admitted between 9ms and 19ms, \
                    but with 1 allowed there was no room before 20ms";
    assert_eq!(late.to_string(), expected);
}

#[test]
#[should_panic(expected = "ends before it starts")]
fn an_interval_that_ends_before_it_starts_panics() {
    let _ = feasible(&[call(5, 4, 1)], WINDOW, 1);
}

/// The oracle's admissions are always feasible, however wide the intervals around the true instants are. With one
/// permit too many and exact intervals they never are.
#[test]
fn the_oracles_admissions_are_feasible_and_one_more_is_not() {
    let mut random = Random::new(7);
    for round in 0..300 {
        let mut oracle = crate::Oracle::new();
        let (mut now, mut exact, mut seen) = (100, Vec::new(), Vec::new());
        for _ in 0..60 {
            now += random.below(4);
            let cost = u32::try_from(1 + random.below(3)).expect("small");
            if oracle.check(now, 10, 5, cost).allowed {
                exact.push(call(now, now, cost));
                seen.push(call(now - random.below(20), now + random.below(20), cost));
            }
        }
        assert_eq!(feasible(&seen, WINDOW, 5), Ok(()), "round {round}");
        assert!(max_permits_in_window(&seen, WINDOW) <= 5, "round {round}");

        assert_eq!(feasible(&exact, WINDOW, 5), Ok(()), "round {round}");
        exact.push(call(now, now, oracle.peek(now, 10, 5, 0).remaining + 1));
        assert!(feasible(&exact, WINDOW, 5).is_err(), "round {round}");
    }
}

/// The reference tries every placement; the results agree for single permits without nested intervals.
#[test]
fn agrees_with_trying_every_placement() {
    let mut random = Random::new(3);
    let (mut over, mut missed) = (0, 0);
    for _ in 0..2_000 {
        let intervals: Vec<_> = (0..5)
            .map(|_| {
                let start = random.below(25);
                (start, start + random.below(12))
            })
            .collect();
        let nested = intervals.iter().any(|a| intervals.iter().any(|b| a.0 < b.0 && b.1 < a.1));
        let max = u32::try_from(1 + random.below(2)).expect("small");
        let possible = some_placement(&intervals, &mut Vec::new(), max as usize);
        let found = feasible(&calls(&intervals), WINDOW, max).is_ok();
        assert!(found || !possible, "false alarm: {intervals:?} at most {max}");
        assert!(nested || found == possible, "missed: {intervals:?} at most {max}");
        over += usize::from(!possible);
        missed += usize::from(found && !possible);
    }
    assert!(over > 500 && missed * 20 < over, "{missed} of {over} missed");
}

/// Returns true if the remaining calls can be placed at whole instants beside the placed ones.
fn some_placement(left: &[(u64, u64)], placed: &mut Vec<u64>, max: usize) -> bool {
    let Some((&(start, end), rest)) = left.split_first() else {
        return true;
    };
    (start..=end).any(|instant| {
        placed.push(instant);
        let fits = placed.iter().all(|t| placed.iter().filter(|s| *s <= t && *s + 10 > *t).count() <= max);
        let found = fits && some_placement(rest, placed, max);
        placed.pop();
        found
    })
}
