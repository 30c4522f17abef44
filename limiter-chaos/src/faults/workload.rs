//! The keys and limits of a row's calls.

use std::time::Duration;

use limiter_testkit::slot_of;
use rate_limited::{Algorithm, Key, Limit};

/// The key of every workload with one limit. Different algorithms have separate counts, so one key is enough.
pub(super) const KEY_NAME: &str = "a";

/// The permits per second of each limit except the leaky bucket's.
pub(super) const PERMITS_PER_SECOND: u32 = 200;

/// The permits per second of a leased limit.
pub(super) const LEASED_PERMITS_PER_SECOND: u32 = 16_000;

/// The shortest window of a leased limit.
pub(super) const MIN_LEASED_WINDOW: Duration = Duration::from_millis(640);

/// The least share of a leased limit that must be used. Its permits come back up to a 43rd of the window later, and a
/// part of them is unused in a lease.
const MIN_LEASED_SHARE: f64 = 0.90;

/// The least share of a limit that must be used. The run log keeps 128 instants of a window apart, and a task calls
/// again when its pause is over, not when a permit expires.
const MIN_SHARE: f64 = 0.95;

/// The least share of a leaky bucket that must be used, by callers that do not wait. A turn that is not taken at its
/// instant delays all later ones, so each turn lasts until the next call. The bucket's rate is a fourth of the others',
/// so that this delay is small.
const MIN_LEAKY_BUCKET_SHARE: f64 = 0.80;
const LEAKY_BUCKET_DIVISOR: u32 = 4;

/// The keys and limits that an equal part of a row's tasks calls.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The name in reports.
    pub name: &'static str,
    /// The keys, which are called one after the other.
    pub(super) keys: Vec<Key>,
    /// The limits of one decision.
    pub(super) limits: Vec<Limit>,
    /// The least share of the first limit that must be used.
    pub(super) min_share: f64,
}

/// The time for which each of several keys is called.
pub(super) const KEY_PERIOD: Duration = Duration::from_millis(600);

/// Returns one workload for each algorithm, with windows of this length.
pub(super) fn algorithms(window: Duration) -> Vec<Workload> {
    let max = u32::try_from((window * PERMITS_PER_SECOND).as_secs()).expect("a short window");
    let limit = Limit::new(max, window).expect("a limit");
    let slow = Limit::new(max / LEAKY_BUCKET_DIVISOR, window).expect("a limit");
    let workload = |(name, algorithm)| {
        let (limit, min_share) =
            if algorithm == Algorithm::LeakyBucket { (slow, MIN_LEAKY_BUCKET_SHARE) } else { (limit, MIN_SHARE) };
        Workload { name, keys: vec![Key::new(KEY_NAME)], limits: vec![limit.with_algorithm(algorithm)], min_share }
    };
    let algorithms = [
        ("sliding_window", Algorithm::SlidingWindow),
        ("fixed_window", Algorithm::FixedWindow),
        ("sliding_counter", Algorithm::SlidingCounter),
        ("token_bucket", Algorithm::TokenBucket),
        ("leaky_bucket", Algorithm::LeakyBucket),
    ];
    algorithms.into_iter().map(workload).collect()
}

/// Returns one workload whose limit is leased.
pub(super) fn leased(window: Duration) -> Vec<Workload> {
    let permits = (window * LEASED_PERMITS_PER_SECOND).as_secs();
    let limit = Limit::new(u32::try_from(permits).expect("a short window"), window).expect("a limit");
    vec![Workload {
        name: "leased sliding_window",
        keys: vec![Key::new(KEY_NAME)],
        limits: vec![limit],
        min_share: MIN_LEASED_SHARE,
    }]
}

/// Returns the algorithms' workloads, and one workload whose decisions are each about two limits of one key. All keys
/// are in one slot of a cluster.
pub(super) fn algorithms_and_several_limits(window: Duration) -> Vec<Workload> {
    let slot = slot_of(KEY_NAME.as_bytes());
    let names = (0_u32..).map(|number| format!("s{number}")).filter(|name| slot_of(name.as_bytes()) == slot);
    let several = Workload {
        name: "several limits",
        keys: names.take(64).map(Key::new).collect(),
        limits: ["5/300ms", "10/h"].map(|text| text.parse().expect("a limit")).into(),
        // Each key's limits are exhausted long before its period ends.
        min_share: 0.0,
    };
    algorithms(window).into_iter().chain([several]).collect()
}

/// Returns the greatest number of permits that an algorithm admits in any stretch of time as long as the window.
///
/// This is the column "in the worst window" of docs/algorithms.md.
pub(super) fn max_per_window(limit: &Limit) -> u64 {
    let max = u64::from(limit.max());
    match limit.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingCounter => 2 * max,
        Algorithm::TokenBucket => u64::from(limit.burst()) + max - 1,
        _ => max,
    }
}
