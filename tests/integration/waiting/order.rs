//! Waiters are served in the order of their calls, whatever they cost and in whatever order their denials are read.

use std::task::Poll;
use std::time::Duration;

use limiter_testkit::Random;
use rate_limited::{Decision, Denied, Limiter, ManualClock, rate_limited};

use super::by_hand::Polled;
use super::held::HeldStore;
use crate::support::{Subject, key, limit};

const LONG: Duration = Duration::from_secs(3600);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Lets one waiter after the other be admitted, and returns their order. Of those that are woken the last is polled first.
fn served<T>(
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

/// A store whose one permit is taken, and calls for another one.
async fn held_calls<const N: usize>() -> (HeldStore, [Polled<Decision>; N]) {
    let store = HeldStore::start().await;
    let calls = [(); N].map(|()| Polled::wait(&store.limiter, limit("1/30ms"), LONG));
    assert!(store.ask(&mut Polled::wait(&store.limiter, limit("1/30ms"), LONG)));
    (store, calls)
}

#[tokio::test]
async fn those_who_wait_are_served_in_order() {
    let subject = Subject::memory().await;
    assert!(subject.limiter.check(&key("a"), &limit("1/30ms")).await.expect("answers").is_allowed());
    let mut calls: Vec<_> = (0..8).map(|_| Polled::wait(&subject.limiter, limit("1/30ms"), LONG)).collect();
    calls.iter_mut().for_each(Polled::waits);
    let order = served(&subject.clock, &mut calls, |call| call.poll().is_ready());
    assert_eq!(order, (0..8).collect::<Vec<_>>());

    let (store, mut calls) = held_calls::<8>().await;
    for call in &mut calls {
        // Each denial is read before the next call begins.
        assert!(!store.ask(call));
    }
    let order = served(&store.clock, &mut calls, |call| store.ask(call));
    assert_eq!(order, (0..8).collect::<Vec<_>>());
}

/// All ask before any of them knows that it is denied, and read their denials in some other order.
#[tokio::test]
async fn calls_that_were_denied_wait_in_the_order_of_their_first_polls() {
    let (store, mut calls) = held_calls::<6>().await;
    calls.iter_mut().for_each(Polled::waits);
    for call in [4, 1, 5, 0, 3, 2] {
        store.answer(&calls[call]);
        calls[call].waits();
    }
    let order = served(&store.clock, &mut calls, |call| store.ask(call));
    assert_eq!(order, (0..6).collect::<Vec<_>>());
}

/// While a permit is free no call waits for another one's answer, or there would be one wait for each round trip.
#[tokio::test]
async fn a_call_is_admitted_while_the_answer_of_an_earlier_one_is_on_its_way() {
    let store = HeldStore::start().await;
    let [mut first, mut second] = [(); 2].map(|()| Polled::wait(&store.limiter, limit("2/30ms"), LONG));
    first.waits();
    assert!(store.ask(&mut second));
    assert!(first.finish().is_allowed());
}

/// The first waiter's check is on its way: however long that takes, its turn is not over.
#[tokio::test]
async fn a_waiter_does_not_check_before_the_first_one_has_its_answer() {
    let (store, [mut first, mut second]) = held_calls().await;
    assert!(!store.ask(&mut first) && !store.ask(&mut second));
    store.clock.advance(millis(30));
    first.waits();
    for _ in 0..50 {
        store.clock.advance(millis(1));
        second.waits();
    }
    store.answer(&first);
    first.is_admitted();
    store.release();
    assert!(second.finish_while_time_passes(&store.clock).is_allowed());
}

/// The same key and window, but another `max`: what is full for one is nearly empty for the other.
#[tokio::test]
async fn a_waiter_with_a_small_max_does_not_block_one_with_a_large_max() {
    let subject = Subject::memory().await;
    let (small, large) = (limit("1/1m"), limit("1000/1m"));
    assert!(subject.limiter.check(&key("a"), &small).await.expect("answers").is_allowed());
    let mut first = Polled::wait(&subject.limiter, small, LONG);
    first.waits();
    let mut second = Polled::wait(&subject.limiter, large, LONG);
    second.is_admitted();
}

#[rate_limited(key = "a", limit = "5/1s", cost = cost, wait = wait)]
async fn costs(cost: u32, wait: Duration) -> Result<(), Denied> {
    Ok(())
}

fn call(limiter: &Limiter, cost: u32, wait: Duration) -> Polled<Result<(), Denied>> {
    let limiter = limiter.clone();
    Polled::new(async move { limiter.scope(costs(cost, wait)).await })
}

/// Two permits are left, one that costs five waits, and one that costs one comes after it.
async fn a_large_one_and_a_small_one(wait: Duration) -> (Subject, [Polled<Result<(), Denied>>; 2]) {
    let subject = Subject::memory().await;
    assert!(subject.limiter.check_n(&key("a"), &limit("5/1s"), 3).await.expect("answers").is_allowed());
    let mut calls = [call(&subject.limiter, 5, LONG), call(&subject.limiter, 1, wait)];
    for call in &mut calls {
        assert!(call.poll().is_pending(), "admitted at once");
    }
    (subject, calls)
}

#[tokio::test]
async fn a_large_cost_is_not_passed_by_a_small_one() {
    let (subject, [mut large, mut small]) = a_large_one_and_a_small_one(LONG).await;
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
async fn a_large_cost_that_is_dropped_lets_a_small_one_go_on_at_once() {
    let (_subject, [large, mut small]) = a_large_one_and_a_small_one(LONG).await;
    drop(large);
    assert!(small.is_woken());
    assert!(matches!(small.poll(), Poll::Ready(Ok(()))));
}

/// There is room for it, but others are ahead: it may come again when they have gone on.
#[tokio::test]
async fn a_denial_after_a_wait_with_room_names_the_retry_of_the_first_waiter() {
    let (subject, [_large, mut small]) = a_large_one_and_a_small_one(millis(100)).await;
    subject.clock.advance(millis(100));
    assert!(small.is_woken());
    let Poll::Ready(Err(denied)) = small.poll() else { panic!("no denial") };
    assert_eq!(denied.retry_after(), millis(900));
}

#[tokio::test]
async fn a_denial_after_a_wait_without_room_names_the_stores_retry() {
    let subject = Subject::memory().await;
    let limit = limit("1/1s");
    assert!(subject.limiter.check(&key("a"), &limit).await.expect("answers").is_allowed());
    let mut first = Polled::wait(&subject.limiter, limit, LONG);
    first.waits();
    let mut second = Polled::wait(&subject.limiter, limit, millis(1_500));
    second.waits();
    subject.clock.advance(millis(1_000));
    first.is_admitted();
    subject.clock.advance(millis(500));
    let denied = second.finish().into_result().expect_err("its wait is over");
    assert_eq!(denied.retry_after(), millis(500));
}

/// Where a waiter is dropped.
#[derive(Clone, Copy, Debug)]
enum At {
    Asleep,
    Woken,
    PassedOver,
    Back,
}

#[tokio::test]
async fn a_waiter_that_is_dropped_anywhere_lets_the_next_one_go_on() {
    for at in [At::Asleep, At::Woken, At::PassedOver, At::Back] {
        let subject = Subject::memory().await;
        let limit = limit("1/1s");
        assert!(subject.limiter.check(&key("a"), &limit).await.expect("answers").is_allowed());
        let [mut first, mut second] = [(); 2].map(|()| Polled::wait(&subject.limiter, limit, LONG));
        first.waits();
        second.waits();
        let advance = |millis| subject.advance_millis(millis);
        match at {
            At::Asleep => {}
            At::Woken => advance(1_000),
            At::PassedOver | At::Back => {
                advance(1_000);
                advance(10);
            }
        }
        if let At::Back = at {
            assert!(subject.limiter.check(&key("a"), &limit).await.expect("answers").is_allowed());
            first.waits();
        }
        drop(first);
        if let At::Asleep | At::Back = at {
            // It has the first place now, and may check at once.
            second.waits();
            advance(1_000);
        }
        assert!(second.is_woken(), "{at:?}");
        second.is_admitted();
    }
}

/// A call that neither waits nor is denied leaves no queue, and neither does one that was dropped before its first poll.
#[tokio::test]
async fn nobody_waits_behind_a_call_that_was_never_polled() {
    let subject = Subject::memory().await;
    let limit = limit("1/1s");
    let mut random = Random::new(1);
    let never = Polled::wait(&subject.limiter, limit, LONG);
    for _ in 0..10 {
        subject.advance_millis(1_000 + random.below(1_000));
        Polled::wait(&subject.limiter, limit, LONG).is_admitted();
    }
    drop(never);
}
