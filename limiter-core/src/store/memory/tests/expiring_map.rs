use std::cell::Cell;

use crate::Algorithm;
use crate::algorithm::{CounterKind, CounterState};
use crate::store::memory::key_bytes::KeyBytes;
use crate::store::memory::shard::ExpiringMap;

const KIND: CounterKind = CounterKind { algorithm: Algorithm::SlidingWindow, window: 1 };

/// An entry with a short key takes no more than one with a pointer to its key did, without what that points to.
#[cfg(target_pointer_width = "64")]
#[test]
fn an_entry_takes_112_bytes() {
    assert_eq!(ExpiringMap::<KeyBytes, CounterState>::ENTRY_BYTES, 112);
}

#[test]
fn a_sweep_examines_exactly_its_number_of_steps() {
    let mut map = ExpiringMap::new(100);
    for subject in 0..100_u16 {
        map.insert(subject.into(), subject, KIND, subject);
    }
    let examined = Cell::new(0);
    for round in 1..=200 {
        map.sweep(2, |_, _| {
            examined.set(examined.get() + 1);
            false
        });
        assert_eq!(examined.get(), 2 * round);
    }
    assert_eq!(map.len(), 100);
}

#[test]
fn sweeps_wrap_around_and_keep_what_is_not_expired() {
    let mut map = ExpiringMap::new(100);
    for subject in 0..100_u16 {
        map.insert(subject.into(), subject, KIND, subject);
    }
    assert!(map.is_full());
    for _ in 0..100 {
        map.sweep(2, |counter, _| counter % 3 != 0);
    }
    let left: Vec<_> = (0..100_u16).filter(|subject| map.get(u64::from(*subject), subject, KIND).is_some()).collect();
    assert_eq!(left, (0..100).step_by(3).collect::<Vec<_>>());
}
