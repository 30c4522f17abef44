//! What calls are told that go together is what they would have been told one by one.

use std::time::Duration;

use limiter_testkit::Random;
use rate_limited::{Algorithm, Decision, Key, Limit, Limiter};

use super::{Calling, Scene, Told};
use crate::algorithms::ALL;
use crate::support::limit;

const ROUNDS: u64 = 6;
const MOST: u64 = 400;

/// One call, by what makes calls one of a kind.
#[derive(Clone, PartialEq)]
struct Call {
    key: Key,
    limit: Limit,
    cost: u32,
}

impl Call {
    fn any(random: &mut Random) -> Self {
        let algorithm = ALL[usize::try_from(random.below(5)).expect("small")];
        let limit = limit(["5/10s", "7/10s", "60/10s", "3/15s"][usize::try_from(random.below(4)).expect("small")]);
        let cost = [1, 1, 1, 1, 2, 3, 0, 8][usize::try_from(random.below(8)).expect("small")];
        Self { key: Key::new(random.below(4).to_string()), limit: limit.with_algorithm(algorithm), cost }
    }

    fn asked_of(&self, limiter: &Limiter) -> Calling<'static, Told> {
        let (limiter, Self { key, limit, cost }) = (limiter.clone(), self.clone());
        Box::pin(async move { limiter.check_n(&key, &limit, cost).await })
    }
}

/// In the order in which their kinds came first. Of a queue in which nobody waits, each call is a kind of its own.
fn by_kinds(calls: &[Call]) -> Vec<Call> {
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

/// All that is told. The time until all is back is that of the moment after the group, where it flows back.
fn told(decision: &Decision) -> (bool, u32, Option<Duration>, Option<Duration>) {
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
async fn groups_of_every_algorithm_agree_with_calls_one_by_one() {
    let scene = Scene::new().await;
    let one_by_one = Limiter::builder().clock(scene.clock.clone()).build().expect("in memory");
    let mut random = Random::new(7);
    let (mut allowed, mut denied) = (0, 0);
    for round in 0..ROUNDS {
        let calls: Vec<_> = (0..random.between(2, MOST)).map(|_| Call::any(&mut random)).collect();
        // Answers come back in the order in which calls were made.
        let calls = by_kinds(&calls);
        let line = scene.line_up(calls.iter().map(|call| call.asked_of(&scene.limiter)).collect()).await;
        scene.release();
        for (call, group) in calls.iter().zip(line.answers().await) {
            let group = group.expect("a decision");
            let alone = call.asked_of(&one_by_one).await.expect("a decision");
            let Call { limit, cost, .. } = call;
            assert_eq!(told(&group), told(&alone), "round {round}: {limit:?}, cost {cost}");
            *(if group.is_allowed() { &mut allowed } else { &mut denied }) += 1;
        }
        scene.clock.advance(Duration::from_micros(random.below(6_000_000)));
    }
    assert!(allowed > 200 && denied > 200, "{allowed} and {denied}");
}
