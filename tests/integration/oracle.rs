//! Random schedules against the naive oracles, for every algorithm on every store.

use limiter_testkit::schedule::{Schedule, Store, shrink_schedule, verdict_us};
use limiter_testkit::{Oracle, Random, full_or};
use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{Key, Limit};
use tokio::task::JoinSet;

use crate::support::Subject;

use lane::Lane;

mod lane;
mod mixed;
mod regressions;

macro_rules! on_every_store {
    ($($test:ident: $algorithm:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() {
                super::agrees_with_the_oracle(super::Store::Memory, super::$algorithm, limiter_testkit::full_or(1_000, 100)).await;
            })+
        }
        mod redis {
            $(#[tokio::test] async fn $test() {
                super::agrees_with_the_oracle(super::Store::Redis, super::$algorithm, limiter_testkit::full_or(200, 30)).await;
            })+
        }
        mod asking {
            $(#[tokio::test] async fn $test() {
                super::agrees_with_the_oracle(super::Store::RedisUncached, super::$algorithm, limiter_testkit::full_or(100, 20)).await;
            })+
        }
    };
}

on_every_store! {
    sliding_window_agrees: SlidingWindow,
    fixed_window_agrees: FixedWindow,
    sliding_counter_agrees: SlidingCounter,
    token_bucket_agrees: TokenBucket,
    leaky_bucket_agrees: LeakyBucket,
}

/// How many keys are asked about at each instant: on Redis all at once.
const LANES: usize = 50;

/// Limits raised and lowered, costs from 0 to more than there is, waits from nothing to more than a window: the same
/// answers as by definition, to the millisecond for windows and to the microsecond for buckets.
async fn agrees_with_the_oracle(store: Store, algorithm: Algorithm, rounds: u32) {
    let subject = store.subject().await;
    let mut random = Random::new(u64::from(rounds));
    let mut lanes: Vec<Lane> = (0..LANES).map(|index| Lane::new(algorithm, index, &mut random)).collect();
    for round in 0..rounds {
        let idle = lane::idle(algorithm, &mut random);
        subject.clock.advance(idle);
        let now_us = subject.now_us();
        let mut calls = JoinSet::new();
        let mut steps = Vec::new();
        for (index, lane) in lanes.iter_mut().enumerate() {
            let step = lane.step(&mut random);
            lane.note(idle, &step);
            let (limiter, key) = (subject.limiter.clone(), lane.key.clone());
            calls.spawn(async move { (index, limiter.check_n(&key, &step.limit, step.cost).await) });
            steps.push(step);
        }
        for (index, decision) in calls.join_all().await {
            let (lane, step) = (&mut lanes[index], steps[index]);
            let expected = lane.oracle.check(now_us, &step);
            let seen = verdict_us(&decision.expect("the store answers"));
            if seen != expected {
                println!("round {round}, {step:?} on lane {index}: {seen:?}, not {expected:?}");
                fail(store, std::mem::take(&mut lane.schedule)).await;
            }
        }
    }
}

#[tokio::test]
async fn memory_admits_97_percent_where_runs_merge() {
    admits_97_percent_where_runs_merge(Subject::memory().await).await;
}

#[tokio::test]
async fn redis_admits_97_percent_where_runs_merge() {
    admits_97_percent_where_runs_merge(Subject::redis().await).await;
}

/// 99 % of 1000 a second, each call at a millisecond of its own or nearly.
async fn admits_97_percent_where_runs_merge(subject: Subject) {
    let mut random = Random::new(3);
    let limit: Limit = "1000/s".parse().expect("a limit");
    let key = Key::new("busy");
    let mut oracle = Oracle::new();
    let (mut asked, mut admitted) = (0, 0);
    let length_ms = full_or(6_000, 2_500);
    for now_ms in 0..length_ms {
        for _ in 0..2 {
            if random.below(1_000) >= 495 {
                continue;
            }
            asked += 1;
            if subject.limiter.check(&key, &limit).await.expect("the store answers").is_allowed() {
                admitted += 1;
                assert!(oracle.check(now_ms, 1_000, 1_000, 1).allowed, "more than 1000 in a second at {now_ms} ms");
            }
        }
        subject.advance_millis(1);
    }
    assert!(asked > length_ms / 100 * 96, "{asked} calls");
    assert!(admitted * 100 >= asked * 97, "{admitted} of {asked}");
}

/// Ends the test with the shortest schedule found, as a file of `tests/regressions` has it.
async fn fail(store: Store, schedule: Schedule) -> ! {
    match shrink_schedule(store, schedule).await {
        (shrunk, Some(why)) => panic!("on {store:?} {why}\n\nas a file in tests/regressions:\n\n{shrunk}"),
        (shrunk, None) => panic!("on {store:?}, but not when it is played again alone:\n\n{shrunk}"),
    }
}
