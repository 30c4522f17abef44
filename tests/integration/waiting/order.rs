//! Tests of the order of waiters: they are served in the order of their calls, for any costs and any order of replies.

use std::task::Poll;
use std::time::Duration;

use limiter_testkit::Random;
use rate_limited::{Decision, Denied, Limiter, ManualClock, rate_limited};

use super::held_store::HeldStore;
use super::polled::Polled;
use crate::support::{Subject, key, limit};

const LONG_WAIT: Duration = Duration::from_secs(3600);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Advances the clock until all waiters are admitted, one per step, and returns their order. Of the woken waiters the
/// last one is polled first.
fn admission_order<T>(
    clock: &ManualClock,
    calls: &mut [Polled<T>],
    mut is_done_by_poll: impl FnMut(&mut Polled<T>) -> bool,
) -> Vec<usize> {
    let mut order = Vec::new();
    while order.len() < calls.len() {
        let before = order.len();
        clock.advance(millis(30));
        while let Some((number, call)) = calls.iter_mut().enumerate().rev().find(|(_, call)| call.is_woken()) {
            order.extend(is_done_by_poll(call).then_some(number));
        }
        assert_eq!(order.len(), before + 1, "{order:?}");
    }
    order
}

/// Returns a store whose only permit is taken, and calls that need another one.
async fn used_up_store_and_calls<const N: usize>() -> (HeldStore, [Polled<Decision>; N]) {
    let store = HeldStore::start().await;
    let calls = [(); N].map(|()| Polled::wait(&store.limiter, limit("1/30ms"), LONG_WAIT));
    assert!(store.poll_with_reply(&mut Polled::wait(&store.limiter, limit("1/30ms"), LONG_WAIT)));
    (store, calls)
}

#[tokio::test]
async fn waiters_are_served_in_order() {
    let subject = Subject::memory().await;
    assert!(subject.limiter.check(&key("a"), &limit("1/30ms")).await.expect("answers").is_allowed());
    let mut calls: Vec<_> = (0..8).map(|_| Polled::wait(&subject.limiter, limit("1/30ms"), LONG_WAIT)).collect();
    calls.iter_mut().for_each(Polled::assert_waits);
    let order = admission_order(&subject.clock, &mut calls, |call| call.poll().is_ready());
    assert_eq!(order, (0..8).collect::<Vec<_>>());

    let (store, mut calls) = used_up_store_and_calls::<8>().await;
    for call in &mut calls {
        // Each denial is read before the next call begins.
        assert!(!store.poll_with_reply(call));
    }
    let order = admission_order(&store.clock, &mut calls, |call| store.poll_with_reply(call));
    assert_eq!(order, (0..8).collect::<Vec<_>>());
}

/// All calls are sent before any reply is read, and their denials are read in another order.
#[tokio::test]
async fn denied_calls_wait_in_the_order_of_their_first_polls() {
    let (store, mut calls) = used_up_store_and_calls::<6>().await;
    calls.iter_mut().for_each(Polled::assert_waits);
    for call in [4, 1, 5, 0, 3, 2] {
        store.deliver_reply(&calls[call]);
        calls[call].assert_waits();
    }
    let order = admission_order(&store.clock, &mut calls, |call| store.poll_with_reply(call));
    assert_eq!(order, (0..6).collect::<Vec<_>>());
}

/// No call waits for another call's reply while a permit is free. Otherwise calls would be limited to one per round
/// trip.
#[tokio::test]
async fn call_is_admitted_while_an_earlier_reply_is_in_flight() {
    let store = HeldStore::start().await;
    let [mut first, mut second] = [(); 2].map(|()| Polled::wait(&store.limiter, limit("2/30ms"), LONG_WAIT));
    first.assert_waits();
    assert!(store.poll_with_reply(&mut second));
    assert!(first.finish().is_allowed());
}

/// The next waiter does not check while the first one's check is in flight, however long that takes.
#[tokio::test]
async fn waiter_does_not_check_while_the_first_ones_check_is_in_flight() {
    let (store, [mut first, mut second]) = used_up_store_and_calls().await;
    assert!(!store.poll_with_reply(&mut first) && !store.poll_with_reply(&mut second));
    store.clock.advance(millis(30));
    first.assert_waits();
    for _ in 0..50 {
        store.clock.advance(millis(1));
        second.assert_waits();
    }
    store.deliver_reply(&first);
    first.assert_admitted();
    store.release();
    assert!(second.finish_while_time_passes(&store.clock).is_allowed());
}

/// Two limits share a key and window: a counter that is full for one `max` has room for the other.
#[tokio::test]
async fn waiter_with_a_small_max_does_not_block_one_with_a_large_max() {
    let subject = Subject::memory().await;
    let (small, large) = (limit("1/1m"), limit("1000/1m"));
    assert!(subject.limiter.check(&key("a"), &small).await.expect("answers").is_allowed());
    let mut first = Polled::wait(&subject.limiter, small, LONG_WAIT);
    first.assert_waits();
    let mut second = Polled::wait(&subject.limiter, large, LONG_WAIT);
    second.assert_admitted();
}

#[rate_limited(key = "a", limit = "5/1s", cost = cost, wait = wait)]
async fn costs(cost: u32, wait: Duration) -> Result<(), Denied> {
    Ok(())
}

fn call(limiter: &Limiter, cost: u32, wait: Duration) -> Polled<Result<(), Denied>> {
    let limiter = limiter.clone();
    Polled::new(async move { limiter.scope(costs(cost, wait)).await })
}

/// Two permits are free. A call of cost five waits, and a call of cost one comes after it.
async fn large_and_small_waiter(wait: Duration) -> (Subject, [Polled<Result<(), Denied>>; 2]) {
    let subject = Subject::memory().await;
    assert!(subject.limiter.check_n(&key("a"), &limit("5/1s"), 3).await.expect("answers").is_allowed());
    let mut calls = [call(&subject.limiter, 5, LONG_WAIT), call(&subject.limiter, 1, wait)];
    for call in &mut calls {
        assert!(call.poll().is_pending(), "admitted at once");
    }
    (subject, calls)
}

#[tokio::test]
async fn small_cost_does_not_overtake_a_large_one() {
    let (subject, [mut large, mut small]) = large_and_small_waiter(LONG_WAIT).await;
    subject.clock.advance(millis(999));
    assert!(small.poll().is_pending() && large.poll().is_pending());
    subject.clock.advance(millis(1));
    assert!(small.poll().is_pending());
    assert!(matches!(large.poll(), Poll::Ready(Ok(()))));
    assert!(small.poll().is_pending());
    subject.clock.advance(millis(1_000));
    assert!(matches!(small.poll(), Poll::Ready(Ok(()))));
}

#[tokio::test]
async fn dropping_a_large_cost_wakes_the_small_one_at_once() {
    let (_subject, [large, mut small]) = large_and_small_waiter(LONG_WAIT).await;
    drop(large);
    assert!(small.is_woken());
    assert!(matches!(small.poll(), Poll::Ready(Ok(()))));
}

/// The small call would fit, but another waiter is ahead. Its `retry_after` is when that waiter can be served. Both need
/// six permits, and the wait of the small one is in one window, so it is denied at once.
#[tokio::test]
async fn denial_behind_a_waiter_has_that_waiters_retry_after() {
    let subject = Subject::memory().await;
    assert!(subject.limiter.check_n(&key("a"), &limit("5/1s"), 3).await.expect("answers").is_allowed());
    let mut large = call(&subject.limiter, 5, LONG_WAIT);
    assert!(large.poll().is_pending());
    subject.clock.advance(millis(100));
    let Poll::Ready(Err(denied)) = call(&subject.limiter, 1, millis(999)).poll() else { panic!("no denial") };
    assert_eq!(denied.retry_after(), millis(900));
}

/// The denial at the end of a wait, as the one above.
#[tokio::test]
async fn denial_after_a_wait_behind_a_waiter_has_that_waiters_retry_after() {
    let (subject, [large, mut small]) = large_and_small_waiter(millis(1_500)).await;
    drop(large);
    let mut larger = call(&subject.limiter, 5, LONG_WAIT);
    assert!(matches!(small.poll(), Poll::Ready(Ok(()))));
    assert!(larger.poll().is_pending());
    // The permits of the first call expire now, and that of the small one with the end of the window.
    let mut late = call(&subject.limiter, 1, millis(1_000));
    assert!(late.poll().is_pending());
    subject.clock.advance(millis(999));
    assert!(subject.limiter.check(&key("a"), &limit("5/1s")).await.expect("answers").is_allowed());
    subject.clock.advance(millis(1));
    assert!(larger.poll().is_pending() && late.is_woken());
    let Poll::Ready(Err(denied)) = late.poll() else { panic!("no denial") };
    assert_eq!(denied.retry_after(), millis(999));
}

#[tokio::test]
async fn denial_without_free_permits_has_the_stores_retry_after() {
    let subject = Subject::memory().await;
    let limit = limit("1/1s");
    assert!(subject.limiter.check(&key("a"), &limit).await.expect("answers").is_allowed());
    let mut first = Polled::wait(&subject.limiter, limit, LONG_WAIT);
    first.assert_waits();
    let mut second = Polled::wait(&subject.limiter, limit, millis(1_500));
    second.assert_waits();
    subject.clock.advance(millis(1_000));
    first.assert_admitted();
    subject.clock.advance(millis(500));
    let denied = second.finish().into_result().expect_err("a denial after `max_wait`");
    assert_eq!(denied.retry_after(), millis(500));
}

/// The state in which a waiter is dropped.
#[derive(Clone, Copy, Debug)]
enum WaiterState {
    Asleep,
    Woken,
    PassedOver,
    Requeued,
}

#[tokio::test]
async fn dropping_a_waiter_in_any_state_wakes_the_next() {
    for state in [WaiterState::Asleep, WaiterState::Woken, WaiterState::PassedOver, WaiterState::Requeued] {
        let subject = Subject::memory().await;
        let limit = limit("1/1s");
        assert!(subject.limiter.check(&key("a"), &limit).await.expect("answers").is_allowed());
        let [mut first, mut second] = [(); 2].map(|()| Polled::wait(&subject.limiter, limit, LONG_WAIT));
        first.assert_waits();
        second.assert_waits();
        let advance = |millis| subject.advance_millis(millis);
        match state {
            WaiterState::Asleep => {}
            WaiterState::Woken => advance(1_000),
            WaiterState::PassedOver | WaiterState::Requeued => {
                advance(1_000);
                advance(10);
            }
        }
        if let WaiterState::Requeued = state {
            assert!(subject.limiter.check(&key("a"), &limit).await.expect("answers").is_allowed());
            first.assert_waits();
        }
        drop(first);
        if let WaiterState::Asleep | WaiterState::Requeued = state {
            // The second waiter is first now, and may check at once.
            second.assert_waits();
            advance(1_000);
        }
        assert!(second.is_woken(), "{state:?}");
        second.assert_admitted();
    }
}

/// Calls that are admitted at once, or never polled, leave no queue behind.
#[tokio::test]
async fn unpolled_call_blocks_no_other() {
    let subject = Subject::memory().await;
    let limit = limit("1/1s");
    let mut random = Random::new(1);
    let unpolled = Polled::wait(&subject.limiter, limit, LONG_WAIT);
    for _ in 0..10 {
        subject.advance_millis(1_000 + random.below(1_000));
        Polled::wait(&subject.limiter, limit, LONG_WAIT).assert_admitted();
    }
    drop(unpolled);
}
