//! Heap allocations of decisions in memory, in a separate program with a counting allocator.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use rate_limited::{Decision, Key, Limit, Limiter, rate_limited};

const CALLS: u64 = 10_000;

/// Returns a limiter in memory with a key that has been counted before, and its limit.
fn limiter_with_known_key(limit: &str) -> (Limiter, Key, Limit) {
    let (limiter, limit) = (Limiter::memory(), limit.parse().expect("a limit"));
    let key = Key::new("user:").part("01890a5d-ac96-774b-bcce-b302099a8057");
    // The log of runs grows to its full size.
    for _ in 0..CALLS {
        assert!(poll_ready(limiter.check_n(&key, &limit, 1)).is_ok());
    }
    (limiter, key, limit)
}

fn poll_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store is ready on the first poll"),
    }
}

/// Returns the number of allocations during `CALLS` calls, less the few by which a log of runs may grow meanwhile.
fn allocations(call: impl Fn()) -> u64 {
    let measured = measure(|| (0..CALLS).for_each(|_| call()));
    measured.count_total.saturating_sub(10)
}

#[test]
fn decision_on_a_known_key_does_not_allocate() {
    for (limit, allowed) in [("1000000000/10s", true), ("10/h", false)] {
        let (limiter, key, limit) = limiter_with_known_key(limit);
        let check = || assert_eq!(poll_ready(limiter.check(&key, &limit)).expect("answers").is_allowed(), allowed);
        assert_eq!(allocations(check), 0, "{limit}");
        let blocking = || assert_eq!(limiter.check_blocking(&key, &limit).expect("answers").is_allowed(), allowed);
        assert_eq!(allocations(blocking), 0, "{limit}, blocking");
    }
}

#[test]
fn short_key_built_for_the_call_does_not_allocate() {
    let (limiter, _, limit) = limiter_with_known_key("1000000000/10s");
    let check = || {
        let key = Key::new("user:").part("01890a5d-ac96-774b-bcce-b302099a8057");
        assert!(poll_ready(limiter.check(&key, &limit)).expect("answers").is_allowed());
    };
    assert_eq!(allocations(check), 0);
}

#[test]
fn annotated_function_with_a_constant_key_does_not_allocate() {
    #[rate_limited(key = "constant", limit = "1000000000/10s", fallback = 0)]
    async fn limited() -> u32 {
        1
    }
    #[rate_limited(key = "blocking", limit = "1000000000/10s", fallback = 0)]
    fn blocking() -> u32 {
        1
    }
    Limiter::memory().scope_sync(|| {
        assert_eq!((poll_ready(limited()), blocking()), (1, 1));
        assert_eq!(allocations(|| assert_eq!(poll_ready(limited()), 1)), 0);
        assert_eq!(allocations(|| assert_eq!(blocking(), 1)), 0, "blocking");
    });
}

/// Clones share a flag, which the first clone allocates.
#[test]
fn cloning_a_receipt_allocates_once() {
    let (limiter, key, limit) = limiter_with_known_key("1000000000/10s");
    let Ok(Decision::Allowed(allowed)) = poll_ready(limiter.check(&key, &limit)) else { panic!("there is room") };
    let cloned = measure(|| drop(allowed.clone()));
    assert_eq!(cloned.count_total, 1);
}
