//! The fast path must equal the full decision.

use std::collections::BTreeMap;

use super::*;

/// Windows have units of one millisecond and of several, logs have few runs and more than `CAPACITY`, runs expire, offsets
/// exceed a `u32`, and the clock steps back.
#[test]
fn the_fast_path_equals_the_full_decision() {
    /// The longest window in milliseconds, and steps of the clock in a window.
    const SCHEDULES: [(u64, u64); 7] =
        [(50, 20), (5_000, 100), (5_000, 400), (1 << 24, 20), (1 << 24, 1), (1 << 29, 400), (1 << 34, 400)];
    let mut decided_fast = BTreeMap::<_, u32>::new();
    for (seed, (longest_window, steps)) in (0..).zip(SCHEDULES.repeat(75)) {
        let mut random = Random::new(seed);
        let window = random.between(1, longest_window);
        let unit = unit(window);
        let longest_step = (window / steps).max(1);
        let (mut fast, mut full) = (Log::default(), Log::default());
        let mut now: u64 = 1 << 40;
        for step in 0..1_000 {
            match random.below(1_000) {
                0 => now += random.below(2 * window),
                1 => now -= random.below(2 * window),
                2..=400 => {}
                401..=600 => now += random.below(3 * unit),
                _ => now += random.below(longest_step + 1),
            }
            let max = u32::try_from(random.between(1, 2_000)).expect("small");
            let cost = u32::try_from(random.below(5)).expect("small");
            let input = input_between(now, now + random.below(2), window, max, cost);
            let before = full.clone();
            let expected = full.decide(&input);
            let what = format!("seed {seed}, step {step}, {input:?}");
            match fast.decide_fast_path(&input) {
                Some(outcome) => {
                    assert_eq!(outcome, expected, "{what}");
                    let (place, expiry) = change(&before, &full);
                    *decided_fast.entry((place, expiry, unit > 1)).or_default() += 1;
                }
                None => assert_eq!(fast.decide(&input), expected, "{what}"),
            }
            assert_eq!(format!("{fast:?}"), format!("{full:?}"), "{what}");
        }
    }
    println!("decided by the fast path: {decided_fast:?}");
    for place in ["same run", "merged run", "new run"] {
        for expiry in ["", ", after expiry"] {
            // With units of several milliseconds, only what no expired run delays.
            for in_units in [false, true].into_iter().take(if expiry.is_empty() { 2 } else { 1 }) {
                let count = decided_fast.get(&(place, expiry, in_units));
                assert!(count.is_some_and(|count| *count > 300), "{place}{expiry}: {decided_fast:?}");
            }
        }
    }
}

/// Returns how a call has changed a log: the place of its permits, and whether runs have expired.
fn change(before: &Log, after: &Log) -> (&'static str, &'static str) {
    let newest = |log: &Log| log.runs.newest().map(|run| run.offset);
    let is_expired = before.runs.oldest().map(|run| run.offset) != after.runs.oldest().map(|run| run.offset);
    let place = match after.runs.len() {
        _ if newest(before) == newest(after) => "same run",
        len if len >= CAPACITY && after.runs.get(len - 2).offset != before.runs.newest().unwrap_or_default().offset => {
            "merged run"
        }
        _ => "new run",
    };
    (place, if is_expired { ", after expiry" } else { "" })
}
