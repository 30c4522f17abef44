use super::*;
use crate::{FixedWindowOracle, LeakyBucketOracle, Oracle, Random, SlidingCounterOracle, TokenBucketOracle, Verdict};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The start, end and cost of a call.
type Interval = (u64, u64, u32);

/// Returns a rule of 4 permits per 10 ms.
fn rule(counts: Counts) -> Rule {
    Rule { counts, window: millis(10), max: 4, holds: 4, slack: Duration::ZERO }
}

fn admitted(calls: &[Interval]) -> Vec<Admission> {
    calls.iter().map(|&(start, end, cost)| Admission { start: millis(start), end: millis(end), cost }).collect()
}

fn denied((start, end, cost): Interval) -> Denial {
    Denial { start: millis(start), end: millis(end), cost }
}

/// Checks cases: admitted calls, a denied call after them, and true if that denial may be correct.
#[track_caller]
fn assert_denials(rule: &Rule, table: &[(&[Interval], Interval, bool)]) {
    for &(calls, denial, is_correct) in table {
        let result = check_denials(&admitted(calls), &[denied(denial)], rule);
        assert_eq!(result.is_ok(), is_correct, "{denial:?} after {calls:?}: {result:?}");
    }
}

#[test]
fn a_permit_leaves_room_after_one_window() {
    let table: &[(&[Interval], Interval, bool)] = &[
        (&[], (5, 5, 1), false),
        (&[], (5, 5, 5), true), // never fits
        (&[(0, 0, 4)], (9, 9, 1), true),
        (&[(0, 0, 4)], (10, 10, 1), false),
        (&[(0, 3, 4)], (12, 12, 1), true), // may have been taken at 3
        (&[(0, 3, 4)], (13, 13, 1), false),
        (&[(0, 0, 4)], (9, 99, 1), true), // may have been decided at 9
        (&[(8, 8, 4)], (5, 7, 1), false), // admitted after the denial's end
        (&[(7, 9, 4)], (5, 7, 1), true),
        (&[(0, 0, 3)], (5, 5, 1), false),
        (&[(0, 0, 3)], (5, 5, 2), true),
        (&[(5, 5, 3), (0, 0, 1)], (6, 6, 1), true), // in no order
        (&[(5, 5, 3), (0, 0, 1)], (10, 10, 1), false),
        (&[(0, 0, 4), (10, 10, 2)], (12, 12, 3), true),
        (&[(0, 0, 4), (10, 10, 2)], (12, 12, 2), false),
    ];
    assert_denials(&rule(Counts::Wholly), table);
}

#[test]
fn a_denial_may_be_late_by_the_slack() {
    let late = Rule { slack: millis(2), ..rule(Counts::Wholly) };
    assert_denials(&late, &[(&[(0, 0, 4)], (11, 11, 1), true), (&[(0, 0, 4)], (12, 12, 1), false)]);
    let late = Rule { slack: millis(2), ..rule(Counts::Queueing) };
    assert_denials(&late, &[(&[(0, 0, 4)], (11, 11, 1), true), (&[(0, 0, 4)], (12, 12, 1), false)]);
}

#[test]
fn a_fading_window_leaves_room_bit_by_bit() {
    let table: &[(&[Interval], Interval, bool)] = &[
        (&[(0, 0, 4)], (10, 10, 1), true),
        (&[(0, 0, 4)], (12, 12, 1), true),  // 3.2 count
        (&[(0, 0, 4)], (13, 13, 1), false), // 2.8
        (&[(0, 0, 4)], (13, 13, 2), true),
        (&[(0, 0, 4)], (19, 19, 4), true),
        (&[(0, 0, 4)], (20, 20, 4), false),
    ];
    assert_denials(&rule(Counts::Fading), table);
}

#[test]
fn permits_that_flowed_back_leave_room() {
    let table: &[(&[Interval], Interval, bool)] = &[
        (&[(0, 0, 4)], (2, 2, 1), true),
        (&[(0, 0, 4)], (3, 3, 1), false), // 1.2 are back
        (&[(0, 0, 4)], (3, 3, 2), true),
        (&[(0, 0, 4), (3, 3, 1)], (4, 4, 1), true), // 1.6 less 1
        (&[(0, 0, 4), (3, 3, 1)], (5, 5, 1), false),
        // The first call's permits are back: they cannot make up for calls after a pause.
        (&[(0, 0, 1), (90, 90, 4)], (91, 91, 1), true),
        (&[(0, 0, 4), (90, 90, 3)], (90, 90, 1), false),
    ];
    assert_denials(&rule(Counts::Flowing), table);
    assert_denials(
        &Rule { holds: 6, ..rule(Counts::Flowing) },
        &[(&[(0, 0, 4)], (0, 0, 2), false), (&[(0, 0, 4)], (0, 0, 3), true)],
    );
}

#[test]
fn a_queue_has_room_once_it_is_empty() {
    let table: &[(&[Interval], Interval, bool)] = &[
        (&[], (0, 0, 4), false),
        (&[], (0, 0, 5), true),
        (&[(0, 0, 1)], (2, 2, 1), true),
        (&[(0, 0, 1)], (3, 3, 1), false),
        (&[(0, 0, 1), (3, 3, 2)], (7, 7, 1), true),
        (&[(0, 0, 1), (3, 3, 2)], (8, 8, 1), false),
    ];
    assert_denials(&rule(Counts::Queueing), table);
}

#[test]
fn a_wrong_denial_names_the_call_and_the_permits_in_use() {
    let wrong = check_denials(&admitted(&[(0, 1, 2)]), &[denied((2, 3, 2))], &rule(Counts::Wholly));
    let expected = "a call of cost 2 was denied between 2ms and 3ms, but at most 2 of 4 were in use";
    assert_eq!(wrong.expect_err("wrong").to_string(), expected);
}

/// The oracles' denials are always accepted, however wide the intervals around the true instants are. A run by a longer
/// window than the rule's has wrong denials, which exact intervals always show.
#[test]
fn the_oracles_denials_are_correct_and_those_of_a_longer_window_are_not() {
    for seed in 0..100 {
        let sliding = |oracle: &mut Oracle, now, window, cost| oracle.check(now, window, 4, cost);
        check_oracle(seed, Counts::Wholly, sliding);
        check_oracle(seed, Counts::Wholly, |oracle: &mut FixedWindowOracle, now, window, cost| {
            oracle.check(now, window, 4, cost)
        });
        check_oracle(seed, Counts::Fading, |oracle: &mut SlidingCounterOracle, now, window, cost| {
            oracle.check(now, window, 4, cost)
        });
        check_oracle(seed, Counts::Flowing, |oracle: &mut TokenBucketOracle, now, window, cost| {
            oracle.check(now, window, (4, 4), cost)
        });
        check_oracle(seed, Counts::Queueing, |oracle: &mut LeakyBucketOracle, now, window, cost| {
            oracle.check(now, window, (4, 4), (cost, 0)).0
        });
    }
}

fn check_oracle<O: Default>(seed: u64, counts: Counts, check: impl Fn(&mut O, u64, u64, u32) -> Verdict) {
    for (window, is_correct) in [(10, true), (30, false)] {
        let mut random = Random::new(seed);
        let mut oracle = O::default();
        let (mut now, mut admissions, mut denials, mut exact) =
            (1_000, Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
        for _ in 0..100 {
            now += random.below(5);
            let cost = u32::try_from(random.between(1, 3)).expect("small");
            let seen = (now - random.below(8), now + random.below(8), cost);
            if check(&mut oracle, now, window, cost).allowed {
                admissions.push(seen);
                exact.0.push((now, now, cost));
            } else {
                denials.push(denied(seen));
                exact.1.push(denied((now, now, cost)));
            }
        }
        let rule = rule(counts);
        if is_correct {
            assert_eq!(check_denials(&admitted(&admissions), &denials, &rule), Ok(()), "{counts:?}, seed {seed}");
        }
        let result = check_denials(&admitted(&exact.0), &exact.1, &rule);
        assert_eq!(result.is_ok(), is_correct, "{counts:?}, seed {seed}: {result:?}");
    }
}
