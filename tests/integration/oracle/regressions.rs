//! Schedules of all that can happen on a key: random ones, and those that are kept in `tests/regressions`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use limiter_testkit::{Random, full_or};
use rate_limited::{Algorithm, Limit};

use super::replay::{Store, replay};
use super::schedule::{Operation, Schedule};
use super::{LeakyBucket, SlidingWindow, TokenBucket, shrink};
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
                shrink::fail(store, schedule).await;
            }
        }
    }
}

fn random_schedule(algorithm: Algorithm, random: &mut Random) -> Schedule {
    let window_ms = random.between(100, 400);
    let is_bucket = matches!(algorithm, TokenBucket | LeakyBucket);
    // Only the sliding window promises to the permit what a refund gives back after the clock has stepped.
    let is_exact = algorithm == SlidingWindow;
    let steps_back = random.below(2) == 0;
    let small = |random: &mut Random, low, high| u32::try_from(random.between(low, high)).expect("small");
    let wait = |random: &mut Random, up_to_ms: u64| {
        let micros = random.below(up_to_ms * 1_000);
        Duration::from_micros(if is_bucket { micros } else { micros - micros % 1_000 })
    };
    let mut operations = Vec::new();
    let mut checks = 0;
    for _ in 0..80 {
        let limit = Limit::new(small(random, 1, 10), Duration::from_millis(window_ms)).expect("a limit");
        let limit = limit.with_algorithm(algorithm);
        let limit = if is_bucket { limit.with_burst(small(random, 1, 10)).expect("a bucket") } else { limit };
        operations.push(match random.below(16) {
            0..=3 => Operation::Wait(wait(random, window_ms / 5)),
            4 => Operation::Wait(wait(random, 2 * window_ms)),
            5 if steps_back => Operation::Back(wait(random, window_ms / 2)),
            6 if steps_back => Operation::Back(wait(random, 3 * window_ms)),
            5 | 6 => Operation::Refund(usize::try_from(random.between(1, checks + 1)).expect("small")),
            7 if steps_back && is_exact && random.below(2) == 0 => {
                Operation::Refund(usize::try_from(random.between(1, checks + 1)).expect("small"))
            }
            7 => Operation::Look { limit },
            8 if random.below(4) == 0 => Operation::Reset { limit },
            _ => {
                checks += 1;
                Operation::Check { limit, cost: small(random, 0, 4) }
            }
        });
    }
    Schedule { merging: false, operations }
}
