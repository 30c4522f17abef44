//! Properties that hold for every algorithm.

use limiter_testkit::Random;

use super::*;

pub(super) mod counters;
mod charges;
mod refunds;

pub(super) const ALL: [Algorithm; 5] = [
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
    Algorithm::SlidingCounter,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];

/// Creates an input at an instant in microseconds, with a window in milliseconds.
pub(super) fn request(algorithm: Algorithm, micros: u64, window: u64, max: u32, cost: u32) -> AlgorithmInput {
    AlgorithmInput {
        floor: micros / 1000,
        ceil: micros.div_ceil(1000),
        micros,
        kind: CounterKind { algorithm, window },
        max,
        burst: max,
        cost,
        pending: 0,
        max_wait: 0,
        calendar: None,
    }
}

pub(super) fn small(random: &mut Random, high: u64) -> u32 {
    u32::try_from(random.between(0, high)).expect("small")
}

fn is_bucket(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
}

/// Limits, bursts and costs change at each call, and pauses last up to more than a window.
#[test]
fn admits_at_exactly_retry_at() {
    for algorithm in ALL {
        let mut denials = 0;
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let window = random.between(1, 5_000);
            let mut state = CounterState::new(algorithm);
            let mut now = 1_000_000_000;
            for step in 0..200 {
                now += match random.below(12) {
                    0 => random.below(2_500 * window),
                    1..=6 => random.below(100 * window + 1),
                    _ => 0,
                };
                let max = 1 + small(&mut random, 9);
                let input = AlgorithmInput {
                    burst: 1 + small(&mut random, 12),
                    ..request(algorithm, now, window, max, small(&mut random, 5))
                };
                let input = if is_bucket(algorithm) { input } else { AlgorithmInput { burst: max, ..input } };
                let outcome = state.decide(&input);
                let what = format!("{algorithm:?}, seed {seed}, step {step}, {input:?}, {outcome:?}");
                if outcome.allowed {
                    assert!(input.cost <= input.burst, "{what}");
                    continue;
                }
                let Some(retry_at) = outcome.retry_at else {
                    assert!(input.cost > input.burst, "{what}");
                    continue;
                };
                denials += 1;
                let at = |micros| {
                    let later = request(algorithm, micros, window, input.max, input.cost);
                    state.peek(&AlgorithmInput { burst: input.burst, ..later }).allowed
                };
                assert!(retry_at > now && at(retry_at), "at the promised instant: {what}");
                let step = if is_bucket(algorithm) { 1 } else { 1_000 };
                assert!(!at((retry_at - step).max(now)), "a step before: {what}");
                assert!(
                    state.peek(&AlgorithmInput { cost: 0, ..input }).reset_at >= retry_at || input.cost == 0,
                    "{what}"
                );
            }
        }
        assert!(denials > 2_000, "{algorithm:?}: {denials} denials");
    }
}

#[test]
fn remaining_permits_fit_and_one_more_does_not() {
    for algorithm in ALL {
        let mut random = Random::new(9);
        let mut state = CounterState::new(algorithm);
        let mut now = 1_000_000_000;
        for _ in 0..3_000 {
            now += random.below(300_000);
            let base = AlgorithmInput { burst: 7, ..request(algorithm, now, 1_000, 7, 1) };
            let pending = small(&mut random, 3);
            let left = state.peek(&AlgorithmInput { pending, ..base }).remaining;
            assert!(state.peek(&AlgorithmInput { pending, cost: left, ..base }).allowed, "{algorithm:?}");
            assert!(!state.peek(&AlgorithmInput { pending, cost: left + 1, ..base }).allowed, "{algorithm:?}");
            let after = state.decide(&AlgorithmInput { cost: small(&mut random, 2), ..base });
            assert_eq!(after.remaining, state.peek(&base).remaining, "{algorithm:?}");
        }
    }
}

#[test]
fn nothing_counts_from_expires_at_on_and_something_does_before() {
    for algorithm in ALL {
        let mut random = Random::new(4);
        let (window, mut now) = (700, 1_000_000_000);
        let mut state = CounterState::new(algorithm);
        for _ in 0..500 {
            now += random.below(400_000);
            let outcome = state.decide(&request(algorithm, now, window, 5, 1 + small(&mut random, 2)));
            let expires_at = state.expires_at(window);
            assert_eq!(outcome.reset_at.div_ceil(1000), expires_at, "{algorithm:?}");
            let fresh = CounterState::new(algorithm).peek(&request(algorithm, expires_at * 1000, window, 5, 1));
            assert_eq!(state.peek(&request(algorithm, expires_at * 1000, window, 5, 1)), fresh, "{algorithm:?}");
            let alive = state.peek(&request(algorithm, outcome.reset_at - 1, window, 5, 1));
            assert!(alive.remaining < 5 && alive.reset_at == outcome.reset_at, "{algorithm:?}");
        }
    }
}

#[test]
fn a_cost_of_zero_takes_nothing_and_a_cost_above_max_is_final() {
    for algorithm in ALL {
        let mut state = CounterState::new(algorithm);
        let now = 1_000_000_000;
        let nothing = state.decide(&request(algorithm, now, 10_000, 3, 0));
        assert_eq!((nothing.allowed, nothing.remaining, nothing.reset_at), (true, 3, now), "{algorithm:?}");
        assert_eq!(state.expires_at(10_000), 0, "{algorithm:?}");
        for cost in [4, u32::MAX] {
            let never = state.decide(&request(algorithm, now, 10_000, 3, cost));
            assert_eq!((never.allowed, never.remaining, never.retry_at), (false, 3, None), "{algorithm:?}");
        }
        assert!(state.decide(&request(algorithm, now, 10_000, 3, 3)).allowed);
        assert!(state.decide(&request(algorithm, now, 10_000, 3, 0)).allowed, "a cost of zero always fits");
        let together = state.peek(&AlgorithmInput { pending: u32::MAX, ..request(algorithm, now, 10_000, 3, 1) });
        assert_eq!((together.allowed, together.retry_at), (false, None), "{algorithm:?}");
    }
}

/// A clock that steps back by up to a window frees no permits and blocks for no longer than the step. By more, the
/// state is void.
#[test]
fn a_clock_step_back_frees_no_permits() {
    for algorithm in ALL {
        let (now, window) = (1_000_000_000, 10_000);
        let step_back = |by: u64| {
            let mut state = CounterState::new(algorithm);
            assert!(state.decide(&request(algorithm, now, window, 4, 4)).allowed);
            (state.clone().decide(&request(algorithm, now - by, window, 4, 1)), state)
        };
        let (before, _) = step_back(0);
        let natural = before.retry_at.expect("not final");
        for by in [1, 999, 5_000_000, 10_000_000] {
            let (denied, state) = step_back(by);
            assert!(!denied.allowed, "{algorithm:?} by {by}");
            let retry_at = denied.retry_at.expect("not final");
            assert!(retry_at >= natural && retry_at <= natural + 1_000, "{algorithm:?} by {by}");
            assert!(state.peek(&request(algorithm, retry_at, window, 4, 1)).allowed, "{algorithm:?} by {by}");
        }
        let (fresh, _) = step_back(20_001_000);
        assert!(fresh.allowed, "{algorithm:?}");
    }
}

/// Every number takes its bounds, the clock moves both ways and up to its end, and receipts have any stamp.
#[test]
fn no_number_causes_a_panic() {
    const MAX_MICROS: u64 = u64::MAX / 1_000; // the end of a clock of nanoseconds
    const MAX_WAIT_MICROS: u64 = 1 << 51; // the cut-off of longer waits
    const EDGES: [u32; 8] = [0, 1, 2, 5, 1_000, 1 << 31, u32::MAX - 1, u32::MAX];
    const WINDOWS: [u64; 7] = [1, 2, 999, 10_000, 1 << 24, (1 << 24) + 1, 366 * 86_400_000];
    let pick = |random: &mut Random, among: usize| usize::try_from(random.below(among as u64)).expect("small");
    for algorithm in ALL {
        let mut random = Random::new(2);
        for _ in 0..600 {
            let mut state = CounterState::new(algorithm);
            let window = WINDOWS[pick(&mut random, 7)];
            let mut now = [1, 1 << 50, MAX_MICROS][pick(&mut random, 3)];
            for _ in 0..60 {
                let mut edge = || EDGES[pick(&mut random, 8)];
                let input = AlgorithmInput {
                    burst: edge().max(1),
                    pending: if edge() > 5 { edge() } else { 0 },
                    max_wait: (u64::from(edge()) << 32) | u64::from(edge()),
                    ..request(algorithm, now, window, edge().max(1), edge())
                };
                let stamp = match random.below(4) {
                    0 => random.any(),
                    1 => u64::MAX,
                    _ => now.saturating_sub(random.below(window * 2_000)),
                };
                let outcome = match random.below(7) {
                    0 => {
                        state.record(&input);
                        state.peek(&input)
                    }
                    1 => {
                        state.refund(&input, stamp);
                        state.peek(&input)
                    }
                    2 => {
                        state.restamp(&AlgorithmInput { pending: 0, ..input }, stamp.min(now));
                        state.peek(&input)
                    }
                    _ => state.decide(&AlgorithmInput { pending: 0, ..input }),
                };
                // The clock may be behind by one window, and permits may count for two.
                let latest = now + MAX_WAIT_MICROS.max(3_000 * window) + 2_000 * window;
                assert!(outcome.retry_at.is_none_or(|at| at <= latest), "{algorithm:?}: {input:?}, {outcome:?}");
                assert!(outcome.reset_at <= latest, "{algorithm:?}: {input:?}, {outcome:?}");
                assert!(state.expires_at(window) <= (MAX_MICROS + 2 * MAX_WAIT_MICROS) / 1_000, "{algorithm:?}");
                now = match random.below(4) {
                    0 => now,
                    1 => now + random.below(window * 3_000),
                    2 => now.saturating_sub(random.below(window * 3_000)),
                    _ => now + random.below(2_000),
                }
                .clamp(1, MAX_MICROS);
            }
        }
    }
}

/// The memory store keeps a million of them.
#[test]
fn a_state_is_small() {
    assert!(size_of::<CounterState>() <= 64, "{} bytes", size_of::<CounterState>());
}
