//! Measurements of the most permits admitted in one window, for docs/spring.md. Call times are fixed, so the figures
//! are exact.

use std::time::Duration;

use limiter_testkit::Random;

use super::spring::{Spring, Version};
use super::{SharedKey, limit};

/// The window, which is longer than the test takes, because Redis expires sets by its own clock.
const WINDOW_MS: u64 = 1_000_000;
const MAX_PERMITS: u32 = 20;
/// The number of calls of each measurement.
const CALLS: u64 = 600;
/// The approximate number of calls in a window on a busy key.
const BUSY_CALLS_PER_WINDOW: u64 = 33;
/// The approximate number of calls in a window on a flooded key.
const FLOOD_CALLS_PER_WINDOW: u64 = 200;

/// A service of the measurement. The services call in turn.
#[derive(Clone, Copy)]
enum Side {
    Ours,
    /// A Spring service of this version, and the milliseconds by which its clock is ahead of Redis's.
    Theirs(Version, u64),
}

use Side::{Ours, Theirs};
use Version::{January2022, Last};

#[tokio::test]
async fn last_version_and_ours_keep_the_limit_with_one_clock() {
    for sides in [&[Ours][..], &[Theirs(Last, 0)], &[Theirs(Last, 0), Ours]] {
        assert_eq!(max_permits_in_a_window(sides, BUSY_CALLS_PER_WINDOW).await, MAX_PERMITS);
    }
}

#[tokio::test]
async fn january_2022_version_exceeds_the_limit_alone_and_beside_ours() {
    let alone = max_permits_in_a_window(&[Theirs(January2022, 0)], BUSY_CALLS_PER_WINDOW).await;
    let beside_ours = max_permits_in_a_window(&[Theirs(January2022, 0), Ours], BUSY_CALLS_PER_WINDOW).await;
    assert_eq!((alone, beside_ours), (35, 25));
}

/// A host that is two windows ahead trims the entries of others, and its own entries do not count for ours.
#[tokio::test]
async fn hosts_more_than_a_window_apart_exceed_the_limit() {
    let (behind, ahead) = (Theirs(Last, 0), Theirs(Last, 2 * WINDOW_MS));
    let in_turn = max_permits_in_a_window(&[behind, ahead], FLOOD_CALLS_PER_WINDOW).await;
    let mostly_behind = [&[behind; 9][..], &[ahead]].concat();
    let one_call_in_ten = max_permits_in_a_window(&mostly_behind, FLOOD_CALLS_PER_WINDOW).await;
    let beside_ours = max_permits_in_a_window(&[ahead, Ours], FLOOD_CALLS_PER_WINDOW).await;
    assert_eq!((in_turn, one_call_in_ten, beside_ours), (38, 134, 211));
}

/// Returns the most permits admitted in one window. Call times are random, but the same for all measurements.
async fn max_permits_in_a_window(sides: &[Side], calls_per_window: u64) -> u32 {
    let (shared, mut random) = (SharedKey::new().await, Random::new(1));
    let mut hosts: Vec<Option<(Spring, u64)>> = sides
        .iter()
        .map(|side| match side {
            Ours => None,
            Theirs(version, ahead) => Some((Spring::connect(shared.server).version(*version), *ahead)),
        })
        .collect();
    let mut admitted = Vec::new();
    for call in 0..CALLS {
        shared.advance(random.below(2 * WINDOW_MS / calls_per_window));
        let (now, index) = (shared.now_ms(), usize::try_from(call).expect("small") % sides.len());
        let allowed = match &mut hosts[index] {
            Some((spring, ahead)) => spring.allows(&shared.name, now + *ahead, WINDOW_MS, MAX_PERMITS),
            None => call_ours(&shared, now).await,
        };
        if allowed {
            admitted.push(now);
        }
    }
    let within = |end: u64| admitted.iter().filter(|at| **at <= end && **at + WINDOW_MS > end).count();
    let most = admitted.iter().map(|end| within(*end)).max().expect("some are admitted");
    u32::try_from(most).expect("small")
}

/// Makes a call of ours, and asserts that it is admitted only if the set has room.
async fn call_ours(shared: &SharedKey, now: u64) -> bool {
    let limit = limit("20/1000s");
    assert_eq!((limit.max(), limit.window()), (MAX_PERMITS, Duration::from_millis(WINDOW_MS)));
    let decision = shared.limiter.check(&shared.key, &limit).await.expect("the store answers");
    let (oldest, newest) = (format!("({}", now - WINDOW_MS), (now + WINDOW_MS).to_string());
    let live = shared.command("ZCOUNT", &[&oldest, &newest]).integer();
    assert_eq!(i64::from(decision.remaining()), (i64::from(MAX_PERMITS) - live).max(0));
    assert!(!decision.is_allowed() || live <= i64::from(MAX_PERMITS));
    decision.is_allowed()
}
