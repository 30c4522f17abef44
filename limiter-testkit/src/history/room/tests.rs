use super::*;
use crate::{FixedWindowOracle, LeakyBucketOracle, Oracle, Random, SlidingCounterOracle, TokenBucketOracle, Verdict};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Start, end and cost.
type Call = (u64, u64, u32);

/// Windows of 10 ms with 4 permits.
fn rule(counts: Counts) -> Rule {
    Rule { counts, window: millis(10), max: 4, holds: 4, slack: Duration::ZERO }
}

fn admitted(calls: &[Call]) -> Vec<Admission> {
    calls.iter().map(|&(start, end, cost)| Admission { start: millis(start), end: millis(end), cost }).collect()
}

fn denied((start, end, cost): Call) -> Denial {
    Denial { start: millis(start), end: millis(end), cost }
}

/// What was admitted, what was denied after it, and whether that can have been right.
#[track_caller]
fn judge(rule: &Rule, table: &[(&[Call], Call, bool)]) {
    for &(calls, denial, right) in table {
        let verdict = no_denial_had_room(&admitted(calls), &[denied(denial)], rule);
        assert_eq!(verdict.is_ok(), right, "{denial:?} after {calls:?}: {verdict:?}");
    }
}

#[test]
fn what_has_left_the_window_leaves_room() {
    let table: &[(&[Call], Call, bool)] = &[
        (&[], (5, 5, 1), false),
        (&[], (5, 5, 5), true), // never fits
        (&[(0, 0, 4)], (9, 9, 1), true),
        (&[(0, 0, 4)], (10, 10, 1), false),
        (&[(0, 3, 4)], (12, 12, 1), true), // may have been taken at 3
        (&[(0, 3, 4)], (13, 13, 1), false),
        (&[(0, 0, 4)], (9, 99, 1), true), // may have been looked at in 9
        (&[(8, 8, 4)], (5, 7, 1), false), // not admitted before the answer
        (&[(7, 9, 4)], (5, 7, 1), true),
        (&[(0, 0, 3)], (5, 5, 1), false),
        (&[(0, 0, 3)], (5, 5, 2), true),
        (&[(5, 5, 3), (0, 0, 1)], (6, 6, 1), true), // in no order
        (&[(5, 5, 3), (0, 0, 1)], (10, 10, 1), false),
        (&[(0, 0, 4), (10, 10, 2)], (12, 12, 3), true),
        (&[(0, 0, 4), (10, 10, 2)], (12, 12, 2), false),
    ];
    judge(&rule(Counts::Wholly), table);
}

#[test]
fn slack_excuses_what_is_late_by_no_more() {
    let late = Rule { slack: millis(2), ..rule(Counts::Wholly) };
    judge(&late, &[(&[(0, 0, 4)], (11, 11, 1), true), (&[(0, 0, 4)], (12, 12, 1), false)]);
    let late = Rule { slack: millis(2), ..rule(Counts::Queueing) };
    judge(&late, &[(&[(0, 0, 4)], (11, 11, 1), true), (&[(0, 0, 4)], (12, 12, 1), false)]);
}

#[test]
fn what_fades_leaves_room_bit_by_bit() {
    let table: &[(&[Call], Call, bool)] = &[
        (&[(0, 0, 4)], (10, 10, 1), true),
        (&[(0, 0, 4)], (12, 12, 1), true),  // 3.2 count
        (&[(0, 0, 4)], (13, 13, 1), false), // 2.8
        (&[(0, 0, 4)], (13, 13, 2), true),
        (&[(0, 0, 4)], (19, 19, 4), true),
        (&[(0, 0, 4)], (20, 20, 4), false),
    ];
    judge(&rule(Counts::Fading), table);
}

#[test]
fn what_flows_back_leaves_room() {
    let table: &[(&[Call], Call, bool)] = &[
        (&[(0, 0, 4)], (2, 2, 1), true),
        (&[(0, 0, 4)], (3, 3, 1), false), // 1.2 are back
        (&[(0, 0, 4)], (3, 3, 2), true),
        (&[(0, 0, 4), (3, 3, 1)], (4, 4, 1), true), // 1.6 less 1
        (&[(0, 0, 4), (3, 3, 1)], (5, 5, 1), false),
        // Of the first nothing is left over: it cannot make up for what came after a pause.
        (&[(0, 0, 1), (90, 90, 4)], (91, 91, 1), true),
        (&[(0, 0, 4), (90, 90, 3)], (90, 90, 1), false),
    ];
    judge(&rule(Counts::Flowing), table);
    judge(
        &Rule { holds: 6, ..rule(Counts::Flowing) },
        &[(&[(0, 0, 4)], (0, 0, 2), false), (&[(0, 0, 4)], (0, 0, 3), true)],
    );
}

#[test]
fn a_queue_has_room_when_all_has_passed() {
    let table: &[(&[Call], Call, bool)] = &[
        (&[], (0, 0, 4), false),
        (&[], (0, 0, 5), true),
        (&[(0, 0, 1)], (2, 2, 1), true),
        (&[(0, 0, 1)], (3, 3, 1), false),
        (&[(0, 0, 1), (3, 3, 2)], (7, 7, 1), true),
        (&[(0, 0, 1), (3, 3, 2)], (8, 8, 1), false),
    ];
    judge(&rule(Counts::Queueing), table);
}

#[test]
fn says_which_and_why() {
    let wrong = no_denial_had_room(&admitted(&[(0, 1, 2)]), &[denied((2, 3, 2))], &rule(Counts::Wholly));
    let expected = "a call of cost 2 was denied between 2ms and 3ms, but at most 2 of 4 were in use";
    assert_eq!(wrong.expect_err("wrong").to_string(), expected);
}

/// What the oracles deny is never at fault, however wide the intervals around the true instants are. Of a run whose
/// denials last longer than they should, by a window and with exact intervals, some always are.
#[test]
fn tells_denials_that_had_room_from_those_that_had_none() {
    for seed in 0..100 {
        let sliding = |oracle: &mut Oracle, now, window, cost| oracle.check(now, window, 4, cost);
        run(seed, Counts::Wholly, sliding);
        run(seed, Counts::Wholly, |oracle: &mut FixedWindowOracle, now, window, cost| {
            oracle.check(now, window, 4, cost)
        });
        run(seed, Counts::Fading, |oracle: &mut SlidingCounterOracle, now, window, cost| {
            oracle.check(now, window, 4, cost)
        });
        run(seed, Counts::Flowing, |oracle: &mut TokenBucketOracle, now, window, cost| {
            oracle.check(now, window, (4, 4), cost)
        });
        run(seed, Counts::Queueing, |oracle: &mut LeakyBucketOracle, now, window, cost| {
            oracle.check(now, window, (4, 4), (cost, 0)).0
        });
    }
}

fn run<O: Default>(seed: u64, counts: Counts, check: impl Fn(&mut O, u64, u64, u32) -> Verdict) {
    for (window, is_right) in [(10, true), (30, false)] {
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
        if is_right {
            assert_eq!(no_denial_had_room(&admitted(&admissions), &denials, &rule), Ok(()), "{counts:?}, seed {seed}");
        }
        let verdict = no_denial_had_room(&admitted(&exact.0), &exact.1, &rule);
        assert_eq!(verdict.is_ok(), is_right, "{counts:?}, seed {seed}: {verdict:?}");
    }
}
