//! The fast path must equal the full decision.

use super::*;

/// Windows have steps of one millisecond and of several, logs have few runs and more than `CAPACITY`, offsets exceed a
/// `u32`, and the clock steps back.
#[test]
fn the_fast_path_equals_the_full_decision() {
    /// The longest window in milliseconds, and steps of the clock in a window.
    const SCHEDULES: [(u64, u64); 4] = [(50, 20), (5_000, 100), (1 << 30, 20), (1 << 35, 400)];
    let mut decided_fast = [0_u32; 2];
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
            let newest_before = full.runs.newest().map(|run| run.offset);
            let expected = full.decide(&input);
            let what = format!("seed {seed}, step {step}, {input:?}");
            match fast.decide_fast_path(&input) {
                Some(outcome) => {
                    assert_eq!(outcome, expected, "{what}");
                    let is_new_run = full.runs.newest().map(|run| run.offset) != newest_before;
                    decided_fast[usize::from(is_new_run)] += 1;
                }
                None => assert_eq!(fast.decide(&input), expected, "{what}"),
            }
            assert_eq!(format!("{fast:?}"), format!("{full:?}"), "{what}");
        }
    }
    println!("decided by the fast path, in the newest run and in a new one: {decided_fast:?}");
    assert!(decided_fast.iter().all(|count| *count > 10_000), "{decided_fast:?}");
}
