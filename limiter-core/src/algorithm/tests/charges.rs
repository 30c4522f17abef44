//! Permits that are recorded beyond the limit, as a charge does.

use super::*;

/// Records a charge as a store does: as many permits as the counter has room for. Returns their number.
fn charge(state: &mut CounterState, input: &AlgorithmInput) -> u32 {
    let counted = input.cost.min(state.room(input));
    state.record(&AlgorithmInput { cost: counted, ..*input });
    counted
}

fn random_input(algorithm: Algorithm, now: u64, window: u64, random: &mut Random) -> AlgorithmInput {
    let max = 1 + small(random, 11);
    let burst = if is_bucket(algorithm) { 1 + small(random, 11) } else { max };
    AlgorithmInput { burst, ..request(algorithm, now, window, max, 0) }
}

/// Limits and bursts change at each call.
#[test]
fn a_charge_adds_its_permits_and_a_denial_under_debt_has_an_exact_retry_time() {
    for algorithm in ALL {
        let (mut denials, mut overdrafts) = (0, 0);
        for seed in 0..40 {
            let mut random = Random::new(seed);
            let window = random.between(1, 5_000);
            let (mut state, mut now) = (CounterState::new(algorithm), 1_000_000_000);
            for step in 0..100 {
                now += random.below(300 * window);
                let input = random_input(algorithm, now, window, &mut random);
                let cost = small(&mut random, 5);
                let what = format!("{algorithm:?}, seed {seed}, step {step}, {input:?}");
                if random.below(2) == 0 {
                    state.decide(&AlgorithmInput { cost, ..input });
                } else {
                    let (used, cost) = (state.used(&input), if random.below(4) == 0 { cost * 12 } else { cost });
                    let counted = charge(&mut state, &AlgorithmInput { cost, ..input });
                    assert_eq!(state.used(&input), used + u64::from(counted), "{what}");
                    assert!(counted == cost || state.room(&input) == 0, "{what}");
                }
                let CounterLevel { remaining, overdrawn, reset_at } = state.level(&input);
                assert!(remaining == 0 || overdrawn == 0, "{what}");
                assert!(reset_at >= now || overdrawn == 0, "{what}");
                overdrafts += u32::from(overdrawn > 0);
                let asked = AlgorithmInput { cost: 1 + small(&mut random, 3), ..input };
                let outcome = state.peek(&asked);
                let Some(retry_at) = outcome.retry_at.filter(|_| !outcome.allowed) else { continue };
                denials += 1;
                let at = |micros| {
                    let later = request(algorithm, micros, window, asked.max, asked.cost);
                    state.peek(&AlgorithmInput { burst: asked.burst, ..later }).allowed
                };
                let unit = if is_bucket(algorithm) { 1 } else { 1_000 };
                assert!(at(retry_at) && !at((retry_at - unit).max(now)), "{what}: {outcome:?}");
            }
        }
        assert!(denials > 1_000 && overdrafts > 500, "{algorithm:?}: {denials} denials, {overdrafts} overdrafts");
    }
}

#[test]
fn a_window_holds_as_many_permits_as_a_number_and_a_bucket_twice_its_burst() {
    for algorithm in ALL {
        let (mut state, window) = (CounterState::new(algorithm), 10_000);
        let input = |now| AlgorithmInput { burst: 5, ..request(algorithm, now, window, 5, u32::MAX) };
        let most = match algorithm {
            Algorithm::TokenBucket => 10,
            Algorithm::LeakyBucket => 11,
            _ => u32::MAX,
        };
        let now = 1_000_000_000_000;
        assert_eq!(charge(&mut state, &input(now)), most);
        for later in [0, 1, 2_000] {
            let input = input(now + later);
            assert_eq!(charge(&mut state, &AlgorithmInput { cost: 2, ..input }), 0, "{algorithm:?}");
            assert_eq!((state.used(&input), state.level(&input).remaining), (most.into(), 0), "{algorithm:?}");
            let capacity = if algorithm == Algorithm::LeakyBucket { 6 } else { 5 };
            assert_eq!(state.level(&input).overdrawn, most - capacity, "{algorithm:?}");
            assert!(!state.peek(&AlgorithmInput { cost: 1, ..input }).allowed, "{algorithm:?}");
        }
    }
}

/// The standby limiter is consulted for that time after a failure.
#[test]
fn no_permit_counts_longer_than_its_limit_says() {
    for algorithm in ALL {
        let limit: Limit = "3/10s".parse().expect("a limit");
        let limit = limit.with_algorithm(algorithm);
        let limit = if is_bucket(algorithm) { limit.with_burst(20).expect("a bucket") } else { limit };
        let (mut state, now) = (CounterState::new(algorithm), 1_000_000_000_000);
        let input = request(algorithm, now, 10_000, limit.max(), u32::MAX);
        charge(&mut state, &AlgorithmInput { burst: limit.burst(), ..input });
        let longest = state.expires_at(10_000) - now / 1000;
        assert!(longest <= limit.memory_millis(), "{algorithm:?}: {longest} ms");
    }
}
