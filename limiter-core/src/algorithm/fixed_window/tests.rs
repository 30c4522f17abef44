use limiter_testkit::FixedWindowOracle;

use crate::Algorithm::FixedWindow;
use crate::algorithm::CounterState;
use crate::algorithm::tests::{counters, request};

#[test]
fn agrees_with_the_oracle_on_random_schedules() {
    counters::agrees_with(FixedWindow, FixedWindowOracle::check);
}

#[test]
fn windows_begin_at_multiples_of_their_length() {
    let mut state = CounterState::new(FixedWindow);
    let mut at = |micros| state.decide(&request(FixedWindow, micros, 10, 2, 2));
    assert!(at(109_999).allowed, "at the very end of the window from 100 to 110");
    assert!(at(110_000).allowed, "the edge burst: twice max within a microsecond");
    let denied = at(110_001);
    assert_eq!((denied.allowed, denied.retry_at, denied.reset_at), (false, Some(120_000), 120_000));
}

#[test]
fn saturates_at_u32_max() {
    let mut state = CounterState::new(FixedWindow);
    assert!(state.decide(&request(FixedWindow, 5_000, 10, u32::MAX, u32::MAX)).allowed);
    for _ in 0..3 {
        state.record(&request(FixedWindow, 5_000, 10, u32::MAX, u32::MAX));
    }
    let denied = state.decide(&request(FixedWindow, 5_000, 10, u32::MAX, 1));
    assert_eq!((denied.remaining, denied.retry_at), (0, Some(10_000)));
}

#[test]
fn a_refund_returns_permits_of_the_current_window_only() {
    let at = |micros| request(FixedWindow, micros, 10, 3, 1);
    let mut state = CounterState::new(FixedWindow);
    for micros in [101_000, 105_000, 109_000] {
        assert!(state.decide(&at(micros)).allowed);
    }
    state.refund(&at(109_500), 101_000);
    assert_eq!(state.peek(&at(109_500)).remaining, 1);
    assert!(state.decide(&at(111_000)).allowed);
    state.refund(&at(111_000), 105_000);
    assert_eq!(state.peek(&at(111_000)).remaining, 2, "the permit expired with its window");
}
