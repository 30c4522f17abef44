use limiter_testkit::{Random, SlidingCounterOracle};

use crate::Algorithm::SlidingCounter;
use crate::algorithm::CounterState;
use crate::algorithm::tests::{counters, request, small};

#[test]
fn agrees_with_the_oracle_on_random_schedules() {
    counters::agrees_with(SlidingCounter, SlidingCounterOracle::check);
}

#[test]
fn permits_of_the_older_window_expire_evenly() {
    let mut state = CounterState::new(SlidingCounter);
    let at = |millis: u64, cost| request(SlidingCounter, millis * 1000, 100, 10, cost);
    assert!(state.decide(&at(150, 10)).allowed);
    assert_eq!(state.peek(&at(199, 1)).retry_at, Some(210_000), "after the window, a tenth of it at a time");
    assert_eq!(state.peek(&at(200, 1)).remaining, 0);
    assert_eq!(state.peek(&at(209, 1)).remaining, 0, "9.1 round up to 10");
    assert_eq!(state.peek(&at(210, 1)).remaining, 1);
    assert!(state.decide(&at(250, 5)).allowed);
    assert_eq!(state.peek(&at(250, 1)).retry_at, Some(260_000));
    assert_eq!(state.peek(&at(250, 6)).retry_at, Some(320_000), "as the newer window expires");
    assert_eq!(state.peek(&at(250, 10)).retry_at, Some(400_000));
    assert_eq!(state.peek(&at(250, 0)).reset_at, 400_000);
    assert_eq!(state.peek(&at(300, 0)).remaining, 5);
    assert_eq!(state.peek(&at(400, 0)).remaining, 10);
}

#[test]
fn u32_max_permits_in_the_longest_window_do_not_overflow() {
    let (all, window) = (u32::MAX, 366 * 86_400_000);
    let mut state = CounterState::new(SlidingCounter);
    let at = |millis: u64, cost| request(SlidingCounter, millis * 1000, window, all, cost);
    assert!(state.decide(&at(window, all)).allowed);
    let third = window + window / 3;
    assert_eq!(state.peek(&at(window + third, 1)).remaining, all / 3);
    let denied = state.peek(&at(window + third, all / 3 + 1));
    let retry_at = denied.retry_at.expect("not final") / 1000;
    assert!(state.peek(&at(retry_at, all / 3 + 1)).allowed);
    assert!(!state.peek(&at(retry_at - 1, all / 3 + 1)).allowed);
}

#[test]
fn a_refund_returns_permits_to_the_window_of_the_receipt() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let window = 50;
        let (mut state, mut oracle) = (CounterState::new(SlidingCounter), SlidingCounterOracle::new());
        let (mut now, mut last) = (1_000, None);
        for _ in 0..300 {
            now += random.below(15);
            let cost = 1 + small(&mut random, 2);
            let allowed = state.decide(&request(SlidingCounter, now * 1000, window, 8, cost)).allowed;
            assert_eq!(allowed, oracle.check(now, window, 8, cost).allowed, "seed {seed}");
            if allowed && last.is_none() {
                last = Some((now, cost));
            } else if let Some((stamp, cost)) = last.take_if(|_| random.below(3) == 0) {
                state.refund(&request(SlidingCounter, now * 1000, window, 8, cost), stamp * 1000);
                oracle.refund(now, window, stamp, cost);
            }
        }
    }
}
