use limiter_testkit::{Random, TokenBucketOracle};

use crate::Algorithm::TokenBucket;
use crate::algorithm::tests::{request, small};
use crate::algorithm::{AlgorithmInput, CounterState};

/// The outcomes agree to the microsecond, at rates that divide no window, with limits and bursts that change.
#[test]
fn agrees_with_the_oracle_on_random_schedules() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let window = random.between(1, 3_000);
        let (mut state, mut oracle) = (CounterState::new(TokenBucket), TokenBucketOracle::new());
        let changes = seed % 2 == 0;
        let mut now = 1_000_000_000;
        for step in 0..300 {
            now += if random.below(12) == 0 { random.below(3_000 * window) } else { random.below(150 * window) };
            let (mut max, mut burst) = (7, 5);
            if changes {
                (max, burst) = (1 + small(&mut random, 11), 1 + small(&mut random, 11));
            }
            let cost = small(&mut random, 5);
            let outcome = state.decide(&AlgorithmInput { burst, ..request(TokenBucket, now, window, max, cost) });
            let expected = oracle.check(now, window * 1000, (max, burst), cost);
            assert_eq!(outcome.allowed, expected.allowed, "seed {seed}, step {step}");
            assert_eq!(outcome.remaining, expected.remaining, "seed {seed}, step {step}");
            assert_eq!(outcome.retry_at, expected.retry_after.map(|wait| now + wait), "seed {seed}, step {step}");
            assert_eq!(outcome.reset_at, now + expected.reset_after, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn refills_without_drift_at_a_rate_of_fractional_microseconds() {
    let mut state = CounterState::new(TokenBucket);
    let at = |micros| request(TokenBucket, micros, 10_000, 7, 1);
    let start = 1_000_000_000;
    for _ in 0..7 {
        assert!(state.decide(&at(start)).allowed);
    }
    let mut admitted = 0;
    let mut now = start;
    while now < start + 100_000_000 {
        now = state.peek(&at(now)).retry_at.expect("not final");
        assert!(state.decide(&at(now)).allowed);
        admitted += 1;
    }
    assert_eq!((admitted, now), (70, start + 100_000_000), "exactly 7 in each 10 s, without drift");
}

#[test]
fn burst_and_rate_are_independent() {
    let mut state = CounterState::new(TokenBucket);
    let at = |micros, cost| AlgorithmInput { burst: 20, ..request(TokenBucket, micros, 1_000, 2, cost) };
    let start = 1_000_000_000;
    assert!(state.decide(&at(start, 20)).allowed);
    let denied = state.decide(&at(start, 1));
    assert_eq!((denied.retry_at, denied.reset_at), (Some(start + 500_000), start + 10_000_000));
    assert_eq!(state.peek(&at(start, 21)).retry_at, None);
    assert_eq!(state.peek(&at(start + 9_999_999, 0)).remaining, 19);
    assert_eq!(state.peek(&at(start + 10_000_000, 0)).remaining, 20);
}

#[test]
fn admits_one_permit_a_microsecond_at_a_million_a_second() {
    let mut state = CounterState::new(TokenBucket);
    let at = |micros| AlgorithmInput { burst: 1, ..request(TokenBucket, micros, 1_000, 1_000_000, 1) };
    for micros in 1_000_000..1_002_000 {
        assert!(state.decide(&at(micros)).allowed);
        assert!(!state.decide(&at(micros)).allowed);
    }
}

/// A debt is in permits, whatever the limit is. Under a changed limit it refills at the new rate, but no later than
/// `full_at` of the last take.
#[test]
fn keeps_the_debt_when_the_limit_changes() {
    let start = 1_000_000_000;
    let at = |micros, max| request(TokenBucket, micros, 10_000, max, 1);
    let mut state = CounterState::new(TokenBucket);
    assert!(state.decide(&AlgorithmInput { cost: 5, ..at(start, 10) }).allowed);
    assert_eq!(state.peek(&at(start, 20)).remaining, 15, "raised");
    assert_eq!(state.peek(&at(start + 1_000_000, 20)).remaining, 17, "two a second");
    let lowered = state.peek(&at(start, 3));
    assert_eq!((lowered.remaining, lowered.retry_at), (0, Some(start + 5_000_000)), "10 s at its own rate");
    assert_eq!(state.peek(&at(start + 4_999_999, 3)).remaining, 0);
    assert_eq!(state.peek(&at(start + 5_000_000, 3)).remaining, 3);
}

#[test]
fn a_refund_returns_only_what_has_not_refilled() {
    let start = 1_000_000_000;
    let at = |micros, cost| request(TokenBucket, micros, 10_000, 10, cost);
    let mut state = CounterState::new(TokenBucket);
    assert!(state.decide(&at(start, 4)).allowed);
    assert!(state.decide(&at(start + 500_000, 3)).allowed);
    // The debt is 6.5; of the first four permits, one has refilled in the first second.
    state.refund(&at(start + 1_000_000, 4), start);
    assert_eq!(state.peek(&at(start + 1_000_000, 0)).remaining, 7);
    assert_eq!(state.peek(&at(start + 1_000_000, 0)).reset_at, start + 4_000_000);
    state.refund(&at(start + 6_000_000, 3), start + 500_000);
    assert_eq!(state.peek(&at(start + 6_000_000, 0)).remaining, 10);
}

#[test]
fn longer_waits_are_cut_off_at_71_years() {
    let mut state = CounterState::new(TokenBucket);
    let window = 366 * 86_400_000;
    let at = |micros, max| AlgorithmInput { burst: u32::MAX, ..request(TokenBucket, micros, window, max, u32::MAX) };
    let start = 1 << 50;
    assert!(state.decide(&at(start, 1)).allowed);
    let denied = state.decide(&at(start, 1));
    assert_eq!((denied.retry_at, denied.reset_at), (Some(start + (1 << 51)), start + (1 << 51)));
    // A caller with a higher limit gets the exact instant of its own rate.
    let faster = state.decide(&at(start, u32::MAX));
    assert_eq!(faster.retry_at, Some(start + window * 1000));
}
