//! The two stores say the same: for numbers at their edges and clocks that step, which no oracle of the definition has.

use std::time::Duration;

use limiter_testkit::{Random, full_or};
use rate_limited::{Algorithm, Decision, Key, Limit, Limiter};

use super::ALL;
use crate::support::Subject;

/// Redis and memory by one clock; in full, a few thousand calls for each algorithm.
#[tokio::test]
async fn the_stores_agree_at_the_edges_of_every_number() {
    for algorithm in ALL {
        for seed in 0..full_or(12, 2) {
            the_stores_agree(algorithm, Random::new(seed), 600).await;
        }
    }
}

/// Keys expire in Redis by the real clock: windows are long enough that none does while it still counts.
const WINDOWS_MS: [u64; 6] = [1_000, 10_000, 86_400_000, 1 << 30, 40_000_000_000 >> 1, 31_622_400_000];

async fn the_stores_agree(algorithm: Algorithm, mut random: Random, steps: u32) {
    let redis = Subject::redis().await;
    let mut memory = Limiter::memory();
    let mut receipts: Vec<[Decision; 2]> = Vec::new();
    let (mut window, mut key) = (0, Key::new("edge"));
    for step in 0..steps {
        if step % 50 == 0 {
            window = WINDOWS_MS[usize::try_from(random.below(6)).expect("small")];
            key = Key::new("edge:").part(step);
            // With one key alone in it: others would have it collected when it is over, and then the clock steps back.
            memory = Limiter::builder().clock(redis.clock.clone()).connect().await.expect("memory");
            receipts.clear();
        }
        let span = window * 1_000;
        match random.below(12) {
            0 => redis.clock.advance(Duration::from_micros(random.below(3 * span))),
            1 => redis.clock.rewind(Duration::from_micros(random.below(span))),
            2 if random.below(4) == 0 => redis.clock.rewind(Duration::from_micros(random.below(3 * span))),
            3..=6 => redis.clock.advance(Duration::from_micros(random.below(span / 8))),
            7 => redis.clock.advance(Duration::from_micros(random.below(3))),
            _ => {}
        }
        let mut edge = |below: u64| match random.below(7) {
            0 => u32::MAX,
            1 => u32::MAX - u32::try_from(random.below(3)).expect("small"),
            2 => 1 << random.below(32),
            _ => 1 + u32::try_from(random.below(below)).expect("small"),
        };
        let limit = Limit::new(edge(9), Duration::from_millis(window)).expect("a limit").with_algorithm(algorithm);
        let limit = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => limit.with_burst(edge(12)).expect("a bucket"),
            _ => limit,
        };
        let cost = if edge(4) == 1 { 0 } else { edge(5) };
        let told = match random.below(10) {
            0 => [redis.limiter.peek(&key, &limit).await, memory.peek(&key, &limit).await],
            1 if !receipts.is_empty() => {
                let [one, other] =
                    receipts.swap_remove(usize::try_from(random.any() >> 32).unwrap_or(0) % receipts.len());
                for (limiter, decision) in [(&redis.limiter, one), (&memory, other)] {
                    let allowed = decision.into_result().expect("allowed");
                    limiter.refund(&allowed).await.expect("the store answers");
                }
                [redis.limiter.peek(&key, &limit).await, memory.peek(&key, &limit).await]
            }
            2 if random.below(8) == 0 => {
                for limiter in [&redis.limiter, &memory] {
                    limiter.reset(&key, &limit).await.expect("the store answers");
                }
                continue;
            }
            _ => [redis.limiter.check_n(&key, &limit, cost).await, memory.check_n(&key, &limit, cost).await],
        }
        .map(|decision| decision.expect("the store answers"));
        // Who it is that says so is another matter.
        let [on_redis, in_memory] =
            told.each_ref().map(|decision| format!("{decision:?}").replace("DeniedUntil", "Store"));
        assert_eq!(on_redis, in_memory, "{algorithm:?}, step {step}, cost {cost}");
        if told.iter().all(Decision::is_allowed) {
            receipts.push(told);
        }
    }
}

/// Where runs are merged, and their permits refunded in any order: to the permit and to the millisecond.
#[tokio::test]
async fn the_stores_agree_on_refunds_from_merged_runs() {
    let (redis, mut random) = (Subject::redis().await, Random::new(1));
    let memory = Limiter::builder().clock(redis.clock.clone()).connect().await.expect("memory");
    let (key, limit) = (Key::new("merged"), Limit::new(900, Duration::from_secs(1_000)).expect("a limit"));
    let mut receipts: Vec<[Decision; 2]> = Vec::new();
    let (mut refunds, mut denials) = (0, 0);
    for step in 0..2_500 {
        redis.clock.advance(Duration::from_micros(random.below(2_400_000)));
        if random.below(4) == 0 && !receipts.is_empty() {
            let index = usize::try_from(random.below(receipts.len() as u64)).expect("small");
            for (limiter, decision) in [&redis.limiter, &memory].into_iter().zip(receipts.swap_remove(index)) {
                limiter.refund(&decision.into_result().expect("allowed")).await.expect("the store answers");
            }
            refunds += 1;
        }
        let cost = u32::try_from(random.between(1, 3)).expect("small");
        let told = [redis.limiter.check_n(&key, &limit, cost).await, memory.check_n(&key, &limit, cost).await]
            .map(|decision| decision.expect("the store answers"));
        let [on_redis, in_memory] =
            told.each_ref().map(|decision| format!("{decision:?}").replace("DeniedUntil", "Store"));
        assert_eq!(on_redis, in_memory, "step {step}, cost {cost}");
        if told.iter().all(Decision::is_allowed) {
            receipts.push(told);
        } else {
            denials += 1;
        }
        receipts.drain(..receipts.len().saturating_sub(300));
    }
    assert!(refunds > 400 && denials > 100, "{refunds} refunds, {denials} denials");
}
