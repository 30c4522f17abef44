//! Comparison of every algorithm on every store with naive oracles, over random schedules.

use limiter_chaos::schedule::{Schedule, Store, shrink_schedule, verdict_us};
use limiter_testkit::{Oracle, Random, full_or};
use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{Key, Limit};
use tokio::task::JoinSet;

use crate::support::Subject;

use oracle_key::OracleKey;

mod oracle_key;
mod several_limits;
mod regressions;

macro_rules! on_every_store {
    ($($test:ident: $algorithm:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() {
                let rounds = limiter_testkit::full_or(1_000, 100);
                super::assert_agrees_with_the_oracle(super::Store::Memory, super::$algorithm, rounds).await;
            })+
        }
        mod redis {
            $(#[tokio::test] async fn $test() {
                let rounds = limiter_testkit::full_or(200, 30);
                super::assert_agrees_with_the_oracle(super::Store::Redis, super::$algorithm, rounds).await;
            })+
        }
        mod redis_without_denial_cache {
            $(#[tokio::test] async fn $test() {
                let rounds = limiter_testkit::full_or(100, 20);
                super::assert_agrees_with_the_oracle(super::Store::RedisUncached, super::$algorithm, rounds).await;
            })+
        }
    };
}

on_every_store! {
    sliding_window_equals_the_oracle: SlidingWindow,
    fixed_window_equals_the_oracle: FixedWindow,
    sliding_counter_equals_the_oracle: SlidingCounter,
    token_bucket_equals_the_oracle: TokenBucket,
    leaky_bucket_equals_the_oracle: LeakyBucket,
}

/// The number of keys that are checked at each instant, concurrently.
const KEYS: usize = 50;

/// Random limits, costs from zero to above the limit, and pauses up to more than a window. Decisions must equal the
/// oracle's, to the millisecond for windows and to the microsecond for buckets.
async fn assert_agrees_with_the_oracle(store: Store, algorithm: Algorithm, rounds: u32) {
    let subject = store.subject().await;
    let mut random = Random::new(u64::from(rounds));
    let mut keys: Vec<OracleKey> = (0..KEYS).map(|index| OracleKey::new(algorithm, index, &mut random)).collect();
    for round in 0..rounds {
        let pause = oracle_key::random_pause(algorithm, &mut random);
        subject.clock.advance(pause);
        let now_us = subject.now_us();
        let mut calls = JoinSet::new();
        let mut steps = Vec::new();
        for (index, oracle_key) in keys.iter_mut().enumerate() {
            let step = oracle_key.random_step(&mut random);
            oracle_key.record(pause, &step);
            let (limiter, key) = (subject.limiter.clone(), oracle_key.key.clone());
            calls.spawn(async move { (index, limiter.check_n(&key, &step.limit, step.cost).await) });
            steps.push(step);
        }
        for (index, decision) in calls.join_all().await {
            let (oracle_key, step) = (&mut keys[index], steps[index]);
            let expected = oracle_key.oracle.check(now_us, &step);
            let seen = verdict_us(&decision.expect("the store answers"));
            if seen != expected {
                println!("round {round}, {step:?} on key {index}: {seen:?}, not {expected:?}");
                fail_with_shrunk_schedule(store, std::mem::take(&mut oracle_key.schedule)).await;
            }
        }
    }
}

#[tokio::test]
async fn memory_admits_at_least_97_percent_with_merged_runs() {
    assert_admits_97_percent_where_runs_merge(Subject::memory().await).await;
}

#[tokio::test]
async fn redis_admits_at_least_97_percent_with_merged_runs() {
    assert_admits_97_percent_where_runs_merge(Subject::redis().await).await;
}

/// Sends 990 calls per second to a limit of 1000 per second, nearly each in its own millisecond.
async fn assert_admits_97_percent_where_runs_merge(subject: Subject) {
    let mut random = Random::new(3);
    let limit: Limit = "1000/s".parse().expect("a limit");
    let key = Key::new("busy");
    let mut oracle = Oracle::new();
    let (mut calls, mut admitted) = (0, 0);
    let duration_ms = full_or(6_000, 2_500);
    for now_ms in 0..duration_ms {
        for _ in 0..2 {
            if random.below(1_000) >= 495 {
                continue;
            }
            calls += 1;
            if subject.limiter.check(&key, &limit).await.expect("the store answers").is_allowed() {
                admitted += 1;
                assert!(oracle.check(now_ms, 1_000, 1_000, 1).allowed, "more than 1000 in a second at {now_ms} ms");
            }
        }
        subject.advance_millis(1);
    }
    assert!(calls > duration_ms / 100 * 96, "{calls} calls");
    assert!(admitted * 100 >= calls * 97, "{admitted} of {calls}");
}

/// Fails the test with the shortest schedule found, in the format of `tests/regressions`.
async fn fail_with_shrunk_schedule(store: Store, schedule: Schedule) -> ! {
    match shrink_schedule(store, schedule).await {
        (shrunk, Some(difference)) => {
            panic!("on {store:?} {difference}\n\nas a file in tests/regressions:\n\n{shrunk}")
        }
        (shrunk, None) => panic!("on {store:?}, but not when it is replayed alone:\n\n{shrunk}"),
    }
}
