//! Tests of calls that wait while their rules change: each attempt is decided by one state of the rules.

use std::task::Poll;
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Decision, Denied, Limiter, RuleSet, rate_limited};

use super::held_store::QueueSubject;
use super::polled::Polled;
use crate::support::{Subject, key, limit, unpacked_limit};

const LONG_WAIT: Duration = Duration::from_secs(3600);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Replaces the rules by one for the name and the key `a`.
fn set(limiter: &Limiter, settings: &str) {
    let rules: RuleSet = format!("[rules.a]\nkey = 'a'\n{settings}\n").parse().expect("rules");
    limiter.set_rules(rules).expect("valid rules");
}

fn wait(limiter: &Limiter, max_wait: Duration) -> Polled<Decision> {
    let limiter = limiter.clone();
    Polled::new(async move { limiter.named("a").wait(&key("a"), &limit("1/1d"), max_wait).await.expect("answers") })
}

async fn take(limiter: &Limiter, permits: u32) {
    let decision = limiter.named("a").check_n(&key("a"), &limit("1/1d"), permits).await;
    assert!(decision.expect("answers").is_allowed());
}

/// Returns a limiter under a rule whose permit is taken, and a call that waits for the next one.
async fn waiting(subject: &QueueSubject, settings: &str) -> Polled<Decision> {
    set(&subject.limiter, settings);
    take(&subject.limiter, 1).await;
    let mut call = wait(&subject.limiter, LONG_WAIT);
    subject.enter_queue(&mut call);
    call
}

/// Returns calls that wait in one queue, under a rule of `1/1h` whose permit is taken.
async fn in_one_queue<const N: usize>(subject: &QueueSubject) -> [Polled<Decision>; N] {
    set(&subject.limiter, "limit = '1/1h'");
    take(&subject.limiter, 1).await;
    let mut calls = std::array::from_fn(|_| wait(&subject.limiter, 4 * LONG_WAIT));
    calls.iter_mut().for_each(|call| subject.enter_queue(call));
    calls
}

on_every_store_with_queues!(
    a_raised_limit_serves_a_waiting_call_at_once,
    a_waiting_call_is_decided_by_a_changed_mode_at_once,
    no_more_calls_pass_than_the_lowered_limit_allows,
    calls_keep_their_order_and_the_end_of_their_wait,
    calls_keep_their_order_in_whatever_order_they_move_to_another_counter,
    calls_that_are_not_polled_delay_those_that_have_moved_by_10_ms,
    a_call_that_ends_delays_none_that_has_moved,
    a_wait_that_ends_while_others_move_is_served,
    rules_that_go_leave_the_limit_of_the_call,
);

async fn a_raised_limit_serves_a_waiting_call_at_once(subject: QueueSubject) {
    let mut call = waiting(&subject, "limit = '1/1h'").await;
    set(&subject.limiter, "limit = '2/1h'");
    assert!(call.is_woken());
    assert!(call.finish().is_allowed());
}

async fn a_waiting_call_is_decided_by_a_changed_mode_at_once(subject: QueueSubject) {
    for (mode, is_allowed) in [("deny", false), ("off", true), ("shadow", true)] {
        subject.advance_millis(3_600_000);
        let mut call = waiting(&subject, "limit = '1/1h'").await;
        set(&subject.limiter, &format!("limit = '1/1h'\nmode = '{mode}'"));
        assert!(call.is_woken(), "{mode}");
        assert_eq!(call.finish().is_allowed(), is_allowed, "{mode}");
    }
}

async fn no_more_calls_pass_than_the_lowered_limit_allows(subject: QueueSubject) {
    set(&subject.limiter, "limit = '30/1m'");
    take(&subject.limiter, 30).await;
    let mut calls: Vec<_> = (0..30).map(|_| wait(&subject.limiter, LONG_WAIT)).collect();
    calls.iter_mut().for_each(|call| subject.enter_queue(call));
    set(&subject.limiter, "limit = '4/1m'");
    subject.advance_millis(60_000);
    // The first four are served. The fifth finds no permit, and the others do not check.
    for call in &mut calls[..4] {
        assert!(call.finish().is_allowed());
    }
    subject.enter_queue(&mut calls[4]);
    calls[5..].iter_mut().for_each(Polled::assert_waits);
    assert!(calls.iter().all(|call| !call.is_woken()));
}

async fn calls_keep_their_order_and_the_end_of_their_wait(subject: QueueSubject) {
    set(&subject.limiter, "limit = '10/1m'");
    take(&subject.limiter, 10).await;
    let mut calls =
        [5_000_000, 6_000_000, 80_000, 7_000_000].map(|wait_millis| wait(&subject.limiter, millis(wait_millis)));
    calls.iter_mut().for_each(|call| subject.enter_queue(call));
    subject.advance_millis(30_000);
    set(&subject.limiter, "limit = '12/1m'");
    let [first, second, third, fourth] = &mut calls;
    assert!(first.finish().is_allowed());
    assert!(second.finish().is_allowed());
    third.assert_waits();
    fourth.assert_waits();
    // The next permit comes after the end that its wait had from its beginning.
    set(&subject.limiter, "limit = '1/1m'");
    assert!(third.finish().is_denied());
    fourth.assert_waits();
}

async fn calls_keep_their_order_in_whatever_order_they_move_to_another_counter(subject: QueueSubject) {
    let mut calls = in_one_queue::<3>(&subject).await;
    // The count of another window is empty.
    set(&subject.limiter, "limit = '1/2s'");
    let mut later = wait(&subject.limiter, 4 * LONG_WAIT);
    subject.enter_queue(&mut later);
    calls.iter_mut().rev().take(2).for_each(Polled::assert_waits);
    let [first, second, third] = &mut calls;
    assert!(first.finish().is_allowed());
    subject.enter_queue(second);
    for next in [second, third, &mut later] {
        subject.advance_millis(2_000);
        assert!(next.is_woken() && next.finish().is_allowed());
    }
}

async fn calls_that_are_not_polled_delay_those_that_have_moved_by_10_ms(subject: QueueSubject) {
    let mut calls = in_one_queue::<3>(&subject).await;
    set(&subject.limiter, "limit = '1/2s'");
    let [first, second, third] = &mut calls;
    second.assert_waits();
    third.assert_waits();
    subject.advance_millis(10);
    assert!(second.is_woken() && second.finish().is_allowed());
    subject.enter_queue(first);
    subject.advance_millis(2_000);
    assert!(first.is_woken() && first.finish().is_allowed());
}

async fn a_call_that_ends_delays_none_that_has_moved(subject: QueueSubject) {
    let [first, mut second] = in_one_queue(&subject).await;
    set(&subject.limiter, "limit = '1/2s'");
    second.assert_waits();
    drop(first);
    assert!(second.is_woken() && second.finish().is_allowed());
}

async fn a_wait_that_ends_while_others_move_is_served(subject: QueueSubject) {
    let _moving = waiting(&subject, "limit = '1/1h'").await;
    set(&subject.limiter, "limit = '1/2s'");
    let limiter = subject.limiter.clone();
    let other = async move { limiter.wait(&key("b"), &limit("5/1h"), millis(9)).await.expect("answers") };
    assert!(Polled::new(other).finish().is_allowed());
}

async fn rules_that_go_leave_the_limit_of_the_call(subject: QueueSubject) {
    let mut call = waiting(&subject, "limit = '1/1h'").await;
    // The limit of the call itself has another window, and so another counter.
    subject.limiter.set_rules(RuleSet::new()).expect("no rules");
    assert!(call.is_woken());
    assert!(call.finish().is_allowed());
}

#[rate_limited(key = "a", name = "a", limit = "1/1h", wait = "1h")]
async fn annotated() -> Result<(), Denied> {
    Ok(())
}

#[tokio::test]
async fn an_annotated_call_that_waits_follows_rules_that_come_later() {
    let Subject { limiter, .. } = Subject::memory().await;
    assert!(limiter.scope(annotated()).await.is_ok());
    let scoped = limiter.clone();
    let mut call = Polled::new(async move { scoped.scope(annotated()).await });
    assert!(call.poll().is_pending());
    set(&limiter, "limit = '2/1h'");
    assert!(call.is_woken());
    assert!(matches!(call.poll(), Poll::Ready(Ok(()))));
}

/// Another rule, and calls without rules. They go on as before, without a call to the store.
#[tokio::test]
async fn a_change_of_other_rules_moves_no_call() {
    let server = RedisServer::start();
    let subject = QueueSubject::on(&server, |builder| builder).await;
    let limiter = &subject.limiter;
    set(limiter, "limit = '1/1h'");
    take(limiter, 1).await;
    let mut calls = [wait(limiter, LONG_WAIT), Polled::wait(limiter, unpacked_limit("1/1h"), LONG_WAIT)];
    calls.iter_mut().for_each(|call| subject.enter_queue(call));
    let before = server.script_calls();
    set(limiter, "limit = '1/1h'\n[rules.b]\nkey = 'b'\nlimit = '5/1h'");
    calls.iter_mut().for_each(Polled::assert_waits);
    assert_eq!(server.script_calls(), before);
    limiter.reset(&key("a"), &unpacked_limit("1/1h")).await.expect("resets");
    assert!(calls[0].is_woken() && !calls[1].is_woken(), "they are not in one queue any more, or not in order");
}

/// Waiting calls are woken at most ten times a second, and end by the rules of the last change.
#[tokio::test]
async fn a_thousand_changes_a_second_wake_a_waiting_call_ten_times() {
    let subject = Subject::memory().await;
    set(&subject.limiter, "limit = '1/1h'");
    take(&subject.limiter, 1).await;
    let mut calls: Vec<_> = (0..100).map(|_| wait(&subject.limiter, LONG_WAIT * 1_000)).collect();
    calls.iter_mut().for_each(Polled::assert_waits);
    let mut wake_ups = [0; 2];
    for change in 0..1_000 {
        set(&subject.limiter, if change % 2 == 0 { "limit = '1/1h'\ndeadline = '50ms'" } else { "limit = '1/1h'" });
        subject.advance_millis(1);
        for (index, call) in calls.iter_mut().enumerate() {
            if call.is_woken() && call.poll().is_pending() {
                wake_ups[usize::from(index > 0)] += 1;
            }
        }
    }
    assert!(wake_ups[1] <= 99 * 12, "{wake_ups:?}");
    set(&subject.limiter, "mode = 'off'");
    subject.advance_millis(100);
    let is_done = |call: &mut Polled<Decision>| matches!(call.poll(), Poll::Ready(Decision::Allowed(_)));
    assert_eq!(calls.iter_mut().filter(|call| call.is_woken()).map(is_done).filter(|done| *done).count(), 100);
}

#[tokio::test]
async fn a_turn_of_a_leaky_bucket_stays() {
    let subject = Subject::memory().await;
    set(&subject.limiter, "limit = '1/1m'\nalgorithm = 'leaky_bucket'\nburst = 5");
    take(&subject.limiter, 1).await;
    let mut call = wait(&subject.limiter, LONG_WAIT);
    call.assert_waits();
    set(&subject.limiter, "mode = 'deny'");
    assert!(!call.is_woken());
    subject.advance_millis(60_000);
    call.assert_admitted();
}
