//! The two algorithms that count in aligned windows, against their oracles.

use limiter_testkit::{Random, Verdict};

use crate::algorithm::tests::{Algorithm, CounterState, request, small};

/// Asserts outcomes equal to the oracle's to the millisecond, with limits that change and pauses of up to three
/// windows.
pub(in crate::algorithm) fn agrees_with<O: Default>(
    algorithm: Algorithm,
    check: fn(&mut O, u64, u64, u32, u32) -> Verdict,
) {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let window = random.between(1, 60);
        let (mut state, mut oracle) = (CounterState::new(algorithm), O::default());
        let mut now = random.between(1_000, 2_000);
        for step in 0..400 {
            now += if random.below(12) == 0 { random.below(3 * window) } else { random.below(window / 6 + 2) };
            let (max, cost) = (1 + small(&mut random, 10), small(&mut random, 5));
            let outcome = state.decide(&request(algorithm, now * 1000, window, max, cost));
            let seen = Verdict {
                allowed: outcome.allowed,
                remaining: outcome.remaining,
                retry_after: outcome.retry_at.map(|at| at / 1000 - now),
                reset_after: outcome.reset_at / 1000 - now,
            };
            assert_eq!(seen, check(&mut oracle, now, window, max, cost), "{algorithm:?}, seed {seed}, step {step}");
        }
    }
}
