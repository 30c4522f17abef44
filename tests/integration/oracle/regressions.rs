//! Schedules of every operation on a key: random ones, and the saved ones in `tests/regressions`.

use std::fs;
use std::path::Path;

use limiter_chaos::schedule::{Operation, Schedule, Store, random_schedule, replay};
use limiter_testkit::{Random, full_or};
use rate_limited::Algorithm;

use super::fail_with_shrunk_schedule;
use crate::algorithms::ALL_ALGORITHMS;

#[tokio::test]
async fn memory_agrees_on_every_saved_schedule() {
    assert_saved_schedules_agree(Store::Memory).await;
}

#[tokio::test]
async fn redis_agrees_on_every_saved_schedule() {
    assert_saved_schedules_agree(Store::Redis).await;
}

async fn assert_saved_schedules_agree(store: Store) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let (mut saved, mut failures) = (0, String::new());
    for file in fs::read_dir(directory).expect("the saved schedules") {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("text");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(text.starts_with("# "), "{name} starts with a comment");
        let schedule: Schedule = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Err(difference) = replay(store, &schedule).await {
            failures += &format!("{name}: {difference}\n");
        }
        saved += 1;
    }
    assert!(saved >= 12 && failures.is_empty(), "of {saved} on {store:?}\n{failures}");
}

#[tokio::test]
async fn memory_agrees_on_random_schedules() {
    assert_random_schedules_agree(Store::Memory, full_or(80, 10)).await;
}

#[tokio::test]
async fn redis_agrees_on_random_schedules() {
    assert_random_schedules_agree(Store::Redis, full_or(15, 3)).await;
}

/// Random schedules with refunds, resets, peeks and clock steps.
async fn assert_random_schedules_agree(store: Store, seeds: u64) {
    for algorithm in ALL_ALGORITHMS {
        for seed in 0..seeds {
            let schedule = random_schedule(algorithm, &mut Random::new(seed));
            if replay(store, &schedule).await.is_err() {
                fail_with_shrunk_schedule(store, schedule).await;
            }
        }
    }
}

/// Sorted sets are tested without steps back, because each entry keeps the stamp of its own call.
#[tokio::test]
async fn zset_agrees_on_random_schedules() {
    for seed in 0..full_or(400, 80) {
        let mut schedule = random_schedule(Algorithm::SlidingWindow, &mut Random::new(seed));
        schedule.operations.retain(|operation| !matches!(operation, Operation::Back(_)));
        if replay(Store::Zset, &schedule).await.is_err() {
            fail_with_shrunk_schedule(Store::Zset, schedule).await;
        }
    }
}
