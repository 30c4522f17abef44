//! Creates random schedules.

use std::time::Duration;

use limiter_testkit::Random;
use rate_limited::Algorithm::{self, LeakyBucket, SlidingWindow, TokenBucket};
use rate_limited::Limit;

use super::{Operation, Schedule};

/// Returns a schedule of calls, charges, peeks, waits, and either refunds or steps of the clock back.
///
/// # Panics
///
/// Never: all limits are valid.
#[must_use]
pub fn random_schedule(algorithm: Algorithm, random: &mut Random) -> Schedule {
    let window_ms = random.between(100, 400);
    let is_bucket = matches!(algorithm, TokenBucket | LeakyBucket);
    // Only the sliding window guarantees exact refunds after the clock has stepped back.
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
            9 if random.below(2) == 0 => Operation::Charge { limit, cost: charged_cost(random) },
            _ => {
                checks += 1;
                Operation::Check { limit, cost: small(random, 0, 4) }
            }
        });
    }
    Schedule { merging: false, operations }
}

/// Returns mostly few permits, also more than a limit has; sometimes as many as a counter holds, or nearly so.
fn charged_cost(random: &mut Random) -> u32 {
    let small = |number| u32::try_from(number).expect("small");
    match random.below(10) {
        0 => u32::MAX - small(random.below(8)),
        1 => small(random.below(40)),
        _ => small(random.below(6)),
    }
}

/// Returns a schedule for the sliding window with so many instants per window that runs merge.
///
/// # Panics
///
/// Never: all limits are valid.
#[must_use]
pub fn merging_schedule(random: &mut Random) -> Schedule {
    let window_ms = random.between(300, 1_200);
    let max = u32::try_from(random.between(130, 400)).expect("small");
    let mut operations = Vec::new();
    for _ in 0..700 {
        let lowered = if random.below(20) == 0 { max / 2 } else { max };
        let limit = Limit::new(lowered, Duration::from_millis(window_ms)).expect("a limit");
        let cost = if random.below(8) == 0 { 3 } else { 1 };
        operations.push(Operation::Check { limit, cost });
        let pause = if random.below(50) == 0 { window_ms / 3 } else { 5 };
        operations.push(Operation::Wait(Duration::from_millis(random.below(pause))));
    }
    Schedule { merging: true, operations }
}
