use std::cell::Cell;

use crate::Algorithm;
use crate::algorithm::CounterKind;
use crate::store::memory::expiring_map::ExpiringMap;

const SPAN: CounterKind = CounterKind { algorithm: Algorithm::SlidingWindow, window: 1 };

#[test]
fn looks_at_so_many_and_no_more_wherever_the_hand_is() {
    let mut counts = ExpiringMap::new(100);
    for what in 0..100_u16 {
        counts.insert(what.into(), what, SPAN, what);
    }
    let looks = Cell::new(0);
    for round in 1..=200 {
        counts.collect(2, |_, _| {
            looks.set(looks.get() + 1);
            false
        });
        assert_eq!(looks.get(), 2 * round);
    }
    assert_eq!(counts.len(), 100);
}

#[test]
fn goes_round_and_keeps_what_is_not_over() {
    let mut counts = ExpiringMap::new(100);
    for what in 0..100_u16 {
        counts.insert(what.into(), what, SPAN, what);
    }
    assert!(counts.is_full());
    for _ in 0..100 {
        counts.collect(2, |count, _| count % 3 != 0);
    }
    let left: Vec<_> = (0..100_u16).filter(|what| counts.get(u64::from(*what), what, SPAN).is_some()).collect();
    assert_eq!(left, (0..100).step_by(3).collect::<Vec<_>>());
}
