//! Comparison of batched calls with the same calls made one by one.

use std::time::Duration;

use limiter_testkit::Random;
use rate_limited::{Algorithm, Decision, Key, Limit, Limiter};

use super::{BatchFixture, CallFuture, CallResult};
use crate::algorithms::ALL_ALGORITHMS;
use crate::support::limit;

const ROUNDS: u64 = 6;
const MAX_CALLS: u64 = 400;

/// A call. Equal calls are merged within a batch.
#[derive(Clone, PartialEq)]
struct Call {
    key: Key,
    limit: Limit,
    cost: u32,
}

impl Call {
    fn random(random: &mut Random) -> Self {
        let algorithm = ALL_ALGORITHMS[usize::try_from(random.below(5)).expect("small")];
        let limit = limit(["5/10s", "7/10s", "60/10s", "3/15s"][usize::try_from(random.below(4)).expect("small")]);
        let cost = [1, 1, 1, 1, 2, 3, 0, 8][usize::try_from(random.below(8)).expect("small")];
        Self { key: Key::new(random.below(4).to_string()), limit: limit.with_algorithm(algorithm), cost }
    }

    fn start(&self, limiter: &Limiter) -> CallFuture<'static, CallResult> {
        let (limiter, Self { key, limit, cost }) = (limiter.clone(), self.clone());
        Box::pin(async move { limiter.check_n(&key, &limit, cost).await })
    }
}

/// Returns the calls in the order in which a batch decides them: grouped with the first equal call. Calls on a leaky
/// bucket are never merged.
fn sort_by_decision_order(calls: &[Call]) -> Vec<Call> {
    let mut kinds: Vec<Vec<Call>> = Vec::new();
    for call in calls {
        let is_queue = call.limit.algorithm() == Algorithm::LeakyBucket;
        match kinds.iter_mut().find(|kind| !is_queue && kind[0] == *call) {
            Some(kind) => kind.push(call.clone()),
            None => kinds.push(vec![call.clone()]),
        }
    }
    kinds.concat()
}

/// Returns the fields of a decision that must agree. For buckets, `reset_after` is left out: merged calls all get the
/// value after the last of them.
fn comparable_fields(decision: &Decision) -> (bool, u32, Option<Duration>, Option<Duration>) {
    let flows = |limit: Limit| matches!(limit.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
    match decision {
        Decision::Allowed(now) => {
            let reset = (!flows(now.limit())).then_some(now.reset_after());
            (true, now.remaining(), None, reset)
        }
        Decision::Denied(now) => {
            let reset = (!flows(now.limit())).then_some(now.reset_after());
            (false, now.remaining(), (!now.is_final()).then_some(now.retry_after()), reset)
        }
    }
}

#[tokio::test]
async fn batches_of_every_algorithm_equal_single_calls() {
    let fixture = BatchFixture::new().await;
    let unbatched_limiter = Limiter::builder().clock(fixture.clock.clone()).build().expect("in memory");
    let mut random = Random::new(7);
    let (mut allowed, mut denied) = (0, 0);
    for round in 0..ROUNDS {
        let calls: Vec<_> = (0..random.between(2, MAX_CALLS)).map(|_| Call::random(&mut random)).collect();
        // Results are in the order of the calls.
        let calls = sort_by_decision_order(&calls);
        let queued = fixture.queue_calls(calls.iter().map(|call| call.start(&fixture.limiter)).collect()).await;
        fixture.release();
        for (call, batched) in calls.iter().zip(queued.results().await) {
            let batched = batched.expect("a decision");
            let single = call.start(&unbatched_limiter).await.expect("a decision");
            let Call { limit, cost, .. } = call;
            assert_eq!(
                comparable_fields(&batched),
                comparable_fields(&single),
                "round {round}: {limit:?}, cost {cost}"
            );
            *(if batched.is_allowed() { &mut allowed } else { &mut denied }) += 1;
        }
        fixture.clock.advance(Duration::from_micros(random.below(6_000_000)));
    }
    assert!(allowed > 200 && denied > 200, "{allowed} and {denied}");
}
