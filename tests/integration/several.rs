//! Several limits in one decision: all or nothing, on every store.

use std::time::Duration;

use limiter_testkit::{Oracle, Random, RedisServer};
use rate_limited::{Decision, Denied, Key, Limit};
use tokio::task::JoinSet;

use crate::support::{Subject, key, limit, on, on_every_store};

on_every_store! {
    a_denial_takes_nothing_from_any,
    names_the_first_that_denies_and_waits_for_all,
    names_the_tightest_of_those_that_allow,
    costs_on_one_count_add_up,
    of_nothing_is_allowed,
    one_that_can_never_be_is_final,
    agrees_with_oracles_side_by_side,
}

async fn take(subject: &Subject, limits: &[(&Key, &str, u32)]) -> Decision {
    let parsed: Vec<(&Key, Limit, u32)> = limits.iter().map(|&(key, text, cost)| (key, limit(text), cost)).collect();
    let limits: Vec<_> = parsed.iter().map(|(key, limit, cost)| (*key, limit, *cost)).collect();
    subject.limiter.check_all(&limits).await.expect("the store answers")
}

fn denied(decision: Decision) -> Denied {
    decision.into_result().expect_err("a denial")
}

async fn a_denial_takes_nothing_from_any(subject: Subject) {
    let (user, all) = (key("user"), key("all"));
    assert!(take(&subject, &[(&all, "2/1m", 2)]).await.is_allowed());
    for _ in 0..3 {
        assert!(take(&subject, &[(&user, "1/1m", 1), (&all, "2/1m", 1)]).await.is_denied());
        assert!(take(&subject, &[(&all, "2/1m", 1), (&user, "1/1m", 1)]).await.is_denied());
    }
    assert!(take(&subject, &[(&user, "1/1m", 1)]).await.is_allowed(), "nothing was taken");
}

async fn names_the_first_that_denies_and_waits_for_all(subject: Subject) {
    let key = key("a");
    assert!(take(&subject, &[(&key, "1/1s", 1), (&key, "1/1m", 1), (&key, "9/1h", 1)]).await.is_allowed());
    let told = denied(take(&subject, &[(&key, "9/1h", 1), (&key, "1/1s", 1), (&key, "1/1m", 1)]).await);
    assert_eq!((told.limit(), told.retry_after()), (limit("1/1s"), Duration::from_secs(60)));
    assert_eq!(told.reset_after(), Duration::from_secs(1));
    subject.clock.advance(told.retry_after() - Duration::from_millis(1));
    let told = denied(take(&subject, &[(&key, "9/1h", 1), (&key, "1/1s", 1), (&key, "1/1m", 1)]).await);
    assert_eq!((told.limit(), told.retry_after()), (limit("1/1m"), Duration::from_millis(1)));
    subject.advance_millis(1);
    assert!(take(&subject, &[(&key, "9/1h", 1), (&key, "1/1s", 1), (&key, "1/1m", 1)]).await.is_allowed());
}

async fn names_the_tightest_of_those_that_allow(subject: Subject) {
    let (user, all) = (key("user"), key("all"));
    let Decision::Allowed(told) = take(&subject, &[(&all, "100/1m", 1), (&user, "5/1m", 2)]).await else {
        panic!("there is room")
    };
    assert_eq!((told.limit(), told.remaining()), (limit("5/1m"), 3));
}

async fn costs_on_one_count_add_up(subject: Subject) {
    let key = key("a");
    assert!(take(&subject, &[(&key, "5/1m", 3), (&key, "5/1m", 3)]).await.is_denied());
    let both = take(&subject, &[(&key, "5/1m", 2), (&key, "7/1m", 3)]).await;
    assert_eq!((both.is_allowed(), both.remaining()), (true, 0));
    assert!(take(&subject, &[(&key, "7/1m", 1), (&key, "7/1m", 1)]).await.is_allowed());
    assert!(take(&subject, &[(&key, "7/1m", 1)]).await.is_denied());
}

async fn of_nothing_is_allowed(subject: Subject) {
    assert!(take(&subject, &[]).await.is_allowed());
    assert!(take(&subject, &[(&key("a"), "1/1m", 0), (&key("b"), "1/1m", 0)]).await.is_allowed());
    assert!(take(&subject, &[(&key("a"), "1/1m", 1), (&key("b"), "1/1m", 1)]).await.is_allowed());
}

async fn one_that_can_never_be_is_final(subject: Subject) {
    let (a, b) = (key("a"), key("b"));
    assert!(take(&subject, &[(&a, "1/1m", 1)]).await.is_allowed());
    let told = denied(take(&subject, &[(&a, "1/1m", 1), (&b, "3/1m", 4)]).await);
    assert!(told.is_final());
    assert_eq!(told.limit(), limit("1/1m"));
}

/// Two keys, each with two windows, and a decision over any of the four.
async fn agrees_with_oracles_side_by_side(subject: Subject) {
    let mut random = Random::new(11);
    let keys = [key("a"), key("b")];
    let windows = [400, 1_500];
    let mut oracles = [Oracle::new(), Oracle::new(), Oracle::new(), Oracle::new()];
    let mut now = 0;
    for step in 0..1_500 {
        let idle = if random.below(3) == 0 { random.below(120) } else { 0 };
        now += idle;
        subject.advance_millis(idle);
        let mut asked = Vec::new();
        for place in 0..4 {
            if random.below(2) == 0 {
                let limit = Limit::new(
                    u32::try_from(random.between(1, 9)).expect("small"),
                    Duration::from_millis(windows[place % 2]),
                );
                asked.push((place, limit.expect("a limit"), u32::try_from(random.below(4)).expect("small")));
            }
        }
        let limits: Vec<_> = asked.iter().map(|(place, limit, cost)| (&keys[place / 2], limit, *cost)).collect();
        let decision = subject.limiter.check_all(&limits).await.expect("the store answers");
        let fits = asked
            .iter()
            .all(|(place, limit, cost)| oracles[*place].peek(now, windows[place % 2], limit.max(), *cost).allowed);
        assert_eq!(decision.is_allowed(), fits, "step {step}");
        if fits {
            for (place, limit, cost) in &asked {
                assert!(oracles[*place].check(now, windows[place % 2], limit.max(), *cost).allowed);
            }
        }
    }
}

/// Tasks that take the same two keys in opposite order: no dead-lock, and never one without the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_do_not_lock_each_other_out() {
    for limiter in [rate_limited::Limiter::memory(), on(RedisServer::shared()).connect().await.expect("connects")] {
        let mut tasks = JoinSet::new();
        for task in 0..8 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let (a, b, limit) = (key("a"), key("b"), limit("100/1m"));
                let mut admitted = 0;
                for _ in 0..50 {
                    let limits = if task % 2 == 0 {
                        [(&a, &limit, 1), (&b, &limit, 1)]
                    } else {
                        [(&b, &limit, 1), (&a, &limit, 1)]
                    };
                    admitted += u32::from(limiter.check_all(&limits).await.expect("answers").is_allowed());
                }
                admitted
            });
        }
        assert_eq!(tasks.join_all().await.into_iter().sum::<u32>(), 100);
    }
}
