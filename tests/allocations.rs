//! What decisions in memory take from the heap: a program of its own, whose allocator counts.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use rate_limited::{Decision, Key, Limit, Limiter, rate_limited};

const CALLS: u64 = 10_000;

/// A limiter that knows its key, and the key.
fn known(limit: &str) -> (Limiter, Key, Limit) {
    let (limiter, limit) = (Limiter::memory(), limit.parse().expect("a limit"));
    let key = Key::new("user:").part("01890a5d-ac96-774b-bcce-b302099a8057");
    // All that a log of runs grows to.
    for _ in 0..CALLS {
        assert!(at_once(limiter.check_n(&key, &limit, 1)).is_ok());
    }
    (limiter, key, limit)
}

fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store answers at once"),
    }
}

/// Allocations of so many calls, less the few by which a log of runs may grow meanwhile.
fn allocations(call: impl Fn()) -> u64 {
    let measured = measure(|| (0..CALLS).for_each(|_| call()));
    measured.count_total.saturating_sub(10)
}

#[test]
fn a_decision_on_a_known_key_takes_nothing_from_the_heap() {
    for (limit, allowed) in [("1000000000/10s", true), ("10/h", false)] {
        let (limiter, key, limit) = known(limit);
        let check = || assert_eq!(at_once(limiter.check(&key, &limit)).expect("answers").is_allowed(), allowed);
        assert_eq!(allocations(check), 0, "{limit}");
        let blocking = || assert_eq!(limiter.check_blocking(&key, &limit).expect("answers").is_allowed(), allowed);
        assert_eq!(allocations(blocking), 0, "{limit}, blocking");
    }
}

#[test]
fn nor_does_a_short_key_made_for_the_call() {
    let (limiter, _, limit) = known("1000000000/10s");
    let check = || {
        let key = Key::new("user:").part("01890a5d-ac96-774b-bcce-b302099a8057");
        assert!(at_once(limiter.check(&key, &limit)).expect("answers").is_allowed());
    };
    assert_eq!(allocations(check), 0);
}

#[test]
fn nor_does_an_annotated_function_with_a_constant_key() {
    #[rate_limited(key = "constant", limit = "1000000000/10s", fallback = 0)]
    async fn limited() -> u32 {
        1
    }
    #[rate_limited(key = "blocking", limit = "1000000000/10s", fallback = 0)]
    fn blocking() -> u32 {
        1
    }
    Limiter::memory().scope_sync(|| {
        assert_eq!((at_once(limited()), blocking()), (1, 1));
        assert_eq!(allocations(|| assert_eq!(at_once(limited()), 1)), 0);
        assert_eq!(allocations(|| assert_eq!(blocking(), 1)), 0, "blocking");
    });
}

/// The flag that clones share is made with the first of them.
#[test]
fn a_receipt_takes_something_only_once_it_is_cloned_or_spent() {
    let (limiter, key, limit) = known("1000000000/10s");
    let Ok(Decision::Allowed(allowed)) = at_once(limiter.check(&key, &limit)) else { panic!("there is room") };
    let cloned = measure(|| drop(allowed.clone()));
    assert_eq!(cloned.count_total, 1);
}
