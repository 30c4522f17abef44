//! Schedules of all that can happen on a key: random ones, and those that are kept in `tests/regressions`.

use std::fs;
use std::path::Path;

use limiter_testkit::schedule::{Operation, Schedule, Store, random_schedule, replay};
use limiter_testkit::{Random, full_or};
use rate_limited::Algorithm;

use super::fail;
use crate::algorithms::ALL;

#[tokio::test]
async fn memory_agrees_on_every_schedule_that_is_kept() {
    agrees_on_every_schedule_that_is_kept(Store::Memory).await;
}

#[tokio::test]
async fn redis_agrees_on_every_schedule_that_is_kept() {
    agrees_on_every_schedule_that_is_kept(Store::Redis).await;
}

async fn agrees_on_every_schedule_that_is_kept(store: Store) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let (mut kept, mut wrong) = (0, String::new());
    for file in fs::read_dir(directory).expect("the schedules that are kept") {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("text");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(text.starts_with("# "), "{name} begins with a line that says what it guards");
        let schedule: Schedule = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Err(why) = replay(store, &schedule).await {
            wrong += &format!("{name}: {why}\n");
        }
        kept += 1;
    }
    assert!(kept >= 12 && wrong.is_empty(), "of {kept} on {store:?}\n{wrong}");
}

#[tokio::test]
async fn memory_agrees_on_random_schedules() {
    agrees_on_random_schedules(Store::Memory, full_or(80, 10)).await;
}

#[tokio::test]
async fn redis_agrees_on_random_schedules() {
    agrees_on_random_schedules(Store::Redis, full_or(15, 3)).await;
}

/// Refunds, resets, looks, and clocks that step, beside all that the lanes do.
async fn agrees_on_random_schedules(store: Store, seeds: u64) {
    for algorithm in ALL {
        for seed in 0..seeds {
            let schedule = random_schedule(algorithm, &mut Random::new(seed));
            if replay(store, &schedule).await.is_err() {
                fail(store, schedule).await;
            }
        }
    }
}

/// Each permit is an entry with the stamp of its own call, also where the clock was ahead before: without steps back.
#[tokio::test]
async fn zset_agrees_on_random_schedules() {
    for seed in 0..full_or(400, 80) {
        let mut schedule = random_schedule(Algorithm::SlidingWindow, &mut Random::new(seed));
        schedule.operations.retain(|operation| !matches!(operation, Operation::Back(_)));
        if replay(Store::Zset, &schedule).await.is_err() {
            fail(Store::Zset, schedule).await;
        }
    }
}
