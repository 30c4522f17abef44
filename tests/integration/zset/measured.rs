//! The most that is admitted in one window, by given times: the figures of docs/migrating.md. Each is exact, since the
//! times are the same in every run.

use std::time::Duration;

use limiter_testkit::{Random, RedisServer};

use super::spring::{Spring, Version};
use super::{Fleet, limit};

/// Long enough that Redis, which expires sets by its own clock, keeps them for as long as the test lasts.
const WINDOW_MS: u64 = 1_000_000;
const MAX: u32 = 20;
/// Calls of each measurement.
const CALLS: u64 = 600;
/// Calls in a window, about: a busy name, and one that is flooded.
const BUSY: u64 = 33;
const FLOODED: u64 = 200;

/// A service that takes part. Its calls come in turn with those of the others.
#[derive(Clone, Copy)]
enum Side {
    Ours,
    /// With a clock that is so far ahead of Redis's, in milliseconds.
    Theirs(Version, u64),
}

use Side::{Ours, Theirs};
use Version::{January2022, Last};

#[tokio::test]
async fn by_one_clock_the_last_version_and_ours_keep_the_limit() {
    for sides in [&[Ours][..], &[Theirs(Last, 0)], &[Theirs(Last, 0), Ours]] {
        assert_eq!(most_in_a_window(sides, BUSY).await, MAX);
    }
}

#[tokio::test]
async fn the_version_of_january_2022_exceeds_the_limit_alone_and_beside_ours() {
    let alone = most_in_a_window(&[Theirs(January2022, 0)], BUSY).await;
    let beside_ours = most_in_a_window(&[Theirs(January2022, 0), Ours], BUSY).await;
    assert_eq!((alone, beside_ours), (35, 25));
}

/// A host that is two windows ahead trims what the others have taken. What it takes itself does not count for ours.
#[tokio::test]
async fn hosts_further_apart_than_a_window_have_no_limit() {
    let (behind, ahead) = (Theirs(Last, 0), Theirs(Last, 2 * WINDOW_MS));
    let in_turn = most_in_a_window(&[behind, ahead], FLOODED).await;
    let mostly_behind = [&[behind; 9][..], &[ahead]].concat();
    let one_call_in_ten = most_in_a_window(&mostly_behind, FLOODED).await;
    let beside_ours = most_in_a_window(&[ahead, Ours], FLOODED).await;
    assert_eq!((in_turn, one_call_in_ten, beside_ours), (38, 134, 211));
}

/// The same random times for all, with so many calls in a window.
async fn most_in_a_window(sides: &[Side], calls_in_a_window: u64) -> u32 {
    let (fleet, mut random, server) = (Fleet::new().await, Random::new(1), RedisServer::shared());
    let mut hosts: Vec<Option<(Spring, u64)>> = sides
        .iter()
        .map(|side| match side {
            Ours => None,
            Theirs(version, ahead) => Some((Spring::on(server).version(*version), *ahead)),
        })
        .collect();
    let mut admitted = Vec::new();
    for call in 0..CALLS {
        fleet.advance(random.below(2 * WINDOW_MS / calls_in_a_window));
        let (now, place) = (fleet.now_ms(), usize::try_from(call).expect("small") % sides.len());
        let allowed = match &mut hosts[place] {
            Some((spring, ahead)) => spring.allows(&fleet.name, now + *ahead, WINDOW_MS, MAX),
            None => ours(&fleet, now).await,
        };
        if allowed {
            admitted.push(now);
        }
    }
    let within = |end: u64| admitted.iter().filter(|at| **at <= end && **at + WINDOW_MS > end).count();
    let most = admitted.iter().map(|end| within(*end)).max().expect("some are admitted");
    u32::try_from(most).expect("small")
}

/// Whatever the others do, ours admits nothing beyond what the set holds.
async fn ours(fleet: &Fleet, now: u64) -> bool {
    let limit = limit("20/1000s");
    assert_eq!((limit.max(), limit.window()), (MAX, Duration::from_millis(WINDOW_MS)));
    let decision = fleet.limiter.check(&fleet.key, &limit).await.expect("the store answers");
    let (oldest, newest) = (format!("({}", now - WINDOW_MS), (now + WINDOW_MS).to_string());
    let live = fleet.command("ZCOUNT", &[&oldest, &newest]).integer();
    assert_eq!(i64::from(decision.remaining()), (i64::from(MAX) - live).max(0));
    assert!(!decision.is_allowed() || live <= i64::from(MAX));
    decision.is_allowed()
}
