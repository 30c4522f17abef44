//! Tests of waiters that are not polled: they block others for at most 10 ms of the clock, and keep their place.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use rate_limited::{Limiter, ManualClock};

use super::held_store::HeldStore;
use super::polled::Polled;
use crate::support::{Subject, key, limit};

const LONG_WAIT: Duration = Duration::from_secs(3600);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a limiter in memory whose only permit per second is taken.
async fn used_up_limiter() -> (Limiter, ManualClock) {
    let Subject { limiter, clock, .. } = Subject::memory().await;
    assert!(limiter.check(&key("a"), &limit("1/1s")).await.expect("answers").is_allowed());
    (limiter, clock)
}

#[tokio::test]
async fn waiter_that_is_not_polled_is_passed_over_after_10_ms() {
    let (limiter, clock) = used_up_limiter().await;
    let [mut first, mut second] = [(); 2].map(|()| Polled::wait(&limiter, limit("1/1s"), LONG_WAIT));
    first.assert_waits();
    second.assert_waits();
    clock.advance(millis(1_000));
    assert!(first.is_woken());
    second.assert_waits();
    clock.advance(millis(9));
    second.assert_waits();
    clock.advance(millis(1));
    assert!(second.is_woken());
    second.assert_admitted();
}

#[tokio::test]
async fn passed_over_waiter_keeps_its_place() {
    let (limiter, clock) = used_up_limiter().await;
    let [mut first, mut second, mut third] = [(); 3].map(|()| Polled::wait(&limiter, limit("1/1s"), LONG_WAIT));
    first.assert_waits();
    second.assert_waits();
    third.assert_waits();
    clock.advance(millis(1_000));
    clock.advance(millis(10));
    second.assert_admitted();
    third.assert_waits();
    first.assert_waits();
    clock.advance(millis(1_000));
    third.assert_waits();
    assert!(first.is_woken());
    first.assert_admitted();
    third.assert_waits();
    clock.advance(millis(1_000));
    third.assert_admitted();
}

/// A waiter that is passed over twice is still first, and does not delay the others by another 10 ms.
#[tokio::test]
async fn passed_over_waiter_delays_no_other_until_it_is_polled() {
    let (limiter, clock) = used_up_limiter().await;
    let [mut first, mut second, mut third] = [(); 3].map(|()| Polled::wait(&limiter, limit("1/1s"), LONG_WAIT));
    first.assert_waits();
    second.assert_waits();
    third.assert_waits();
    clock.advance(millis(1_000));
    clock.advance(millis(10));
    second.assert_admitted();
    clock.advance(millis(1_000));
    third.assert_admitted();
    clock.advance(millis(1_000));
    first.assert_admitted();
}

/// The grace periods of several waiters run concurrently.
#[tokio::test]
async fn thousand_waiters_that_are_not_polled_delay_the_next_by_at_most_25_ms() {
    let (limiter, clock) = used_up_limiter().await;
    let mut idle: Vec<_> = (0..1_000).map(|_| Polled::wait(&limiter, limit("1/1s"), LONG_WAIT)).collect();
    idle.iter_mut().for_each(Polled::assert_waits);
    let mut last = Polled::wait(&limiter, limit("1/1s"), LONG_WAIT);
    last.assert_waits();
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
async fn unread_stream_blocks_no_other_waiter() {
    let (limiter, clock) = used_up_limiter().await;
    let mut calls = stream::iter(0..4)
        .map(|_| {
            let limiter = limiter.clone();
            async move { limiter.wait(&key("a"), &limit("1/1s"), LONG_WAIT).await.expect("answers").is_allowed() }
        })
        .buffer_unordered(4);
    assert_eq!(calls.next().now_or_never(), None);
    let mut other = Polled::wait(&limiter, limit("1/1s"), LONG_WAIT);
    other.assert_waits();
    clock.advance(millis(1_000));
    for _ in 0..15 {
        clock.advance(millis(1));
    }
    other.assert_admitted();
    // Once the stream is read again, its calls are served in order.
    for _ in 0..4 {
        clock.advance(millis(1_000));
        assert_eq!(calls.next().now_or_never(), Some(Some(true)));
    }
}

/// The reply to the waiter's check has arrived, but the waiter is not polled.
#[tokio::test]
async fn waiter_with_an_unread_reply_is_passed_over_and_keeps_its_place() {
    let store = HeldStore::start().await;
    let [mut first, mut second, mut third] = [(); 3].map(|()| Polled::wait(&store.limiter, limit("1/1s"), LONG_WAIT));
    // A call that does not wait takes the permit.
    let take = || {
        let limiter = store.limiter.clone();
        let mut call = Polled::new(async move { limiter.check(&key("a"), &limit("1/1s")).await });
        assert!(store.poll_with_reply(&mut call));
    };
    take();
    assert!(!store.poll_with_reply(&mut first) && !store.poll_with_reply(&mut second));
    store.clock.advance(millis(1_000));
    assert!(first.is_woken());
    take();
    first.assert_waits();
    store.deliver_reply(&first);
    store.clock.advance(millis(9));
    second.assert_waits();
    store.clock.advance(millis(1));
    assert!(second.is_woken());
    assert!(!store.poll_with_reply(&mut second), "admitted beside the other call");
    store.clock.advance(millis(990));
    assert!(second.is_woken());
    assert!(store.poll_with_reply(&mut second));
    assert!(!store.poll_with_reply(&mut third), "admitted beside the second");
    // It reads its old denial, and checks again.
    assert!(!store.poll_with_reply(&mut first));
    store.clock.advance(millis(1_000));
    assert!(first.is_woken());
    assert!(store.poll_with_reply(&mut first));
}
