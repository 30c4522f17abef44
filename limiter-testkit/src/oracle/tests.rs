use super::{Oracle, Verdict};

const WINDOW: u64 = 10;

/// One call: the time, `max`, the cost and the expected verdict.
struct OracleCall(u64, u32, u32, Verdict);

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
fn run(steps: &[OracleCall]) {
    let mut oracle = Oracle::new();
    for (row, &OracleCall(now, max, cost, expected)) in steps.iter().enumerate() {
        assert_eq!(oracle.check(now, WINDOW, max, cost), expected, "row {row}");
    }
}

#[test]
fn a_permit_counts_until_exactly_one_window_later() {
    run(&[
        OracleCall(100, 2, 1, allowed(1, 10)),
        OracleCall(103, 2, 1, allowed(0, 10)),
        OracleCall(103, 2, 1, denied(0, 7, 10)),
        OracleCall(109, 2, 1, denied(0, 1, 4)),
        OracleCall(110, 2, 1, allowed(0, 10)),
        OracleCall(110, 2, 1, denied(0, 3, 10)),
        OracleCall(112, 2, 1, denied(0, 1, 8)),
        OracleCall(113, 2, 1, allowed(0, 10)),
    ]);
}

#[test]
fn all_permits_count_within_the_first_window() {
    run(&[
        OracleCall(0, 1, 1, allowed(0, 10)),
        OracleCall(9, 1, 1, denied(0, 1, 1)),
        OracleCall(10, 1, 1, allowed(0, 10)),
    ]);
}

#[test]
fn a_denial_records_nothing() {
    run(&[
        OracleCall(0, 1, 1, allowed(0, 10)),
        OracleCall(5, 1, 1, denied(0, 5, 5)),
        OracleCall(9, 1, 1, denied(0, 1, 1)),
        OracleCall(10, 1, 1, allowed(0, 10)),
    ]);
}

#[test]
fn a_cost_waits_until_enough_permits_expire() {
    run(&[
        OracleCall(0, 5, 2, allowed(3, 10)),
        OracleCall(1, 5, 1, allowed(2, 10)),
        OracleCall(4, 5, 2, allowed(0, 10)),
        OracleCall(5, 5, 1, denied(0, 5, 9)),
        OracleCall(5, 5, 2, denied(0, 5, 9)),
        OracleCall(5, 5, 3, denied(0, 6, 9)),
        OracleCall(5, 5, 4, denied(0, 9, 9)),
        OracleCall(5, 5, 5, denied(0, 9, 9)),
        OracleCall(10, 5, 3, denied(2, 1, 4)),
        OracleCall(11, 5, 3, allowed(0, 10)),
    ]);
}

#[test]
fn a_cost_above_the_limit_is_never_allowed() {
    run(&[
        OracleCall(0, 3, 4, never(3, 0)),
        OracleCall(0, 3, 3, allowed(0, 10)),
        OracleCall(4, 3, 4, never(0, 6)),
        OracleCall(50, 3, 4, never(3, 0)),
        OracleCall(50, 0, 1, never(0, 0)),
    ]);
}

#[test]
fn a_cost_of_0_is_always_allowed_and_takes_nothing() {
    run(&[
        OracleCall(0, 1, 0, allowed(1, 0)),
        OracleCall(0, 1, 1, allowed(0, 10)),
        OracleCall(2, 1, 0, allowed(0, 8)),
        OracleCall(3, 0, 0, allowed(0, 7)),
        OracleCall(10, 1, 1, allowed(0, 10)),
    ]);
}

#[test]
fn callers_with_different_limits_share_one_history() {
    run(&[
        OracleCall(0, 5, 3, allowed(2, 10)),
        OracleCall(1, 2, 1, denied(0, 9, 9)), // lowered: more is used than the limit
        OracleCall(2, 5, 2, allowed(0, 10)),
        OracleCall(3, 2, 1, denied(0, 9, 9)), // the first three alone do not suffice
        OracleCall(3, 4, 2, denied(0, 7, 9)),
        OracleCall(3, 8, 2, allowed(1, 10)), // raised
        OracleCall(10, 5, 1, allowed(0, 10)),
    ]);
}

#[test]
fn each_call_brings_its_own_window() {
    let mut oracle = Oracle::new();
    assert_eq!(oracle.check(0, 10, 1, 1), allowed(0, 10));
    assert_eq!(oracle.check(5, 5, 1, 1), allowed(0, 5));
    assert_eq!(oracle.check(6, 10, 2, 1), denied(0, 4, 9));
}

#[test]
fn a_peek_returns_the_decision_and_changes_nothing() {
    let mut oracle = Oracle::new();
    assert_eq!(oracle.peek(0, WINDOW, 1, 1), allowed(1, 0));
    assert_eq!(oracle.peek(0, WINDOW, 1, 1), allowed(1, 0));
    assert_eq!(oracle.check(0, WINDOW, 1, 1), allowed(0, 10));
    assert_eq!(oracle.peek(3, WINDOW, 1, 1), denied(0, 7, 7));
    assert_eq!(oracle.used(3, WINDOW), 1);
}

#[test]
fn time_stands_still_while_behind_and_a_history_far_ahead_is_void() {
    let mut oracle = Oracle::new();
    assert!(oracle.check(100, 10, 2, 1).allowed);
    assert!(oracle.check(105, 10, 2, 1).allowed);
    let behind = oracle.check(98, 10, 2, 1);
    assert_eq!((behind.allowed, behind.retry_after, behind.reset_after), (false, Some(12), 17));
    assert!(!oracle.peek(95, 10, 2, 1).allowed);
    assert!(oracle.peek(94, 10, 2, 2).allowed, "11 ms ahead");
    assert!(!oracle.peek(109, 10, 2, 1).allowed, "a peek removes nothing");
    assert!(oracle.check(94, 10, 2, 2).allowed && !oracle.peek(103, 10, 2, 1).allowed);
    assert!(oracle.peek(104, 10, 2, 2).allowed);
}

#[test]
fn a_refund_returns_its_own_permits_while_they_count() {
    let mut oracle = Oracle::new();
    assert!(oracle.check(100, 10, 5, 2).allowed && oracle.check(104, 10, 5, 3).allowed);
    oracle.refund(105, 10, 104, 3);
    assert_eq!((oracle.used(105, 10), oracle.used(109, 10), oracle.used(110, 10)), (2, 2, 0));
    assert!(oracle.check(110, 10, 5, 3).allowed);
    oracle.refund(114, 10, 104, 3);
    oracle.refund(115, 10, 100, 2);
    oracle.refund(115, 10, 116, 2);
    assert_eq!(oracle.used(115, 10), 3, "expired, or not taken yet");
}

/// Permits get the last stamp while the clock is behind it. Their receipt is then older than they are, and may match
/// other permits first.
#[test]
fn a_refund_of_a_call_by_a_clock_behind_keeps_the_latest_stamp() {
    let mut oracle = Oracle::new();
    for (now, cost) in [(100, 1), (104, 1), (109, 1), (103, 2)] {
        assert!(oracle.check(now, 10, 5, cost).allowed);
    }
    oracle.refund(103, 10, 103, 2);
    let used = [103, 118, 119].map(|now| oracle.used(now, 10));
    assert_eq!(used, [3, 3, 0], "the permit of 104 and, since that is only one, the permit of 100 are refunded");
}

/// Permits that a refund has found expired stay expired when the clock steps back. Their receipt must not refund other
/// permits.
#[test]
fn an_expired_receipt_stays_void() {
    let mut oracle = Oracle::new();
    for (now, cost) in [(100, 2), (106, 1), (110, 3)] {
        assert!(oracle.check(now, 10, 5, cost).allowed);
    }
    oracle.refund(110, 10, 110, 3);
    oracle.refund(107, 10, 100, 2);
    assert_eq!(oracle.used(107, 10), 1);
}

/// The cost fits after `retry_after`, and does not fit 1 ms earlier, over a few thousand calls.
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
