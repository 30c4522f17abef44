//! Direct calls under a rule's name.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Algorithm, Builder, Key, Limiter, Mode, OnError, Rule, RuleSet, Source};

use crate::support::{builder_for, limit};

fn configured(name: &str, rule: Rule) -> RuleSet {
    RuleSet::new().rule(name, rule)
}

#[tokio::test]
async fn a_named_call_has_the_rules_name_and_limits() {
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let limiter = builder.connect().await.expect("a store");
        let (key, default) = (Key::new("upload"), limit("100/h"));
        let upload = limiter.named("upload");
        let allowed = upload.check(&key, &default).await.expect("a store").into_result().expect("the first");
        assert_eq!((allowed.name(), allowed.limit()), ("upload", default));
        limiter.set_rules(configured("upload", Rule::new().limit(limit("2/h")))).expect("valid");
        // The change of `max` keeps the history.
        assert!(upload.check(&key, &default).await.expect("a store").is_allowed());
        let denied = upload.check(&key, &default).await.expect("a store").into_result().expect_err("two were taken");
        assert_eq!((denied.name(), denied.limit()), ("upload", limit("2/h")));
        assert!(upload.peek(&key, &default).await.expect("a store").is_denied());
        assert!(upload.wait(&key, &default, Duration::from_millis(1)).await.expect("a store").is_denied());
        upload.reset(&key, &default).await.expect("a store");
        assert_eq!(upload.peek(&key, &default).await.expect("a store").remaining(), 2);
        assert!(upload.check_n(&key, &default, 2).await.expect("a store").is_allowed());
        // A direct call without a rule has no settings.
        assert!(limiter.check(&key, &default).await.expect("a store").is_allowed());
    }
}

#[test]
fn blocking_forms_decide_as_the_async_ones() {
    let limiter = Limiter::memory();
    limiter.set_rules(configured("job", Rule::new().limit(limit("3/h")))).expect("valid");
    let (job, key, default) = (limiter.named("job"), Key::new("job"), limit("1/h"));
    assert!(job.check_blocking(&key, &default).expect("memory").is_allowed());
    assert!(job.check_n_blocking(&key, &default, 2).expect("memory").is_allowed());
    assert!(job.peek_blocking(&key, &default).expect("memory").is_denied());
    assert!(job.wait_blocking(&key, &default, Duration::ZERO).expect("memory").is_denied());
    assert!(job.wait_n_blocking(&key, &default, 2, Duration::ZERO).expect("memory").is_denied());
    job.reset_blocking(&key, &default).expect("memory");
    assert!(job.check_all_blocking(&[(&key, &default, 3)]).expect("memory").is_allowed());
}

#[tokio::test]
async fn a_configured_limit_applies_once_to_each_key_at_its_largest_cost() {
    let limiter = Limiter::memory();
    let (one, other) = (Key::new("one"), Key::new("other"));
    let (second, hour) = (limit("9/s"), limit("99/h"));
    limiter.set_rules(configured("several", Rule::new().limit(limit("10/h")))).expect("valid");
    let limits = [(&one, &second, 1), (&other, &hour, 1), (&one, &hour, 3)];
    let decision = limiter.named("several").check_all(&limits).await.expect("memory");
    assert_eq!(decision.remaining(), 7);
    for (key, remaining) in [(&one, 7), (&other, 9)] {
        assert_eq!(limiter.peek(key, &limit("10/h")).await.expect("memory").remaining(), remaining);
        assert_eq!(limiter.peek(key, &hour).await.expect("memory").remaining(), 99 - (10 - remaining));
    }
}

#[tokio::test]
async fn modes_apply_to_named_calls() {
    let limiter = Limiter::memory();
    let (key, default) = (Key::new("a"), limit("1/h"));
    let set_mode = |mode| limiter.set_rules(configured("moded", Rule::new().mode(mode))).expect("valid");
    let moded = limiter.named("moded");

    set_mode(Mode::Off);
    let allowed = moded.check(&key, &default).await.expect("memory").into_result().expect("off");
    assert_eq!((allowed.source(), allowed.limit(), allowed.remaining()), (Source::Mode, default, 1));
    limiter.refund(&allowed).await.expect("nothing to refund");
    assert!(moded.peek(&key, &default).await.expect("memory").is_allowed());

    set_mode(Mode::Deny);
    let denied = moded.check(&key, &default).await.expect("memory").into_result().expect_err("denied");
    assert_eq!((denied.source(), denied.is_final()), (Source::Mode, true));
    assert!(moded.peek(&key, &default).await.expect("memory").is_denied());

    set_mode(Mode::Shadow);
    let first = moded.check(&key, &default).await.expect("memory").into_result().expect("allowed");
    assert!(first.shadowed().is_none());
    let second = moded.check(&key, &default).await.expect("memory").into_result().expect("shadow mode");
    let shadowed = second.shadowed().expect("enforcement would deny it");
    assert_eq!((shadowed.name(), shadowed.limit()), ("moded", default));
    let peeked = moded.peek(&key, &default).await.expect("memory").into_result().expect("shadow mode");
    assert!(peeked.shadowed().is_some());

    // A refund of the allowed call also frees the permit that the rule in shadow mode counted.
    limiter.refund(&first).await.expect("memory");
    set_mode(Mode::Enforce);
    assert!(moded.check(&key, &default).await.expect("memory").is_allowed());
}

#[tokio::test]
async fn a_refund_frees_the_permits_of_all_rules_of_the_call() {
    let limiter = Limiter::memory();
    let (one, other, default) = (Key::new("one"), Key::new("other"), limit("1/h"));
    limiter.set_rules(configured("shadow", Rule::new().mode(Mode::Shadow))).expect("valid");
    let rules = [("enforced", &one, &default, 1), ("shadow", &other, &default, 1)];
    let allowed = limiter.check_rules(&rules).await.expect("memory").into_result().expect("the first");
    assert!(limiter.peek(&other, &default).await.expect("memory").is_denied());
    limiter.refund(&allowed).await.expect("memory");
    for key in [&one, &other] {
        assert!(limiter.peek(key, &default).await.expect("memory").is_allowed());
    }
}

#[tokio::test]
async fn several_rules_make_one_decision_with_the_name_of_the_rule_that_denies() {
    let limiter = Limiter::memory();
    let (user, tenant) = (Key::new("user"), Key::new("tenant"));
    let (wide, narrow) = (limit("10/h"), limit("1/h"));
    limiter.set_rules(configured("tenant", Rule::new().limit(narrow))).expect("valid");
    let rules = [("user", &user, &wide, 1), ("tenant", &tenant, &wide, 1)];
    let allowed = limiter.check_rules(&rules).await.expect("memory").into_result().expect("the first");
    assert_eq!(allowed.name(), "tenant");
    let denied = limiter.check_rules(&rules).await.expect("memory").into_result().expect_err("one permit");
    assert_eq!((denied.name(), denied.limit()), ("tenant", narrow));
    assert_eq!(limiter.peek(&user, &wide).await.expect("memory").remaining(), 9);
}

#[tokio::test]
async fn a_configured_limit_counts_a_key_of_one_rule_once() {
    let limiter = Limiter::memory();
    let (user, second, hour, configured_limit) = (Key::new("user"), limit("9/s"), limit("99/h"), limit("5/m"));
    let rules = [("user", &user, &second, 2), ("other", &user, &second, 1), ("user", &user, &hour, 3)];
    limiter.set_rules(configured("user", Rule::new().limit(configured_limit))).expect("valid");
    assert!(limiter.check_rules(&rules).await.expect("memory").is_allowed());
    assert_eq!(limiter.peek(&user, &configured_limit).await.expect("memory").remaining(), 2);
    assert_eq!(limiter.peek(&user, &second).await.expect("memory").remaining(), 8);
    limiter.set_rules(RuleSet::new()).expect("valid");
    assert!(limiter.check_rules(&rules).await.expect("memory").is_allowed());
    assert_eq!(limiter.peek(&user, &second).await.expect("memory").remaining(), 6); // one counter: the largest of 2 and 1
    assert_eq!(limiter.peek(&user, &hour).await.expect("memory").remaining(), 96);
}

/// All keys of a rule make one decision in shadow mode too.
#[tokio::test]
async fn a_rule_in_shadow_mode_takes_all_permits_of_a_call_or_none() {
    let limiter = Limiter::memory();
    let (one, two, default) = (Key::new("one"), Key::new("two"), limit("1/h"));
    assert!(limiter.check(&two, &default).await.expect("memory").is_allowed());
    limiter.set_rules(configured("tried", Rule::new().mode(Mode::Shadow))).expect("valid");
    let other = Key::new("other");
    let rules = [("tried", &one, &default, 1), ("else", &other, &default, 1), ("tried", &two, &default, 1)];
    let allowed = limiter.check_rules(&rules).await.expect("memory").into_result().expect("shadow mode");
    assert!(allowed.shadowed().is_some());
    assert!(limiter.peek(&one, &default).await.expect("memory").is_allowed());
}

/// The policy of a rule comes before that of the call, which comes before the defaults and the limiter's.
#[tokio::test]
async fn the_first_failure_policy_applies() {
    let builder: fn() -> Builder = || Limiter::builder().url("redis+unix:///nowhere").on_error(OnError::Raise);
    let (key, default) = (Key::new("a"), limit("1/h"));
    let limiter = builder().build().expect("valid");
    let failing = limiter.named("failing");
    assert!(failing.check(&key, &default).await.is_err());
    assert!(failing.on_error(OnError::Open).check(&key, &default).await.expect("open").is_allowed());
    limiter.set_rules(RuleSet::new().defaults(Rule::new().on_error(OnError::Closed))).expect("valid");
    assert!(failing.check(&key, &default).await.expect("closed").is_denied());
    assert!(failing.on_error(OnError::Open).check(&key, &default).await.expect("open").is_allowed());
    limiter.set_rules(configured("failing", Rule::new().on_error(OnError::Closed))).expect("valid");
    assert!(failing.on_error(OnError::Open).check(&key, &default).await.expect("closed").is_denied());
}

/// A configured limit without an algorithm has that of the limit that it replaces.
#[tokio::test]
async fn a_configured_limit_keeps_algorithm_and_burst() {
    let limiter = Limiter::memory();
    let key = Key::new("a");
    let bucket = limit("5/s").with_algorithm(Algorithm::TokenBucket).with_burst(7).expect("a bucket");
    let applied = async |rule: Rule| {
        limiter.set_rules(configured("rule", rule)).expect("valid");
        let peeked = limiter.named("rule").peek(&key, &bucket).await.expect("memory");
        peeked.into_result().expect("nothing is taken").limit()
    };
    let with_burst = |limit: rate_limited::Limit, burst| limit.with_burst(burst).expect("a bucket");
    let token_bucket = limit("9/s").with_algorithm(Algorithm::TokenBucket);
    assert_eq!(applied(Rule::new().limit(limit("9/s"))).await, with_burst(token_bucket, 7));
    assert_eq!(applied(Rule::new().limit(limit("9/s")).burst(3)).await, with_burst(token_bucket, 3));
    assert_eq!(applied(Rule::new().burst(3)).await, with_burst(bucket, 3));
    assert_eq!(applied(Rule::new().limit(limit("9/s")).algorithm(Algorithm::SlidingWindow)).await, limit("9/s"));
    assert_eq!(
        applied(Rule::new().algorithm(Algorithm::LeakyBucket)).await,
        limit("5/s").with_algorithm(Algorithm::LeakyBucket)
    );
    let fixed = limit("9/s").with_algorithm(Algorithm::FixedWindow);
    assert_eq!(applied(Rule::new().limit(fixed)).await, fixed);
}
