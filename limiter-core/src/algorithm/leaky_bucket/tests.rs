use limiter_testkit::{LeakyBucketOracle, Random};

use crate::Algorithm::LeakyBucket;
use crate::algorithm::tests::{request, small};
use crate::algorithm::{AlgorithmInput, CounterState};

/// The outcomes agree to the microsecond, with and without `max_wait`, with limits and bursts that change at each call.
#[test]
fn agrees_with_the_oracle_on_random_schedules() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let window = random.between(1, 3_000);
        let (mut state, mut oracle) = (CounterState::new(LeakyBucket), LeakyBucketOracle::new());
        let mut now = 1_000_000_000;
        for step in 0..300 {
            now += if random.below(12) == 0 { random.below(3_000 * window) } else { random.below(250 * window) };
            let (mut max, mut burst) = (7, 5);
            if seed % 2 == 0 {
                (max, burst) = (1 + small(&mut random, 11), 1 + small(&mut random, 11));
            }
            let cost = small(&mut random, 4);
            let max_wait = random.below(2) * random.below(3_000 * window);
            let outcome =
                state.decide(&AlgorithmInput { burst, max_wait, ..request(LeakyBucket, now, window, max, cost) });
            let (expected, delay) = oracle.check(now, window * 1000, (max, burst), (cost, max_wait));
            assert_eq!((outcome.allowed, outcome.delay), (expected.allowed, delay), "seed {seed}, step {step}");
            assert_eq!(outcome.remaining, expected.remaining, "seed {seed}, step {step}");
            assert_eq!(outcome.retry_at, expected.retry_after.map(|wait| now + wait), "seed {seed}, step {step}");
            assert_eq!(outcome.reset_at, now + expected.reset_after, "seed {seed}, step {step}");
        }
    }
}

/// No two turns are closer than the rate allows, with refunds and waits of any length.
#[test]
fn turns_are_evenly_spaced() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (window, max) = (1_000, 3);
        let mut state = CounterState::new(LeakyBucket);
        let mut now = 1_000_000_000;
        let mut turns: Vec<(u64, u32)> = Vec::new();
        for _ in 0..200 {
            now += random.below(2) * random.below(500_000);
            let max_wait = random.below(2) * random.below(2_000_000);
            let cost = 1 + small(&mut random, 1);
            let input = AlgorithmInput { burst: 4, max_wait, ..request(LeakyBucket, now, window, max, cost) };
            let outcome = state.decide(&input);
            if !outcome.allowed {
                continue;
            }
            if random.below(4) > 0 {
                turns.push((now + outcome.delay, cost));
                continue;
            }
            let stamp = now;
            if random.below(2) == 0 {
                let other = state.decide(&input);
                turns.extend(other.allowed.then_some((now + other.delay, cost)));
            }
            now += random.below(2) * random.below(300_000);
            let later = request(LeakyBucket, now, window, max, cost);
            state.refund(&AlgorithmInput { burst: 4, ..later }, stamp);
        }
        turns.sort_unstable();
        for pair in turns.windows(2) {
            let [(first, cost), (second, _)] = pair else { continue };
            // A turn starts at the next whole microsecond.
            assert!(3 * (second - first + 1) >= u64::from(*cost) * window * 1000, "seed {seed}: {first} and {second}");
        }
    }
}

#[test]
fn a_call_is_delayed_up_to_its_max_wait() {
    let start = 1_000_000_000;
    let mut state = CounterState::new(LeakyBucket);
    let at = |micros, max_wait| AlgorithmInput { burst: 2, max_wait, ..request(LeakyBucket, micros, 1_000, 4, 1) };
    assert_eq!(state.decide(&at(start, 0)).delay, 0);
    let denied = state.decide(&at(start, 0));
    assert_eq!((denied.allowed, denied.remaining, denied.retry_at), (false, 0, Some(start + 250_000)));
    assert!(!state.decide(&at(start, 249_999)).allowed);
    assert_eq!(state.decide(&at(start, 250_000)).delay, 250_000);
    let second = state.decide(&at(start, u64::MAX));
    assert_eq!((second.allowed, second.delay, second.reset_at), (true, 500_000, start + 750_000));
    let full = state.decide(&at(start, u64::MAX));
    assert_eq!((full.allowed, full.retry_at), (false, Some(start + 750_000)), "one passes and two wait");
    assert_eq!(state.decide(&at(start + 250_000, u64::MAX)).delay, 500_000);
}

/// The turns of this rate are not a whole number of microseconds apart.
#[test]
fn turns_do_not_drift() {
    let start = 1_000_000_000;
    let mut state = CounterState::new(LeakyBucket);
    let mut last = 0;
    for turn in 0..=700_u64 {
        let input = AlgorithmInput { burst: 1_000, max_wait: u64::MAX, ..request(LeakyBucket, start, 1_000, 7, 1) };
        let outcome = state.decide(&input);
        assert!(outcome.allowed);
        assert_eq!(outcome.delay, (turn * 1_000_000).div_ceil(7));
        last = outcome.delay;
    }
    assert_eq!(last, 100_000_000, "the last of 701 starts after exactly 100 s");
}

#[test]
fn only_the_last_turn_is_refunded() {
    let start = 1_000_000_000;
    let at = |micros| AlgorithmInput { burst: 9, max_wait: u64::MAX, ..request(LeakyBucket, micros, 1_000, 1, 1) };
    let mut state = CounterState::new(LeakyBucket);
    for micros in [start, start + 1, start + 2] {
        assert!(state.decide(&at(micros)).allowed);
    }
    state.refund(&at(start + 5), start + 1);
    assert_eq!(state.peek(&at(start + 5)).delay, 2_999_995, "another comes after it");
    state.refund(&at(start + 5), start + 2);
    assert_eq!(state.peek(&at(start + 5)).delay, 1_999_995);
    // Two takes in one microsecond cannot be distinguished.
    assert!(state.decide(&at(start + 9)).allowed && state.decide(&at(start + 9)).allowed);
    state.refund(&at(start + 9), start + 9);
    assert_eq!(state.peek(&at(start + 9)).delay, 3_999_991);
}
