//! The run log against the naive oracle, which keeps every stamp in a list and counts.

use limiter_testkit::{Oracle, Random};

use super::*;
use crate::Algorithm;
use crate::algorithm::CounterKind;

mod fast_path;
mod refunds;

fn input_between(floor: u64, ceil: u64, window: u64, max: u32, cost: u32) -> AlgorithmInput {
    let kind = CounterKind { algorithm: Algorithm::SlidingWindow, window };
    AlgorithmInput {
        floor,
        ceil,
        micros: ceil * 1000,
        kind,
        max,
        burst: max,
        cost,
        pending: 0,
        max_wait: 0,
        calendar: None,
    }
}

/// Returns the newest stamp of a log whose window has so many milliseconds.
fn newest(log: &Log, window: u64) -> u64 {
    log.expires_at(window) - window
}

fn input_at(now: u64, window: u64, max: u32, cost: u32) -> AlgorithmInput {
    input_between(now, now, window, max, cost)
}

/// The outcomes agree to the millisecond, as long as a window has at most `CAPACITY` distinct instants.
#[test]
fn agrees_with_the_oracle_on_random_schedules() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let window = random.between(1, 20_000);
        let longest_step = (window / 40).max(1);
        let (mut log, mut oracle) = (Log::default(), Oracle::new());
        let mut now = 1_000_000;
        let mut instants = 0;
        for step in 0..500 {
            now += match random.below(20) {
                0 => random.below(2 * window),
                // Windows with more instants are for the tests of merging.
                _ if instants == 100 => window,
                1..=9 => random.below(longest_step + 1),
                _ => 0,
            };
            instants = if log.expires_at(window) <= now { 0 } else { instants + 1 };
            let max = u32::try_from(random.between(1, 12)).expect("small");
            let cost = u32::try_from(random.below(5)).expect("small");
            let input = input_at(now, window, max, cost);

            let seen = oracle.peek(now, window, max, cost);
            assert_eq!(relative(&log.peek(&input), now), seen, "peek, seed {seed}, step {step}");
            let outcome = log.decide(&input);
            assert_eq!(relative(&outcome, now), oracle.check(now, window, max, cost), "seed {seed}, step {step}");
            if let (false, Some(retry_at)) = (outcome.allowed, outcome.retry_at) {
                assert!(log.peek(&input_at(retry_at, window, max, cost)).allowed, "at the promised instant");
                assert!(!log.peek(&input_at(retry_at - 1, window, max, cost)).allowed, "1 ms before");
            }
        }
    }
}

fn relative(outcome: &Outcome, now: u64) -> limiter_testkit::Verdict {
    limiter_testkit::Verdict {
        allowed: outcome.allowed,
        remaining: outcome.remaining,
        retry_after: outcome.retry_at.map(|at| at - now),
        reset_after: outcome.reset_at - now,
    }
}

#[test]
fn merged_runs_never_admit_too_much_and_expire_less_than_a_cell_late() {
    for seed in 0..limiter_testkit::full_or(15, 3) {
        let mut random = Random::new(seed);
        let window = random.between(100, 20_000);
        let max = u32::try_from(random.between(100, 3_000)).expect("small");
        let late = window.div_ceil(CAPACITY as u64) - 1;
        let (mut log, mut oracle) = (Log::default(), Oracle::new());
        let mut now = 5_000_000;
        for _ in 0..4_000 {
            now += random.below(1 + 2 * window / u64::from(max));
            let cost = u32::try_from(random.between(1, 3)).expect("small");
            let outcome = log.decide(&input_at(now, window, max, cost));
            if outcome.allowed {
                assert!(oracle.check(now, window, max, cost).allowed, "seed {seed}: admitted too much");
            } else {
                let retry_at = outcome.retry_at.expect("not final");
                assert!(!oracle.peek(now, window + late, max, cost).allowed, "seed {seed}: denied too long");
                assert!(log.peek(&input_at(retry_at, window, max, cost)).allowed);
                assert!(!log.peek(&input_at(retry_at - 1, window, max, cost)).allowed);
            }
            assert!(log.runs.len() <= 2 * CAPACITY + 1, "seed {seed}: {} runs", log.runs.len());
        }
    }
}

/// A log that merges calls into any recent run would never close that run at this load, and would admit half.
#[test]
fn admits_97_percent_at_99_percent_of_the_limit() {
    let (window, max) = (1000, 1000);
    let mut random = Random::new(7);
    let mut log = Log::default();
    let (mut calls, mut admitted) = (0u32, 0u32);
    for now in 0..60_000 {
        for _ in 0..2 {
            if random.below(1000) < 495 {
                calls += 1;
                admitted += u32::from(log.decide(&input_at(now, window, max, 1)).allowed);
            }
        }
    }
    assert!(admitted * 100 >= calls * 97, "{admitted} of {calls}");
}

#[test]
fn rounding_never_admits_early() {
    // The permit is taken within millisecond 100, so its stamp is 101.
    let input = |floor, ceil| input_between(floor, ceil, 10, 1, 1);
    let mut log = Log::default();
    assert!(log.decide(&input(100, 101)).allowed);
    let denied = log.decide(&input(110, 111));
    assert!(!denied.allowed, "the window of 10 ms ends between 110 and 111");
    assert_eq!(denied.retry_at, Some(111));
    assert!(log.decide(&input(111, 111)).allowed);
}

#[test]
fn time_stands_still_while_the_clock_is_behind() {
    let mut log = Log::default();
    assert!(log.decide(&input_at(1000, 100, 2, 1)).allowed);
    assert!(log.decide(&input_at(1090, 100, 2, 1)).allowed);
    // Back by less than a window: the permits still count, and the promised instants hold by the new time.
    let denied = log.decide(&input_at(1000, 100, 2, 1));
    assert_eq!((denied.allowed, denied.retry_at), (false, Some(1100)));
    let two = log.decide(&input_at(1000, 100, 2, 2));
    assert_eq!((two.allowed, two.retry_at), (false, Some(1190)));
    assert!(!log.peek(&input_at(1099, 100, 2, 1)).allowed);
    let mut later = log.clone();
    assert!(later.decide(&input_at(1100, 100, 2, 1)).allowed);
    assert_eq!(newest(&later, 100), 1100);
    // A permit taken while the clock is behind has the last stamp, not an older one.
    assert!(log.decide(&input_at(1050, 100, 3, 1)).allowed);
    assert_eq!(newest(&log, 100), 1090);
    // Back by more than a window: the log is void.
    let fresh = log.decide(&input_at(989, 100, 2, 1));
    assert_eq!((fresh.allowed, fresh.remaining, newest(&log, 100)), (true, 1, 989));
}

#[test]
fn offsets_hold_windows_of_a_month_and_a_year() {
    let day = 86_400_000;
    for window in [day / 6, day / 5, day, 13 * day, 30 * day, 366 * day] {
        let unit = unit(window);
        let mut log = Log::default();
        let start = 1_700_000_000_123;
        assert_eq!(log.decide(&input_at(start, window, 2, 1)).reset_at, start + window);
        let second = log.decide(&input_at(start + window - 7, window, 2, 1));
        let stamp = newest(&log, window);
        assert!(second.allowed && stamp >= start + window - 7 && stamp < start + window - 7 + unit);
        let denied = log.decide(&input_at(start + window - 1, window, 2, 1));
        assert_eq!((denied.allowed, denied.retry_at), (false, Some(start + window)));
        assert!(log.decide(&input_at(start + window, window, 2, 1)).allowed);
    }
}

/// The offsets of a key that is never idle overflow after 49 days of milliseconds.
#[test]
fn rebases_a_key_that_is_never_idle() {
    let (window, hour) = (4 * 3_600_000, 3_600_000);
    let (mut log, mut oracle) = (Log::default(), Oracle::new());
    for step in 0..24 * 120 {
        let now = 1_000_000 + step * hour;
        let verdict = oracle.check(now, window, 3, 1);
        assert_eq!(relative(&log.decide(&input_at(now, window, 3, 1)), now), verdict, "hour {step}");
    }
    assert!(log.base > 1_000_000, "the base has moved");
}

#[test]
fn totals_wrap_at_u32_max() {
    let mut log = Log::default();
    let all = u32::MAX;
    // Each round takes all free permits while part of the last round still counts, so the totals wrap.
    for now in (0..100).step_by(10) {
        let left = if now == 0 { 5 } else { 0 };
        let outcome = log.decide(&input_at(now, 10, all, all - 5));
        assert_eq!((outcome.allowed, outcome.remaining), (true, left), "at {now}");
        assert_eq!(log.decide(&input_at(now + 1, 10, all, 5)).remaining, 0);
        let denied = log.decide(&input_at(now + 1, 10, all, all));
        assert_eq!((denied.allowed, denied.retry_at), (false, Some(now + 11)));
        let few = log.decide(&input_at(now + 1, 10, all, 7));
        assert_eq!((few.allowed, few.retry_at), (false, Some(now + 10)));
        let lowered = log.decide(&input_at(now + 1, 10, 1, 1));
        assert_eq!((lowered.allowed, lowered.retry_at), (false, Some(now + 11)));
    }
}

#[test]
fn a_cost_of_zero_is_allowed_and_a_cost_above_max_is_final() {
    let mut log = Log::default();
    let nothing = log.decide(&input_at(5, 10, 3, 0));
    assert_eq!((nothing.allowed, nothing.remaining, nothing.reset_at), (true, 3, 5));
    assert_eq!(log.runs.len(), 0);
    let never = log.decide(&input_at(5, 10, 3, 4));
    assert_eq!((never.allowed, never.remaining, never.retry_at), (false, 3, None));
    assert!(log.decide(&input_at(5, 10, 3, 3)).allowed);
    assert!(log.decide(&input_at(5, 10, 3, 0)).allowed, "a cost of zero always fits");
}

#[test]
fn records_permits_beyond_the_limit() {
    let mut log = Log::default();
    for _ in 0..7 {
        log.record(&input_at(100, 50, 5, 1));
    }
    let denied = log.decide(&input_at(120, 50, 5, 1));
    assert_eq!((denied.allowed, denied.remaining, denied.retry_at), (false, 0, Some(150)));
}

/// Several requests of one decision about one log: each is evaluated after those before it.
#[test]
fn pending_permits_count() {
    let mut log = Log::default();
    assert!(log.decide(&input_at(100, 50, 5, 2)).allowed);
    let second = |pending| log.peek(&AlgorithmInput { pending, ..input_at(120, 50, 5, 2) });
    assert_eq!((second(1).allowed, second(1).remaining), (true, 2));
    assert_eq!((second(2).allowed, second(2).remaining, second(2).retry_at), (false, 1, Some(150)));
    assert_eq!((second(4).allowed, second(4).retry_at), (false, None), "the two never fit together");
    assert_eq!(second(u32::MAX).retry_at, None);
}
