//! The permits that a waiting call needs, by counter.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::ceil_micros;
use crate::request::Request;
use crate::{Algorithm, Limit};

/// The permits that a call needs of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterCost {
    /// The hash of the counter. Two counters with one hash only cause needless checks of the store.
    pub(crate) counter: u64,
    pub(crate) cost: u32,
}

/// The permits that a call needs of each of its counters. Most calls need those of one.
#[derive(Clone, Debug)]
pub(crate) enum Demands {
    One(CounterCost),
    Several(Arc<Vec<CounterCost>>),
}

impl Demands {
    pub(crate) fn new(requests: &[Request<'_>]) -> Self {
        let cost = |request: &Request<'_>| CounterCost { counter: request.counter_hash(), cost: request.own_take() };
        match requests {
            [request] => Self::One(cost(request)),
            requests => Self::Several(Arc::new(in_order(requests).into_iter().map(cost).collect())),
        }
    }

    pub(crate) fn as_slice(&self) -> &[CounterCost] {
        match self {
            Self::One(demand) => std::slice::from_ref(demand),
            Self::Several(demands) => demands,
        }
    }

    /// The costs, in the order that is the same for all calls of a queue.
    pub(crate) fn costs(&self) -> impl Iterator<Item = u64> {
        self.as_slice().iter().map(|demand| u64::from(demand.cost))
    }

    /// The hashes of the counters.
    pub(crate) fn counters(&self) -> impl Iterator<Item = u64> {
        self.as_slice().iter().map(|demand| demand.counter)
    }
}

/// Sorts the requests of a call by their counters and limits. The order is the same for all calls of a queue.
pub(crate) fn in_order<'r, 'k>(requests: &'r [Request<'k>]) -> Vec<&'r Request<'k>> {
    let mut sorted: Vec<_> = requests.iter().collect();
    if sorted.len() > 1 {
        sorted.sort_by_cached_key(|request| (request.counter_hash(), request.limit.max(), request.limit.burst()));
    }
    sorted
}

// The most permits that a limit gives to a queue within a time.

/// Returns a number that the permits given within `wait` from now never exceed, if no permit comes back by a refund or a
/// reset. `free` is the number of whole permits that are free now.
///
/// The bound of the window algorithms does not depend on `free`: a window that ends now may give all of its permits at
/// once.
pub(crate) fn most_permits(limit: &Limit, wait: Duration, free: u32) -> u64 {
    let max = u128::from(limit.max());
    let (wait, window) = (u128::from(ceil_micros(wait)), 1000 * u128::from(limit.window_millis()));
    let windows = wait / window + 1;
    let most = match limit.algorithm() {
        Algorithm::SlidingWindow | Algorithm::Concurrent => windows * max,
        // The edges of windows need not be those of the wait.
        Algorithm::FixedWindow | Algorithm::SlidingCounter => (windows + 1) * max,
        // The shortest periods are half as long as the longest: hours that a shift of the clock cuts, and Februaries.
        Algorithm::Calendar => 2 * (windows + 1) * max,
        // It holds a part of another permit.
        Algorithm::TokenBucket => u128::from(free) + 1 + wait * max / window,
        Algorithm::LeakyBucket => u128::from(limit.burst()) + 1 + wait * max / window,
    };
    u64::try_from(most).unwrap_or(u64::MAX)
}

#[cfg(all(test, feature = "test-util", not(limiter_loom)))]
mod tests {
    use super::*;
    use crate::{Key, Limiter, ManualClock};

    /// A number below `bound`, from a linear congruential sequence.
    fn next(state: &mut u64, bound: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % bound
    }

    /// Takes permits at random times, and then every permit as soon as it is free.
    fn permits_within(limit: &Limit, wait: u64, state: &mut u64) -> (u64, u64) {
        let clock = ManualClock::new();
        let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
        let key = Key::new("a");
        for _ in 0..next(state, 30) {
            clock.advance(Duration::from_micros(next(state, 40_000)));
            let cost = u32::try_from(next(state, 6)).expect("small");
            let _ = limiter.check_n_blocking(&key, limit, cost).expect("decides");
        }
        let free = limiter.peek_blocking(&key, limit).expect("decides").remaining();
        let mut given = 0;
        for step in 0..=wait * 4 {
            while limiter.check_blocking(&key, limit).expect("decides").is_allowed() {
                given += 1;
            }
            if step < wait * 4 {
                clock.advance(Duration::from_micros(250));
            }
        }
        (given, most_permits(limit, Duration::from_millis(wait), free))
    }

    #[test]
    fn no_schedule_gets_more_permits_than_the_bound_and_some_get_nearly_all() {
        let algorithms = [
            Algorithm::SlidingWindow,
            Algorithm::FixedWindow,
            Algorithm::SlidingCounter,
            Algorithm::TokenBucket,
            Algorithm::LeakyBucket,
        ];
        let mut state = 1;
        for algorithm in algorithms {
            let mut closest = 0;
            for _ in 0..300 {
                let (max, window) = (1 + next(&mut state, 5), 10 + next(&mut state, 40));
                let limit: Limit = format!("{max}/{window}ms").parse().expect("a limit");
                let limit = limit.with_algorithm(algorithm);
                let wait = next(&mut state, 150);
                let (given, most) = permits_within(&limit, wait, &mut state);
                assert!(given <= most, "{limit:?} within {wait} ms: {given} permits, above the bound of {most}");
                closest = closest.max(given * 100 / most);
            }
            let least = if algorithm == Algorithm::LeakyBucket { 50 } else { 80 };
            assert!(closest >= least, "{algorithm:?}: at most {closest} % of the bound");
        }
    }
}
