//! A waiter that nobody polls blocks no other for more than 10 ms of the clock, and keeps its place.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use rate_limited::{Limiter, ManualClock};

use super::by_hand::Polled;
use super::held::HeldStore;
use crate::support::{Subject, key, limit};

const LONG: Duration = Duration::from_secs(3600);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A limiter in memory whose one permit a second is taken.
async fn used_up() -> (Limiter, ManualClock) {
    let Subject { limiter, clock, .. } = Subject::memory().await;
    assert!(limiter.check(&key("a"), &limit("1/1s")).await.expect("answers").is_allowed());
    (limiter, clock)
}

#[tokio::test]
async fn a_waiter_that_is_not_polled_is_passed_over_after_ten_milliseconds() {
    let (limiter, clock) = used_up().await;
    let [mut first, mut second] = [(); 2].map(|()| Polled::wait(&limiter, limit("1/1s"), LONG));
    first.waits();
    second.waits();
    clock.advance(millis(1_000));
    assert!(first.is_woken());
    second.waits();
    clock.advance(millis(9));
    second.waits();
    clock.advance(millis(1));
    assert!(second.is_woken());
    second.is_admitted();
}

#[tokio::test]
async fn a_waiter_that_was_passed_over_keeps_its_place() {
    let (limiter, clock) = used_up().await;
    let [mut first, mut second, mut third] = [(); 3].map(|()| Polled::wait(&limiter, limit("1/1s"), LONG));
    first.waits();
    second.waits();
    third.waits();
    clock.advance(millis(1_000));
    clock.advance(millis(10));
    second.is_admitted();
    third.waits();
    first.waits();
    clock.advance(millis(1_000));
    third.waits();
    assert!(first.is_woken());
    first.is_admitted();
    third.waits();
    clock.advance(millis(1_000));
    third.is_admitted();
}

/// One that is passed over twice is still the first, and costs the others no second 10 ms meanwhile.
#[tokio::test]
async fn a_waiter_that_was_passed_over_delays_nobody_until_it_is_polled() {
    let (limiter, clock) = used_up().await;
    let [mut first, mut second, mut third] = [(); 3].map(|()| Polled::wait(&limiter, limit("1/1s"), LONG));
    first.waits();
    second.waits();
    third.waits();
    clock.advance(millis(1_000));
    clock.advance(millis(10));
    second.is_admitted();
    clock.advance(millis(1_000));
    third.is_admitted();
    clock.advance(millis(1_000));
    first.is_admitted();
}

/// The grace periods of many run side by side.
#[tokio::test]
async fn a_thousand_waiters_that_are_not_polled_delay_the_next_one_by_little_more_than_one() {
    let (limiter, clock) = used_up().await;
    let mut idle: Vec<_> = (0..1_000).map(|_| Polled::wait(&limiter, limit("1/1s"), LONG)).collect();
    idle.iter_mut().for_each(Polled::waits);
    let mut last = Polled::wait(&limiter, limit("1/1s"), LONG);
    last.waits();
    clock.advance(millis(1_000));
    let mut late = 0;
    while !(last.is_woken() && last.poll().is_ready()) {
        clock.advance(millis(1));
        late += 1;
        assert!(late <= 25, "still waits");
    }
    assert!(late >= 10, "{late} ms after the first was woken");
}

/// `select!` and `join!` poll all of their branches, but a body that awaits something else polls none.
#[tokio::test]
async fn a_stream_that_nobody_reads_blocks_no_other_waiter() {
    let (limiter, clock) = used_up().await;
    let mut calls = stream::iter(0..4)
        .map(|_| {
            let limiter = limiter.clone();
            async move { limiter.wait(&key("a"), &limit("1/1s"), LONG).await.expect("answers").is_allowed() }
        })
        .buffer_unordered(4);
    assert_eq!(calls.next().now_or_never(), None);
    let mut other = Polled::wait(&limiter, limit("1/1s"), LONG);
    other.waits();
    clock.advance(millis(1_000));
    for _ in 0..15 {
        clock.advance(millis(1));
    }
    other.is_admitted();
    // Its consumer comes back: its calls are served, in their order.
    for _ in 0..4 {
        clock.advance(millis(1_000));
        assert_eq!(calls.next().now_or_never(), Some(Some(true)));
    }
}

/// The answer of its check has come, and nobody reads it.
#[tokio::test]
async fn a_waiter_whose_answer_is_not_read_is_passed_over_and_keeps_its_place() {
    let store = HeldStore::start().await;
    let [mut first, mut second, mut third] = [(); 3].map(|()| Polled::wait(&store.limiter, limit("1/1s"), LONG));
    // One that does not wait takes the permit.
    let take = || {
        let limiter = store.limiter.clone();
        let mut call = Polled::new(async move { limiter.check(&key("a"), &limit("1/1s")).await });
        assert!(store.ask(&mut call));
    };
    take();
    assert!(!store.ask(&mut first) && !store.ask(&mut second));
    store.clock.advance(millis(1_000));
    assert!(first.is_woken());
    take();
    first.waits();
    store.answer(&first);
    store.clock.advance(millis(9));
    second.waits();
    store.clock.advance(millis(1));
    assert!(second.is_woken());
    assert!(!store.ask(&mut second), "admitted beside the other call");
    store.clock.advance(millis(990));
    assert!(second.is_woken());
    assert!(store.ask(&mut second));
    assert!(!store.ask(&mut third), "admitted beside the second");
    // It reads its denial, which is old, and asks anew.
    assert!(!store.ask(&mut first));
    store.clock.advance(millis(1_000));
    assert!(first.is_woken());
    assert!(store.ask(&mut first));
}
