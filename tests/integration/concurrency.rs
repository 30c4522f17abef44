//! Limits of calls at once: slots that calls hold until they end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{
    Denied, Entered, Entry, Error, ErrorKind, Key, Limit, Limiter, Mode, OnError, Rule, RuleSet, Source, rate_limited,
};
use tokio::sync::{Barrier, Notify};
use tokio::task::JoinSet;

use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, builder_for, key, limit, unpacked_limit, with_every_limiter};

mod faults;
mod processes;

with_every_limiter!(
    as_many_calls_run_at_once_as_the_limit,
    a_denial_says_when_to_try_again,
    a_cost_takes_as_many_slots,
    several_limits_hold_all_or_none,
    a_denial_by_a_window_gives_the_slot_back,
    methods_that_only_decide_refuse_slots,
    waiting_calls_enter_in_their_order,
    a_wait_ends_at_its_deadline,
    a_call_that_waits_no_longer_takes_nothing,
    a_raised_limit_lets_more_in_and_a_lowered_one_nobody_until_it_fits,
    a_peek_shows_free_slots_and_a_reset_frees_none,
    rules_add_and_remove_slots_at_run_time,
    a_rule_in_shadow_mode_denies_nothing,
    an_annotated_call_holds_its_slot_until_it_ends,
    many_tasks_never_exceed_the_limit,
);

fn concurrent(max: u32) -> Limit {
    Limit::concurrent(max).expect("valid")
}

async fn entered(limiter: &Limiter, key: &Key, limit: &Limit) -> Entered {
    limiter.enter(key, limit).await.expect("a decision").entered().expect("a free slot")
}

async fn denied(limiter: &Limiter, key: &Key, limit: &Limit) -> Denied {
    limiter.enter(key, limit).await.expect("a decision").into_result().expect_err("no slot is free")
}

async fn as_many_calls_run_at_once_as_the_limit(limiter: Limiter) {
    let (key, limit) = (key("a"), concurrent(3));
    for _ in 0..3 {
        let mut held = Vec::new();
        for left in (0..3).rev() {
            held.push(entered(&limiter, &key, &limit).await);
            assert!(held[0].allowed().limit() == limit && held.len() == 3 - left);
        }
        let no_more = denied(&limiter, &key, &limit).await;
        assert_eq!((no_more.remaining(), no_more.source(), no_more.is_final()), (0, Source::Store, false));
        held.pop().expect("three").leave();
        held.push(entered(&limiter, &key, &limit).await);
        assert!(denied(&limiter, &key, &limit).await.limit().is_concurrent());
        // Another key has slots of its own.
        drop(entered(&limiter, &self::key("b"), &limit).await);
    }
}

async fn a_denial_says_when_to_try_again(limiter: Limiter) {
    let (key, limit) = (key("a"), concurrent(1));
    let held = entered(&limiter, &key, &limit).await;
    assert_eq!(denied(&limiter, &key, &limit).await.retry_after(), Duration::from_millis(100));
    drop(held);
    let _held = entered(&limiter, &key, &limit).await;
    let retry_after = denied(&limiter, &key, &limit).await.retry_after();
    assert!((Duration::from_millis(1)..=Duration::from_secs(60)).contains(&retry_after), "{retry_after:?}");
}

async fn a_cost_takes_as_many_slots(limiter: Limiter) {
    let (key, limit) = (key("a"), concurrent(5));
    let enter = async |cost| limiter.enter_n(&key, &limit, cost).await.expect("a decision");
    let three = enter(3).await.entered().expect("five are free");
    assert!(enter(3).await.is_denied());
    let two = enter(2).await.entered().expect("two are free");
    assert!(enter(1).await.is_denied() && enter(0).await.is_entered());
    drop(three);
    let too_many = enter(6).await.into_result().expect_err("more than there are");
    assert!(too_many.is_final());
    assert!(enter(3).await.is_entered());
    drop(two);
    let five = enter(5).await;
    assert!(five.is_entered() && enter(1).await.is_denied());
}

async fn several_limits_hold_all_or_none(limiter: Limiter) {
    let (all, one) = (key("all"), key("one"));
    let (two, single) = (concurrent(2), concurrent(1));
    let enter = async |user: &Key| limiter.enter_all(&[(&all, &two, 1), (user, &single, 1)]).await.expect("a decision");
    let first = enter(&one).await;
    assert!(first.is_entered());
    let again = enter(&one).await.into_result().expect_err("the user's slot is taken");
    assert_eq!(again.limit(), single);
    // The denial has taken no slot of the other limit.
    let second = enter(&key("two")).await;
    assert!(second.is_entered());
    let third = enter(&key("three")).await.into_result().expect_err("all slots are taken");
    assert_eq!(third.limit(), two);
    drop((first, second));
    assert!(enter(&one).await.is_entered());
    // On one key the least limit holds, and costs add up.
    let both = limiter.enter_all(&[(&all, &two, 1), (&all, &two, 1)]).await.expect("a decision");
    assert!(both.is_entered());
    assert!(limiter.enter(&all, &two).await.expect("a decision").is_denied());
}

async fn a_denial_by_a_window_gives_the_slot_back(limiter: Limiter) {
    let (slots, rate) = (key("slots"), key("rate"));
    let (one, window) = (concurrent(1), limit("2/1h"));
    let enter = async || limiter.enter_all(&[(&rate, &window, 1), (&slots, &one, 1)]).await.expect("a decision");
    let first = enter().await.entered().expect("both are free");
    assert_eq!(first.allowed().limit(), window);
    let no_slot = enter().await.into_result().expect_err("the slot is taken");
    assert_eq!(no_slot.limit(), one);
    drop(first);
    drop(enter().await.entered().expect("the denial took no permit"));
    let no_permit = enter().await.into_result().expect_err("no permit is left");
    assert_eq!(no_permit.limit(), window);
    let _held = entered(&limiter, &slots, &one).await;
}

async fn methods_that_only_decide_refuse_slots(limiter: Limiter) {
    let (key, limit) = (key("a"), concurrent(1));
    let named = limiter.named("only decides");
    let results = [
        limiter.check(&key, &limit).await.map(drop),
        limiter.check_n(&key, &limit, 1).await.map(drop),
        limiter.check_all(&[(&key, &limit, 1)]).await.map(drop),
        limiter.wait(&key, &limit, Duration::ZERO).await.map(drop),
        limiter.wait(&key, &limit, Duration::from_secs(1)).await.map(drop),
        limiter.check_postpaid(&key, &limit).await.map(drop),
        limiter.charge(&key, &limit, 1).await.map(drop),
        named.check(&key, &limit).await.map(drop),
        named.wait(&key, &limit, Duration::from_secs(1)).await.map(drop),
        named.check_postpaid(&key, &limit).await.map(drop),
        named.charge(&key, &limit, 1).await.map(drop),
    ];
    for (index, result) in results.into_iter().enumerate() {
        let error = result.expect_err(&index.to_string());
        assert_eq!(error.kind(), ErrorKind::Config, "{index}");
        assert!(error.to_string().contains("`enter`"), "{index}: {error}");
    }
    assert!(limiter.enter(&key, &limit).await.expect("a decision").is_entered());
}

async fn waiting_calls_enter_in_their_order(limiter: Limiter) {
    let (key, limit) = (key("a"), concurrent(1));
    let held = entered(&limiter, &key, &limit).await;
    let order = Arc::new(AtomicU32::new(0));
    let mut waiting = JoinSet::new();
    for number in 0..5 {
        let (limiter, key, order) = (limiter.clone(), key.clone(), Arc::clone(&order));
        let notify = Arc::new(Notify::new());
        let told = Arc::clone(&notify);
        waiting.spawn(async move {
            let mut enter = pin!(limiter.enter_wait(&key, &limit, LONG_DEADLINE));
            poll_fn(|context| {
                assert!(enter.as_mut().poll(context).is_pending(), "the slot is taken");
                Poll::Ready(())
            })
            .await;
            told.notify_one();
            let entered = enter.await.expect("a decision").entered().expect("a slot within the wait");
            assert_eq!(order.fetch_add(1, Ordering::Relaxed), number);
            drop(entered);
        });
        notify.notified().await;
    }
    // A call that does not wait is behind them.
    assert!(denied(&limiter, &key, &limit).await.retry_after() >= Duration::from_millis(1));
    drop(held);
    waiting.join_all().await;
    assert_eq!(order.load(Ordering::Relaxed), 5);
}

async fn a_wait_ends_at_its_deadline(limiter: Limiter) {
    let (key, limit) = (key("a"), concurrent(1));
    let _held = entered(&limiter, &key, &limit).await;
    let (began, wait) = (Instant::now(), Duration::from_millis(30));
    let entry = limiter.enter_wait(&key, &limit, wait).await.expect("a decision");
    assert!(entry.is_denied() && began.elapsed() >= wait);
    assert!(limiter.enter_wait(&key, &limit, Duration::ZERO).await.expect("a decision").is_denied());
}

async fn a_call_that_waits_no_longer_takes_nothing(limiter: Limiter) {
    let (key, limit) = (key("a"), concurrent(2));
    for polls in 1..4 {
        let held = limiter.enter_n(&key, &limit, 2).await.expect("a decision");
        assert!(held.is_entered(), "after {polls} polls");
        let mut waiting = Box::pin(limiter.enter_wait(&key, &limit, LONG_DEADLINE));
        for _ in 0..polls {
            poll_fn(|context| {
                assert!(waiting.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        // Before the slot is free, and after it was granted to the call.
        if polls % 2 == 0 {
            drop(waiting);
            drop(held);
        } else {
            drop(held);
            drop(waiting);
        }
        eventually("free", async || limiter.peek(&key, &limit).await.expect("a decision").remaining() == 2).await;
    }
}

async fn a_raised_limit_lets_more_in_and_a_lowered_one_nobody_until_it_fits(limiter: Limiter) {
    let key = key("a");
    let first = entered(&limiter, &key, &concurrent(1)).await;
    assert!(limiter.enter(&key, &concurrent(1)).await.expect("a decision").is_denied());
    let others = [entered(&limiter, &key, &concurrent(3)).await, entered(&limiter, &key, &concurrent(3)).await];
    assert!(limiter.enter(&key, &concurrent(2)).await.expect("a decision").is_denied());
    drop(first);
    assert!(limiter.enter(&key, &concurrent(2)).await.expect("a decision").is_denied());
    drop(others);
    drop(entered(&limiter, &key, &concurrent(2)).await);
}

async fn a_peek_shows_free_slots_and_a_reset_frees_none(limiter: Limiter) {
    let (key, limit) = (key("a"), concurrent(2));
    let peek = async || limiter.peek(&key, &limit).await.expect("a decision");
    assert_eq!(peek().await.remaining(), 2);
    let held = [entered(&limiter, &key, &limit).await, entered(&limiter, &key, &limit).await];
    assert!(peek().await.is_denied());
    limiter.reset(&key, &limit).await.expect("a reply");
    assert!(peek().await.is_denied());
    assert!(limiter.enter(&key, &limit).await.expect("a decision").is_denied());
    drop(held);
    eventually("free", async || peek().await.remaining() == 2).await;
}

async fn rules_add_and_remove_slots_at_run_time(limiter: Limiter) {
    let (key, window) = (key("a"), limit("1000/1h"));
    let named = limiter.named("slots by rule");
    let rule = |rule: Rule| limiter.set_rules(RuleSet::new().rule("slots by rule", rule)).expect("valid");
    assert!(named.check(&key, &window).await.expect("a decision").is_allowed());
    rule(Rule::new().limit(concurrent(1)).limit(window));
    assert_eq!(named.check(&key, &window).await.expect_err("it cannot hold").kind(), ErrorKind::Config);
    let held = named.enter(&key, &window).await.expect("a decision");
    assert!(held.is_entered() && named.enter(&key, &window).await.expect("a decision").is_denied());
    rule(Rule::new().limit(window));
    assert!(named.enter(&key, &window).await.expect("a decision").is_entered());
    assert!(named.check(&key, &window).await.expect("a decision").is_allowed());
    rule(Rule::new().limit(concurrent(1)).limit(window));
    assert!(named.enter(&key, &window).await.expect("a decision").is_denied());
    drop(held);
    assert!(named.enter_wait(&key, &window, LONG_DEADLINE).await.expect("a decision").is_entered());
}

async fn a_rule_in_shadow_mode_denies_nothing(limiter: Limiter) {
    let (key, limit) = (key("a"), concurrent(1));
    let named = limiter.named("slots in shadow mode");
    let rules = RuleSet::new().rule("slots in shadow mode", Rule::new().mode(Mode::Shadow));
    limiter.set_rules(rules).expect("valid");
    let first = named.enter(&key, &limit).await.expect("a decision").entered().expect("no rule denies");
    assert!(first.allowed().shadowed().is_none());
    let second = named.enter(&key, &limit).await.expect("a decision").entered().expect("no rule denies");
    assert_eq!(second.allowed().shadowed().expect("no slot is free").limit(), limit);
    // The first one holds the slot, which is that of calls that are enforced.
    assert!(limiter.enter(&key, &limit).await.expect("a decision").is_denied());
    drop(first);
    drop(entered(&limiter, &key, &limit).await);
}

/// Ends an annotated call, and knows whether it has begun.
#[derive(Default)]
struct Call {
    has_begun: Notify,
    end: Notify,
}

#[rate_limited(key = "annotated-slot", concurrent = 2, limiter = limiter, fallback = denied_call)]
async fn annotated(limiter: &Limiter, call: &Call, panics: bool) -> bool {
    call.has_begun.notify_one();
    call.end.notified().await;
    assert!(!panics, "the body panics");
    true
}

async fn denied_call(_: &Limiter, _: &Call, _: bool) -> bool {
    false
}

#[rate_limited(key = "annotated-slot", limits = ["2 concurrent", "1000/1h"], limiter = limiter, permit = permit)]
fn with_permit(limiter: &Limiter) -> Result<Limit, Denied> {
    Ok(permit.into_allowed().limit())
}

async fn an_annotated_call_holds_its_slot_until_it_ends(limiter: Limiter) {
    let start = async |panics| {
        let call = Arc::new(Call::default());
        let (limiter, running) = (limiter.clone(), Arc::clone(&call));
        let task = tokio::spawn(async move { annotated(&limiter, &running, panics).await });
        call.has_begun.notified().await;
        (call, task)
    };
    let is_denied = async || !annotated(&limiter, &Call::default(), false).await;
    let (first, second, third) = (start(false).await, start(false).await, Call::default());
    assert!(is_denied().await);
    // Returned, dropped, and panicked: each frees its slot.
    first.0.end.notify_one();
    assert!(first.1.await.expect("no panic"));
    third.end.notify_one();
    assert!(annotated(&limiter, &third, false).await);
    let (panicking, task) = start(true).await;
    assert!(is_denied().await);
    panicking.end.notify_one();
    assert!(task.await.is_err_and(|error| error.is_panic()));
    let (_call, task) = start(false).await;
    assert!(is_denied().await);
    task.abort();
    assert!(task.await.is_err());
    let blocking = limiter.clone();
    let returned = tokio::task::spawn_blocking(move || [(); 5].map(|()| with_permit(&blocking).expect("a free slot")));
    assert_eq!(returned.await.expect("no panic"), [unpacked_limit("1000/1h"); 5]);
    second.0.end.notify_one();
    assert!(second.1.await.expect("no panic"));
}

async fn many_tasks_never_exceed_the_limit(limiter: Limiter) {
    const MAX: u32 = 4;
    let (key, limit) = (key("a"), concurrent(MAX));
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    // A call that waits ends once as many run as the limit allows, however slow the machine is.
    let all_run = Arc::new(Barrier::new(MAX as usize));
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (limiter, key, all_run) = (limiter.clone(), key.clone(), Arc::clone(&all_run));
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        tasks.spawn(async move {
            let run = async |entry: Result<Entry, Error>, waits: bool| {
                let Some(_held) = entry.expect("a decision").entered() else { return };
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                if waits {
                    all_run.wait().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
            };
            for _ in 0..10 {
                run(limiter.enter(&key, &limit).await, false).await;
                run(limiter.enter_wait(&key, &limit, LONG_DEADLINE).await, true).await;
            }
        });
    }
    tasks.join_all().await;
    assert_eq!((running.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, MAX));
}

/// The policy decides without a store, and the calls that it lets in hold slots of this process.
#[tokio::test]
async fn the_policy_decides_about_slots_of_a_store_that_is_gone() {
    let (key, limit) = (key("a"), concurrent(4));
    let limiter = |policy| {
        let server = RedisServer::start();
        let builder = builder_for(&server).instances(2).on_error(policy).deadline(Duration::from_secs(1));
        let limiter = builder.build().expect("valid");
        drop(server);
        limiter
    };
    let open = limiter(OnError::Open);
    let held: Vec<_> = [(); 9].map(|()| open.enter_blocking(&key, &limit)).into_iter().collect();
    assert!(held.iter().all(|entry| entry.as_ref().is_ok_and(Entry::is_entered)));
    let closed = limiter(OnError::Closed).enter(&key, &limit).await.expect("a decision");
    assert_eq!(closed.into_result().expect_err("closed").source(), Source::Policy);
    assert!(limiter(OnError::Raise).enter(&key, &limit).await.is_err());
    // The standby limiter has a share of two.
    let standby = limiter(OnError::Standby);
    let first = standby.enter(&key, &limit).await.expect("a decision").entered().expect("a share");
    assert_eq!(first.allowed().source(), Source::Standby);
    let _second = standby.enter(&key, &limit).await.expect("a decision").entered().expect("a share");
    let third = standby.enter(&key, &limit).await.expect("a decision").into_result().expect_err("no more");
    assert_eq!(third.source(), Source::Standby);
    drop(first);
    assert!(standby.enter(&key, &limit).await.expect("a decision").is_entered());
}
