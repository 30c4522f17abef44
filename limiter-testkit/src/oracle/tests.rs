use super::{Oracle, Verdict};

const WINDOW: u64 = 10;

/// One call at `now` of `cost` under `max`, and the four numbers of the answer.
struct Step(u64, u32, u32, Verdict);

fn allowed(remaining: u32, reset_after: u64) -> Verdict {
    Verdict { allowed: true, remaining, retry_after: Some(0), reset_after }
}

fn denied(remaining: u32, retry_after: u64, reset_after: u64) -> Verdict {
    Verdict { allowed: false, remaining, retry_after: Some(retry_after), reset_after }
}

fn never(remaining: u32, reset_after: u64) -> Verdict {
    Verdict { allowed: false, remaining, retry_after: None, reset_after }
}

#[track_caller]
fn run(steps: &[Step]) {
    let mut oracle = Oracle::new();
    for (row, &Step(now, max, cost, expected)) in steps.iter().enumerate() {
        assert_eq!(oracle.check(now, WINDOW, max, cost), expected, "row {row}");
    }
}

#[test]
fn a_permit_counts_until_exactly_one_window_later() {
    run(&[
        Step(100, 2, 1, allowed(1, 10)),
        Step(103, 2, 1, allowed(0, 10)),
        Step(103, 2, 1, denied(0, 7, 10)),
        Step(109, 2, 1, denied(0, 1, 4)),
        Step(110, 2, 1, allowed(0, 10)),
        Step(110, 2, 1, denied(0, 3, 10)),
        Step(112, 2, 1, denied(0, 1, 8)),
        Step(113, 2, 1, allowed(0, 10)),
    ]);
}

#[test]
fn everything_counts_before_the_first_window_has_passed() {
    run(&[Step(0, 1, 1, allowed(0, 10)), Step(9, 1, 1, denied(0, 1, 1)), Step(10, 1, 1, allowed(0, 10))]);
}

#[test]
fn a_denial_records_nothing() {
    run(&[
        Step(0, 1, 1, allowed(0, 10)),
        Step(5, 1, 1, denied(0, 5, 5)),
        Step(9, 1, 1, denied(0, 1, 1)),
        Step(10, 1, 1, allowed(0, 10)),
    ]);
}

#[test]
fn a_cost_waits_until_enough_permits_are_back() {
    run(&[
        Step(0, 5, 2, allowed(3, 10)),
        Step(1, 5, 1, allowed(2, 10)),
        Step(4, 5, 2, allowed(0, 10)),
        Step(5, 5, 1, denied(0, 5, 9)),
        Step(5, 5, 2, denied(0, 5, 9)),
        Step(5, 5, 3, denied(0, 6, 9)),
        Step(5, 5, 4, denied(0, 9, 9)),
        Step(5, 5, 5, denied(0, 9, 9)),
        Step(10, 5, 3, denied(2, 1, 4)),
        Step(11, 5, 3, allowed(0, 10)),
    ]);
}

#[test]
fn a_cost_above_the_limit_is_never_allowed() {
    run(&[
        Step(0, 3, 4, never(3, 0)),
        Step(0, 3, 3, allowed(0, 10)),
        Step(4, 3, 4, never(0, 6)),
        Step(50, 3, 4, never(3, 0)),
        Step(50, 0, 1, never(0, 0)),
    ]);
}

#[test]
fn nothing_is_always_allowed_and_takes_nothing() {
    run(&[
        Step(0, 1, 0, allowed(1, 0)),
        Step(0, 1, 1, allowed(0, 10)),
        Step(2, 1, 0, allowed(0, 8)),
        Step(3, 0, 0, allowed(0, 7)),
        Step(10, 1, 1, allowed(0, 10)),
    ]);
}

#[test]
fn callers_with_different_limits_share_one_history() {
    run(&[
        Step(0, 5, 3, allowed(2, 10)),
        Step(1, 2, 1, denied(0, 9, 9)), // lowered: more is used than the limit
        Step(2, 5, 2, allowed(0, 10)),
        Step(3, 2, 1, denied(0, 9, 9)), // the first three alone do not suffice
        Step(3, 4, 2, denied(0, 7, 9)),
        Step(3, 8, 2, allowed(1, 10)), // raised
        Step(10, 5, 1, allowed(0, 10)),
    ]);
}

#[test]
fn windows_come_with_the_call_too() {
    let mut oracle = Oracle::new();
    assert_eq!(oracle.check(0, 10, 1, 1), allowed(0, 10));
    assert_eq!(oracle.check(5, 5, 1, 1), allowed(0, 5));
    assert_eq!(oracle.check(6, 10, 2, 1), denied(0, 4, 9));
}

#[test]
fn a_peek_shows_the_answer_and_changes_nothing() {
    let mut oracle = Oracle::new();
    assert_eq!(oracle.peek(0, WINDOW, 1, 1), allowed(1, 0));
    assert_eq!(oracle.peek(0, WINDOW, 1, 1), allowed(1, 0));
    assert_eq!(oracle.check(0, WINDOW, 1, 1), allowed(0, 10));
    assert_eq!(oracle.peek(3, WINDOW, 1, 1), denied(0, 7, 7));
    assert_eq!(oracle.used(3, WINDOW), 1);
}

#[test]
fn time_stands_still_while_it_is_behind_and_what_is_far_ahead_is_void() {
    let mut oracle = Oracle::new();
    assert!(oracle.check(100, 10, 2, 1).allowed);
    assert!(oracle.check(105, 10, 2, 1).allowed);
    let behind = oracle.check(98, 10, 2, 1);
    assert_eq!((behind.allowed, behind.retry_after, behind.reset_after), (false, Some(12), 17));
    assert!(!oracle.peek(95, 10, 2, 1).allowed);
    assert!(oracle.peek(94, 10, 2, 2).allowed, "11 ms ahead");
    assert!(!oracle.peek(109, 10, 2, 1).allowed, "and nothing was forgotten by looking");
    assert!(oracle.check(94, 10, 2, 2).allowed && !oracle.peek(103, 10, 2, 1).allowed);
    assert!(oracle.peek(104, 10, 2, 2).allowed);
}

#[test]
fn a_refund_is_of_its_own_permits_while_they_count() {
    let mut oracle = Oracle::new();
    assert!(oracle.check(100, 10, 5, 2).allowed && oracle.check(104, 10, 5, 3).allowed);
    oracle.refund(105, 10, 104, 3);
    assert_eq!((oracle.used(105, 10), oracle.used(109, 10), oracle.used(110, 10)), (2, 2, 0));
    assert!(oracle.check(110, 10, 5, 3).allowed);
    oracle.refund(114, 10, 104, 3);
    oracle.refund(115, 10, 100, 2);
    oracle.refund(115, 10, 116, 2);
    assert_eq!(oracle.used(115, 10), 3, "over, or not yet");
}

/// A permit gets the last stamp while the clock is behind it: its receipt is older than itself, and may find others' first.
#[test]
fn a_refund_of_what_was_taken_by_a_clock_that_was_behind_leaves_the_latest() {
    let mut oracle = Oracle::new();
    for (now, cost) in [(100, 1), (104, 1), (109, 1), (103, 2)] {
        assert!(oracle.check(now, 10, 5, cost).allowed);
    }
    oracle.refund(103, 10, 103, 2);
    let used = [103, 118, 119].map(|now| oracle.used(now, 10));
    assert_eq!(used, [3, 3, 0], "those of 104 and, as that was one, of 100 are back");
}

/// What a refund proves to be over stays over when the clock steps back: the receipt must not take others' permits.
#[test]
fn a_receipt_of_what_is_over_stays_worthless() {
    let mut oracle = Oracle::new();
    for (now, cost) in [(100, 2), (106, 1), (110, 3)] {
        assert!(oracle.check(now, 10, 5, cost).allowed);
    }
    oracle.refund(110, 10, 110, 3);
    oracle.refund(107, 10, 100, 2);
    assert_eq!(oracle.used(107, 10), 1);
}

/// The promise of `retry_after` itself, over a few thousand calls: then it fits, and 1 ms before it does not.
#[test]
fn retry_after_is_the_first_instant_that_fits() {
    let mut oracle = Oracle::new();
    let mut random = crate::Random::new(1);
    let mut small = |below| u32::try_from(random.below(below)).expect("small");
    let (mut now, mut denials) = (0, 0);
    for _ in 0..3_000 {
        now += u64::from(small(4));
        let (max, cost) = (5 + small(4), small(7));
        let verdict = oracle.check(now, WINDOW, max, cost);
        let Some(wait) = verdict.retry_after.filter(|wait| *wait > 0) else {
            assert_eq!(verdict.allowed, cost <= max);
            continue;
        };
        denials += 1;
        assert!(oracle.peek(now + wait, WINDOW, max, cost).allowed);
        assert!(!oracle.peek(now + wait - 1, WINDOW, max, cost).allowed);
        assert_eq!(oracle.used(now + verdict.reset_after, WINDOW), 0);
        assert!(oracle.used(now + verdict.reset_after - 1, WINDOW) > 0);
    }
    assert!(denials > 500, "{denials}");
}
