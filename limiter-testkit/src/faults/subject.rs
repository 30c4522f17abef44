//! The keys and limits that the tasks of a row call for.

use std::time::Duration;

use rate_limited::{Algorithm, Key, Limit};

use crate::cluster::slot_of;

/// The key of every limit of its own. Counts of different algorithms are apart, so one key does for all of them.
pub(super) const KEY: &str = "a";

/// Permits that each limit but a leaky bucket's grants in a second.
pub(super) const PERMITS_A_SECOND: u32 = 200;

/// Least part of a limit that has to be used. The run log keeps 128 instants of a window apart, and a caller comes back when
/// its pause is over, not when a permit does.
const SHARE: f64 = 0.95;

/// The same for a leaky bucket that is called without waiting. A turn that nobody takes at its instant moves all later ones, so
/// each turn takes until the next call is answered. Its turns are four times as long as the others', for that to be a small part.
const SHARE_OF_TURNS: f64 = 0.80;
const LENGTH_OF_TURNS: u32 = 4;

/// What an equal part of a row's tasks calls for.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its name in reports.
    pub name: &'static str,
    /// Keys that are called for one after the other.
    pub(super) keys: Vec<Key>,
    /// Limits of one decision.
    pub(super) limits: Vec<Limit>,
    /// Least part of the first limit that has to be used.
    pub(super) least_share: f64,
}

/// How long each of several keys is called for.
pub(super) const TURN: Duration = Duration::from_millis(600);

/// Returns one subject for each algorithm, with windows of this length.
pub(super) fn algorithms(window: Duration) -> Vec<Subject> {
    let max = u32::try_from((window * PERMITS_A_SECOND).as_secs()).expect("a short window");
    let limit = Limit::new(max, window).expect("a limit");
    let slow = Limit::new(max / LENGTH_OF_TURNS, window).expect("a limit");
    let one = |(name, algorithm)| {
        let (limit, least_share) =
            if algorithm == Algorithm::LeakyBucket { (slow, SHARE_OF_TURNS) } else { (limit, SHARE) };
        Subject { name, keys: vec![Key::new(KEY)], limits: vec![limit.with_algorithm(algorithm)], least_share }
    };
    let algorithms = [
        ("sliding_window", Algorithm::SlidingWindow),
        ("fixed_window", Algorithm::FixedWindow),
        ("sliding_counter", Algorithm::SlidingCounter),
        ("token_bucket", Algorithm::TokenBucket),
        ("leaky_bucket", Algorithm::LeakyBucket),
    ];
    algorithms.into_iter().map(one).collect()
}

/// Returns the algorithms, and decisions about two limits of one key; all keys are in one slot of a cluster.
pub(super) fn algorithms_and_several_limits(window: Duration) -> Vec<Subject> {
    let slot = slot_of(KEY.as_bytes());
    let names = (0_u32..).map(|number| format!("s{number}")).filter(|name| slot_of(name.as_bytes()) == slot);
    let several = Subject {
        name: "several limits",
        keys: names.take(64).map(Key::new).collect(),
        limits: ["5/300ms", "10/h"].map(|text| text.parse().expect("a limit")).into(),
        // Each key is used up long before its turn is over.
        least_share: 0.0,
    };
    algorithms(window).into_iter().chain([several]).collect()
}

/// Returns the most permits that an algorithm admits in any stretch of time as long as the window: the column "in the worst
/// window" of docs/algorithms.md.
pub(super) fn worst_window(limit: &Limit) -> u64 {
    let max = u64::from(limit.max());
    match limit.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingCounter => 2 * max,
        Algorithm::TokenBucket => u64::from(limit.burst()) + max - 1,
        _ => max,
    }
}
