//! Tests of decisions over several limits on every store: all permits are taken, or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use limiter_testkit::{Oracle, Random, RedisServer};
use rate_limited::{Decision, Denied, ErrorKind, Key, Limit, Limiter, OnError, Rule, RuleSet, Source, rate_limited};
use tokio::task::JoinSet;

use crate::support::{Subject, builder_for, key, limit, on_every_store};

on_every_store! {
    denial_takes_no_permit_of_any_limit,
    denial_names_the_first_limit_and_the_wait_for_all,
    admission_names_the_limit_with_the_least_remaining,
    costs_on_one_counter_add_up,
    decision_over_no_limit_or_no_cost_is_allowed,
    cost_above_one_limit_is_final,
    decisions_equal_those_of_one_oracle_per_counter,
}

async fn take(subject: &Subject, limits: &[(&Key, &str, u32)]) -> Decision {
    let parsed: Vec<(&Key, Limit, u32)> = limits.iter().map(|&(key, text, cost)| (key, limit(text), cost)).collect();
    let limits: Vec<_> = parsed.iter().map(|(key, limit, cost)| (*key, limit, *cost)).collect();
    subject.limiter.check_all(&limits).await.expect("the store answers")
}

fn denied(decision: Decision) -> Denied {
    decision.into_result().expect_err("a denial")
}

async fn denial_takes_no_permit_of_any_limit(subject: Subject) {
    let (user, all) = (key("user"), key("all"));
    assert!(take(&subject, &[(&all, "2/1m", 2)]).await.is_allowed());
    for _ in 0..3 {
        assert!(take(&subject, &[(&user, "1/1m", 1), (&all, "2/1m", 1)]).await.is_denied());
        assert!(take(&subject, &[(&all, "2/1m", 1), (&user, "1/1m", 1)]).await.is_denied());
    }
    assert!(take(&subject, &[(&user, "1/1m", 1)]).await.is_allowed(), "no permit was taken");
}

async fn denial_names_the_first_limit_and_the_wait_for_all(subject: Subject) {
    let key = key("a");
    assert!(take(&subject, &[(&key, "1/1s", 1), (&key, "1/1m", 1), (&key, "9/1h", 1)]).await.is_allowed());
    let denial = denied(take(&subject, &[(&key, "9/1h", 1), (&key, "1/1s", 1), (&key, "1/1m", 1)]).await);
    assert_eq!((denial.limit(), denial.retry_after()), (limit("1/1s"), Duration::from_secs(60)));
    assert_eq!(denial.reset_after(), Duration::from_secs(1));
    subject.clock.advance(denial.retry_after() - Duration::from_millis(1));
    let denial = denied(take(&subject, &[(&key, "9/1h", 1), (&key, "1/1s", 1), (&key, "1/1m", 1)]).await);
    assert_eq!((denial.limit(), denial.retry_after()), (limit("1/1m"), Duration::from_millis(1)));
    subject.advance_millis(1);
    assert!(take(&subject, &[(&key, "9/1h", 1), (&key, "1/1s", 1), (&key, "1/1m", 1)]).await.is_allowed());
}

async fn admission_names_the_limit_with_the_least_remaining(subject: Subject) {
    let (user, all) = (key("user"), key("all"));
    let Decision::Allowed(allowed) = take(&subject, &[(&all, "100/1m", 1), (&user, "5/1m", 2)]).await else {
        panic!("a permit is free")
    };
    assert_eq!((allowed.limit(), allowed.remaining()), (limit("5/1m"), 3));
}

async fn costs_on_one_counter_add_up(subject: Subject) {
    let key = key("a");
    assert!(take(&subject, &[(&key, "5/1m", 3), (&key, "5/1m", 3)]).await.is_denied());
    let both = take(&subject, &[(&key, "5/1m", 2), (&key, "7/1m", 3)]).await;
    assert_eq!((both.is_allowed(), both.remaining()), (true, 0));
    assert!(take(&subject, &[(&key, "7/1m", 1), (&key, "7/1m", 1)]).await.is_allowed());
    assert!(take(&subject, &[(&key, "7/1m", 1)]).await.is_denied());
}

async fn decision_over_no_limit_or_no_cost_is_allowed(subject: Subject) {
    assert!(take(&subject, &[]).await.is_allowed());
    assert!(take(&subject, &[(&key("a"), "1/1m", 0), (&key("b"), "1/1m", 0)]).await.is_allowed());
    assert!(take(&subject, &[(&key("a"), "1/1m", 1), (&key("b"), "1/1m", 1)]).await.is_allowed());
}

async fn cost_above_one_limit_is_final(subject: Subject) {
    let (a, b) = (key("a"), key("b"));
    assert!(take(&subject, &[(&a, "1/1m", 1)]).await.is_allowed());
    let denial = denied(take(&subject, &[(&a, "1/1m", 1), (&b, "3/1m", 4)]).await);
    assert!(denial.is_final());
    assert_eq!(denial.limit(), limit("1/1m"));
}

/// Random decisions over two keys with two windows each.
async fn decisions_equal_those_of_one_oracle_per_counter(subject: Subject) {
    let mut random = Random::new(11);
    let keys = [key("a"), key("b")];
    let windows = [400, 1_500];
    let mut oracles = [Oracle::new(), Oracle::new(), Oracle::new(), Oracle::new()];
    let mut now = 0;
    for step in 0..1_500 {
        let pause = if random.below(3) == 0 { random.below(120) } else { 0 };
        now += pause;
        subject.advance_millis(pause);
        let mut requests = Vec::new();
        for index in 0..4 {
            if random.below(2) == 0 {
                let limit = Limit::new(
                    u32::try_from(random.between(1, 9)).expect("small"),
                    Duration::from_millis(windows[index % 2]),
                );
                requests.push((index, limit.expect("a limit"), u32::try_from(random.below(4)).expect("small")));
            }
        }
        let limits: Vec<_> = requests.iter().map(|(index, limit, cost)| (&keys[index / 2], limit, *cost)).collect();
        let decision = subject.limiter.check_all(&limits).await.expect("the store answers");
        let fits = requests
            .iter()
            .all(|(index, limit, cost)| oracles[*index].peek(now, windows[index % 2], limit.max(), *cost).allowed);
        assert_eq!(decision.is_allowed(), fits, "step {step}");
        if fits {
            for (index, limit, cost) in &requests {
                assert!(oracles[*index].check(now, windows[index % 2], limit.max(), *cost).allowed);
            }
        }
    }
}

/// Tasks that take the same two keys in opposite order: no deadlock, and never a permit of one key only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_key_orders_cause_no_deadlock() {
    for limiter in [Limiter::memory(), builder_for(RedisServer::shared()).connect().await.expect("connects")] {
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

/// A mistake of the program, which no policy turns into a decision.
#[tokio::test]
async fn a_decision_has_at_most_128_limits_under_every_policy() {
    for policy in [OnError::Open, OnError::Closed, OnError::Standby, OnError::Raise] {
        let redis = builder_for(RedisServer::shared()).on_error(policy).connect().await.expect("connects");
        for limiter in [Limiter::builder().on_error(policy).build().expect("a limiter"), redis] {
            let (key, limit) = (key("a"), limit("1000/1m"));
            let items = vec![(&key, &limit, 1); 129];
            let allowed = limiter.check_all(&items[1..]).await.expect("128 are allowed");
            assert_eq!((allowed.is_allowed(), allowed.remaining()), (true, 872));
            for result in [limiter.check_all(&items).await, limiter.named("a").check_all(&items).await] {
                let error = result.expect_err("129 are too many");
                assert_eq!(error.kind(), ErrorKind::InvalidLimit);
                let problem = "a decision must have at most 128 limits, got 129: decide about them in several calls";
                assert_eq!(error.to_string(), problem);
            }
            assert_eq!(limiter.peek(&key, &limit).await.expect("the store answers").remaining(), 872);
        }
    }
}

/// Defines a function under nine rules, with more arguments of its last attribute.
macro_rules! under_nine_rules {
    ($name:ident $($more:tt)*) => {
        #[rate_limited(key = "size", limit = "9/1m", name = "size 0")]
        #[rate_limited(key = "size", limit = "9/1m", name = "size 1")]
        #[rate_limited(key = "size", limit = "9/1m", name = "size 2")]
        #[rate_limited(key = "size", limit = "9/1m", name = "size 3")]
        #[rate_limited(key = "size", limit = "9/1m", name = "size 4")]
        #[rate_limited(key = "size", limit = "9/1m", name = "size 5")]
        #[rate_limited(key = "size", limit = "9/1m", name = "size 6")]
        #[rate_limited(key = "size", limit = "9/1m", name = "size 7")]
        #[rate_limited(key = "size", limit = "9/1m", name = "size 8" $($more)*)]
        async fn $name() -> Result<&'static str, Denied> {
            Ok("ran")
        }
    };
}

under_nine_rules! { without_handler }
under_nine_rules! { with_handler, on_error = Ok("handled") }
under_nine_rules! { with_open_policy, on_error = open }
under_nine_rules! { that_waits, wait = "1ms", on_error = Ok("handled") }

#[tokio::test]
async fn an_annotated_call_with_too_many_limits_is_denied_whatever_its_handler() {
    const SIZE_0_TO_8: [&str; 9] =
        ["size 0", "size 1", "size 2", "size 3", "size 4", "size 5", "size 6", "size 7", "size 8"];
    let rule = || (1..=16).fold(Rule::new(), |rule, seconds| rule.limit(limit(&format!("9/{seconds}s"))));
    let rules = SIZE_0_TO_8.into_iter().fold(RuleSet::new(), |rules, name| rules.rule(name, rule()));
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let (failures, denials) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (failed, denied) = (Arc::clone(&failures), Arc::clone(&denials));
        let builder = builder.rules(rules.clone()).on_error(OnError::Open).on_failure(move |error| {
            assert_eq!(error.kind(), ErrorKind::InvalidLimit);
            failed.fetch_add(1, Relaxed);
        });
        let builder = builder.on_denied(move |_| _ = denied.fetch_add(1, Relaxed));
        let limiter = builder.connect().await.expect("connects");
        let calls =
            async { [without_handler().await, with_handler().await, with_open_policy().await, that_waits().await] };
        for result in limiter.scope(calls).await {
            let denied = result.expect_err("144 are too many");
            assert_eq!((denied.name(), denied.source()), ("size 0", Source::Policy));
        }
        assert_eq!((failures.load(Relaxed), denials.load(Relaxed)), (4, 4));
    }
}

#[test]
fn a_rule_has_at_most_16_limits() {
    let rule = (1..=17).fold(Rule::new(), |rule, seconds| rule.limit(limit(&format!("1/{seconds}s"))));
    let error = Limiter::memory().set_rules(RuleSet::new().rule("a", rule)).expect_err("17 are too many");
    let problem = "`limit` of the rule `a` must be set at most 16 times, got 17 limits: remove some";
    assert_eq!(error.to_string(), problem);
}
