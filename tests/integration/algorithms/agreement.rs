//! Comparison of Redis and memory at numeric limits and with clock steps, which the oracles do not cover.

use std::time::Duration;

use limiter_testkit::{Random, RedisServer, full_or};
use rate_limited::{Algorithm, Decision, Key, Limit, Limiter};

use super::ALL_ALGORITHMS;
use crate::observers::Reports;
use crate::support::{Subject, builder_for};

/// Both stores use one clock. The full run makes a few thousand calls with each algorithm.
#[tokio::test]
async fn redis_and_memory_agree_at_numeric_limits() {
    for algorithm in ALL_ALGORITHMS {
        for seed in 0..full_or(12, 2) {
            assert_stores_agree(algorithm, Random::new(seed), 600).await;
        }
    }
}

/// Lengths of windows. Redis expires keys by the real clock, so they are long enough that no live key expires.
const WINDOWS_MS: [u64; 6] = [1_000, 10_000, 1 << 24, 86_400_000, 40_000_000_000 >> 1, 31_622_400_000];

async fn assert_stores_agree(algorithm: Algorithm, mut random: Random, steps: u32) {
    let reports = [Reports::default(), Reports::default()];
    let redis = Subject::with_builder(reports[0].observe(builder_for(RedisServer::timeless()))).await;
    let mut memory = Limiter::memory();
    let mut receipts: Vec<[Decision; 2]> = Vec::new();
    let (mut window, mut key) = (0, Key::new("edge"));
    for step in 0..steps {
        if step % 50 == 0 {
            window = WINDOWS_MS[usize::try_from(random.below(6)).expect("small")];
            key = Key::new("edge:").part(step);
            // A new store with one key: calls on other keys would sweep an expired key before the clock steps back.
            let builder = reports[1].observe(Limiter::builder());
            memory = builder.clock(redis.clock.clone()).connect().await.expect("memory");
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
        let (cost, part) = (if edge(4) == 1 { 0 } else { edge(5) }, edge(5));
        let wide = Limit::new(u32::MAX, Duration::from_millis(window)).expect("a limit").with_algorithm(algorithm);
        let decisions = match random.below(10) {
            0 => [redis.limiter.peek(&key, &limit).await, memory.peek(&key, &limit).await],
            1 if !receipts.is_empty() => {
                let index = usize::try_from(random.any() >> 32).unwrap_or(0) % receipts.len();
                let is_part = random.below(3) == 0;
                let permits = if is_part { part } else { u32::MAX };
                let [one, other] = if is_part { receipts[index].clone() } else { receipts.swap_remove(index) };
                for (limiter, decision) in [(&redis.limiter, one), (&memory, other)] {
                    let allowed = decision.into_result().expect("allowed");
                    limiter.refund_n(&allowed, permits).await.expect("the store answers");
                }
                [redis.limiter.peek(&key, &limit).await, memory.peek(&key, &limit).await]
            }
            2 if random.below(8) == 0 => {
                for limiter in [&redis.limiter, &memory] {
                    limiter.reset(&key, &limit).await.expect("the store answers");
                }
                continue;
            }
            // The same counter under two limits.
            3 | 4 => {
                let both = [(&key, &limit, cost), (&key, &wide, 1)];
                [redis.limiter.check_all(&both).await, memory.check_all(&both).await]
            }
            _ => [redis.limiter.check_n(&key, &limit, cost).await, memory.check_n(&key, &limit, cost).await],
        }
        .map(|decision| decision.expect("the store answers"));
        // The source of a denial may differ.
        let [on_redis, in_memory] =
            decisions.each_ref().map(|decision| format!("{decision:?}").replace("DeniedUntil", "Store"));
        assert_eq!(on_redis, in_memory, "{algorithm:?}, step {step}, cost {cost}");
        let allowed =
            |reports: &Reports| reports.take().into_iter().filter(|report| report.is_allowed).collect::<Vec<_>>();
        let [on_redis, in_memory] = reports.each_ref().map(allowed);
        assert_eq!(on_redis, in_memory, "{algorithm:?}, step {step}, cost {cost}");
        if decisions.iter().all(Decision::is_allowed) {
            receipts.push(decisions);
        }
    }
}

/// Permits of merged runs are refunded in random order. Both stores agree to the permit and the millisecond.
#[tokio::test]
async fn redis_and_memory_agree_on_refunds_from_merged_runs() {
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
        let decisions = [redis.limiter.check_n(&key, &limit, cost).await, memory.check_n(&key, &limit, cost).await]
            .map(|decision| decision.expect("the store answers"));
        let [on_redis, in_memory] =
            decisions.each_ref().map(|decision| format!("{decision:?}").replace("DeniedUntil", "Store"));
        assert_eq!(on_redis, in_memory, "step {step}, cost {cost}");
        if decisions.iter().all(Decision::is_allowed) {
            receipts.push(decisions);
        } else {
            denials += 1;
        }
        receipts.drain(..receipts.len().saturating_sub(300));
    }
    assert!(refunds > 400 && denials > 100, "{refunds} refunds, {denials} denials");
}
