//! Tests of waiting calls whose permits are given back, by a refund or a reset, in this process or in another one.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Allowed, Builder, Decision, Denied, Limit, Limiter, OnError, rate_limited};

use super::held_store::{HeldStore, QueueSubject};
use super::polled::Polled;
use crate::support::{Subject, builder_for, key, limit, unpacked_limit};

const LONG_WAIT: Duration = Duration::from_secs(3600);

/// The longest time after which a first waiter checks the store again.
const EXTRA_CHECK_INTERVAL: Duration = Duration::from_millis(1_200);

on_every_store_with_queues!(
    a_refund_wakes_the_first_waiter_and_those_that_it_serves,
    a_reset_wakes_a_waiter,
    permits_that_come_back_wake_every_queue_of_their_counter,
    a_refund_of_too_few_permits_serves_nobody,
);

async fn take(limiter: &Limiter, limit: Limit, cost: u32) -> Allowed {
    limiter.check_n(&key("a"), &limit, cost).await.expect("answers").into_result().expect("permits")
}

/// Polls a call that is woken, until it is done.
fn finish_woken(call: &mut Polled<Decision>) -> Decision {
    assert!(call.is_woken(), "asleep");
    call.finish()
}

async fn a_refund_wakes_the_first_waiter_and_those_that_it_serves(subject: QueueSubject) {
    let (limiter, limit) = (&subject.limiter, limit("3/1h"));
    let taken = take(limiter, limit, 3).await;
    let mut calls = [(); 4].map(|()| Polled::wait(limiter, limit, LONG_WAIT));
    calls.iter_mut().for_each(|call| subject.enter_queue(call));
    limiter.refund_n(&taken, 2).await.expect("refunds");
    assert_eq!(calls.each_ref().map(Polled::is_woken), [true, false, false, false]);
    let [first, second, third, fourth] = &mut calls;
    assert!(finish_woken(first).is_allowed());
    assert!(finish_woken(second).is_allowed());
    // It is the first now. Its check finds no permit, so it sleeps again, and the fourth has not been woken.
    assert!(third.is_woken());
    subject.enter_queue(third);
    assert!(!third.is_woken() && !fourth.is_woken());
    subject.clock.advance(LONG_WAIT);
    assert!(third.finish().is_allowed());
    let _ = fourth.poll();
}

async fn a_reset_wakes_a_waiter(subject: QueueSubject) {
    let (limiter, limit) = (&subject.limiter, limit("1/1h"));
    take(limiter, limit, 1).await;
    let mut call = Polled::wait(limiter, limit, LONG_WAIT);
    subject.enter_queue(&mut call);
    limiter.reset(&key("a"), &limit).await.expect("resets");
    assert!(finish_woken(&mut call).is_allowed());
}

/// Another `max`, and a call with several limits.
async fn permits_that_come_back_wake_every_queue_of_their_counter(subject: QueueSubject) {
    #[rate_limited(key = "a", limits = ["9/1h", "100/1m"], wait = "1h")]
    async fn several() -> Result<(), Denied> {
        Ok(())
    }

    let limiter = &subject.limiter;
    let taken = take(limiter, unpacked_limit("9/1h"), 9).await;
    let mut calls = ["5/1h", "9/1h"].map(|text| Polled::wait(limiter, unpacked_limit(text), LONG_WAIT));
    calls.iter_mut().for_each(|call| subject.enter_queue(call));
    let scoped = limiter.clone();
    let mut several = Polled::new(async move { scoped.scope(several()).await });
    subject.enter_queue(&mut several);
    let mut other = Polled::new({
        let limiter = limiter.clone();
        async move { limiter.wait(&key("b"), &unpacked_limit("9/1h"), LONG_WAIT).await }
    });
    assert!(limiter.check_n(&key("b"), &unpacked_limit("9/1h"), 9).await.expect("answers").is_allowed());
    subject.enter_queue(&mut other);
    limiter.refund(&taken).await.expect("refunds");
    assert!(calls.iter_mut().all(|call| finish_woken(call).is_allowed()));
    assert!(several.is_woken() && several.finish().is_ok());
    assert!(!other.is_woken(), "its counter has not changed");
}

async fn a_refund_of_too_few_permits_serves_nobody(subject: QueueSubject) {
    let (limiter, limit) = (&subject.limiter, limit("10/1h"));
    let taken = take(limiter, limit, 10).await;
    let mut call = Polled::new({
        let limiter = limiter.clone();
        async move { limiter.wait_n(&key("a"), &limit, 5, LONG_WAIT).await.expect("answers") }
    });
    subject.enter_queue(&mut call);
    for _ in 0..4 {
        limiter.refund_n(&taken, 1).await.expect("refunds");
        assert!(call.is_woken());
        subject.enter_queue(&mut call);
        assert!(!call.is_woken());
    }
    limiter.refund_n(&taken, 1).await.expect("refunds");
    assert!(finish_woken(&mut call).is_allowed());
}

/// The permits come back while the reply that denies the call is on its way: the call is in no queue yet.
#[tokio::test]
async fn a_refund_before_a_denial_is_read_wakes_the_call() {
    let store = HeldStore::start().await;
    let taker = {
        let limiter = store.limiter.clone();
        async move { limiter.check(&key("a"), &limit("1/1h")).await.expect("answers").into_result().expect("a permit") }
    };
    let mut taker = Polled::new(taker);
    assert!(taker.poll().is_pending());
    store.deliver_reply(&taker);
    let taken = taker.finish();
    let mut call = Polled::wait(&store.limiter, limit("1/1h"), LONG_WAIT);
    call.assert_waits();
    store.deliver_reply(&call);
    let refund = {
        let limiter = store.limiter.clone();
        async move { limiter.refund(&taken).await }
    };
    let mut refund = Polled::new(refund);
    assert!(refund.poll().is_pending());
    store.deliver_reply(&refund);
    refund.finish().expect("refunds");
    // It reads its denial now, and checks again at once.
    call.assert_waits();
    store.release();
    assert!(call.finish().is_allowed());
}

/// One waiter is woken by a reset, not all of them. Each call that is served wakes the next one.
#[tokio::test]
async fn a_reset_wakes_one_of_100_000_waiters() {
    let Subject { limiter, .. } = &Subject::memory().await;
    let limit = limit("100/1h");
    take(limiter, limit, 100).await;
    let wait = LONG_WAIT * 2_000;
    let mut calls: Vec<_> = (0..100_000).map(|_| Polled::wait(limiter, limit, wait)).collect();
    calls.iter_mut().for_each(Polled::assert_waits);
    limiter.reset(&key("a"), &limit).await.expect("resets");
    assert_eq!(calls.iter().filter(|call| call.is_woken()).count(), 1);
    let mut polls = 0;
    while let Some(call) = calls.iter_mut().skip(polls).find(|call| call.is_woken()) {
        polls += 1;
        let _ = call.poll();
    }
    assert_eq!(polls, 101, "100 are served, and the next one is denied");
    // Waiters are dropped from the last to the first, so that none is woken by the drop of the one before it.
    while calls.pop().is_some() {}
}

/// Script calls on Redis are those of the calls that are served, and one more.
#[tokio::test]
async fn a_reset_under_many_waiters_makes_few_script_calls() {
    const WAITERS: usize = 200;
    let server = RedisServer::start();
    let subject = QueueSubject::on(&server, |builder| builder).await;
    let (limiter, limit) = (&subject.limiter, limit("5/1h"));
    take(limiter, limit, 5).await;
    let mut calls: Vec<_> = (0..WAITERS).map(|_| Polled::wait(limiter, limit, LONG_WAIT * 1_000)).collect();
    calls.iter_mut().for_each(|call| subject.enter_queue(call));
    let before = server.script_calls();
    limiter.reset(&key("a"), &limit).await.expect("resets");
    for call in &mut calls[..5] {
        assert!(finish_woken(call).is_allowed());
    }
    subject.enter_queue(&mut calls[5]);
    assert!(calls[6..].iter().all(|call| !call.is_woken()));
    let made = server.script_calls() - before;
    assert!(made <= 7, "{made} script calls: one reset, five admissions and one denial");
}

/// A refund by another process is not visible here. The first waiter checks again each second.
#[tokio::test]
async fn a_refund_by_another_process_serves_the_first_waiter_within_its_interval() {
    let (server, prefix) = (RedisServer::timeless(), unique("test"));
    let here = QueueSubject::on(server, |builder| builder.prefix(&prefix)).await;
    let other = builder_for(server).prefix(&prefix).clock(here.clock.clone()).connect().await.expect("connects");
    let limit = limit("1/1h");
    let taken = take(&other, limit, 1).await;
    let mut calls = [(); 2].map(|()| Polled::wait(&here.limiter, limit, LONG_WAIT));
    calls.iter_mut().for_each(|call| here.enter_queue(call));
    let [first, second] = &mut calls;
    for _ in 0..3 {
        // An extra check without a permit. The call then sleeps for another interval.
        here.clock.advance(EXTRA_CHECK_INTERVAL);
        assert!(first.is_woken() && !second.is_woken());
        here.enter_queue(first);
        assert!(!first.is_woken());
    }
    other.refund(&taken).await.expect("refunds");
    assert!(!first.is_woken());
    here.clock.advance(EXTRA_CHECK_INTERVAL);
    assert!(finish_woken(first).is_allowed());
    second.assert_waits();
}

/// A failed extra check is no reason for the call to fail: its own check comes later.
#[tokio::test]
async fn a_failed_extra_check_changes_nothing_for_the_call() {
    let (server, failures) = (RedisServer::start(), Arc::new(OnceLock::new()));
    let failed = Arc::clone(&failures);
    let configure =
        |builder: Builder| builder.on_error(OnError::Closed).on_failure(move |error| _ = failed.set(error.clone()));
    let subject = QueueSubject::on(&server, configure).await;
    take(&subject.limiter, limit("1/1h"), 1).await;
    let mut call = Polled::wait(&subject.limiter, limit("1/1h"), LONG_WAIT);
    subject.enter_queue(&mut call);
    drop(server);
    for _ in 0..3 {
        subject.clock.advance(EXTRA_CHECK_INTERVAL);
        assert!(call.is_woken());
        // It sleeps again, at once or after the failure of its check.
        for _ in 0..50 {
            call.assert_waits();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(failures.get().is_none(), "an observer got {:?}", failures.get());
    subject.clock.advance(LONG_WAIT);
    assert!(call.finish().is_denied(), "its own check fails, and the policy decides");
}

/// The observer of an admission gives the permit back, while the next waiter is being woken.
#[tokio::test]
async fn an_observer_that_refunds_serves_every_waiter() {
    const WAITERS: usize = 100;
    let limiter: Arc<OnceLock<Limiter>> = Arc::default();
    let refunding = Arc::clone(&limiter);
    let builder = Limiter::builder().on_allowed(move |allowed| {
        if let Some(limiter) = refunding.get() {
            limiter.refund_blocking(allowed).expect("refunds");
        }
    });
    let built = builder.build().expect("builds");
    let limit = limit("1/1h");
    let taken = take(&built, limit, 1).await;
    let calls: Vec<_> = (0..WAITERS)
        .map(|_| {
            let limiter = built.clone();
            tokio::spawn(async move { limiter.wait(&key("a"), &limit, LONG_WAIT * 1_000).await.expect("answers") })
        })
        .collect();
    tokio::task::yield_now().await;
    let _ = limiter.set(built.clone());
    built.refund(&taken).await.expect("refunds");
    for call in calls {
        let done = tokio::time::timeout(Duration::from_secs(60), call).await.expect("a call is never woken");
        assert!(done.expect("no panic").is_allowed());
    }
}
