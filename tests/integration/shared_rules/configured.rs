//! Rules whose limits are in the shared rules alone, before the first text is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Denied, Error, ErrorKind, Limiter, OnError, RuleSet, SharedRules, Source, rate_limited};

use super::{builder, change};
use crate::deadlines::eventually;

#[derive(Debug, PartialEq)]
enum Failure {
    Denied,
    Failed(ErrorKind),
}

impl From<Denied> for Failure {
    fn from(_: Denied) -> Self {
        Self::Denied
    }
}

#[rate_limited("log-in", on_error = |error: Error| Err(Failure::Failed(error.kind())))]
fn raising() -> Result<(), Failure> {
    Ok(())
}

#[rate_limited(key = "log-in", name = "closed", limit = configured, on_error = closed)]
fn closed() -> Result<(), Failure> {
    Ok(())
}

#[rate_limited(key = "log-in", name = "standby", limit = configured, on_error = standby)]
fn standby() -> Result<(), Failure> {
    Ok(())
}

#[rate_limited(key = "log-in", name = "open", limit = configured, on_error = open)]
fn open() -> Result<(), Failure> {
    Ok(())
}

#[rate_limited(key = "log-in", name = "open", limit = configured, on_error = open)]
#[rate_limited(key = "second of two", limit = "1/h")]
fn open_and_limited() -> Result<(), Failure> {
    Ok(())
}

#[rate_limited(key = "first of two", limit = "100/h")]
#[rate_limited(key = "log-in", name = "guarded", limit = configured)]
fn guarded() -> Result<(), Failure> {
    Ok(())
}

#[rate_limited(key = "log-in", name = "permit", limit = configured, on_error = open, permit = allowed)]
fn with_permit() -> Result<Source, Failure> {
    Ok(allowed.source())
}

const LIMITS: &str = "[rules.log-in]\nlimit = \"2/h\"\n[rules.closed]\nlimit = \"2/m\"\n[rules.standby]\nlimit = \"2/d\"\n\
                      [rules.open]\nlimit = \"2/2h\"\n";

fn assert_policies_decide(limiter: &Limiter) {
    limiter.scope_sync(|| {
        for _ in 0..3 {
            assert_eq!(raising(), Err(Failure::Failed(ErrorKind::Unavailable)));
            assert_eq!((closed(), standby(), open()), (Err(Failure::Denied), Err(Failure::Denied), Ok(())));
            assert_eq!(with_permit(), Ok(Source::Policy));
        }
    });
    assert_eq!(limiter.unlimited_calls(), 0);
}

fn allowed(call: impl Fn() -> Result<(), Failure>) -> usize {
    (0..5).filter(|_| call().is_ok()).count()
}

#[tokio::test]
async fn policies_decide_until_the_first_text_is_read() {
    let (server, prefix) = (RedisServer::start(), unique("shared"));
    let limiter = builder(&server.url(), &prefix).shared_rules().connect().await.expect("connects");
    assert_policies_decide(&limiter);
    limiter.scope_sync(|| assert_eq!(allowed(open_and_limited), 1, "its other rule decides"));
    let rules = SharedRules::new(&limiter);
    rules.publish("[rules.open]\nlimit = \"2/2h\"\n", change(0)).await.expect("published");
    eventually("read", async || limiter.shared_rules_version() == 1).await;
    // A text that was read without a limit for the rule: the rule is unlimited, as without shared rules.
    limiter.scope_sync(|| assert_eq!((allowed(raising), allowed(open)), (5, 2)));
    assert_eq!(limiter.unlimited_calls(), 5);
    rules.publish(LIMITS, change(1)).await.expect("published");
    eventually("read", async || limiter.shared_rules_version() == 2).await;
    limiter.scope_sync(|| assert_eq!((allowed(raising), allowed(closed), allowed(standby)), (2, 2, 2)));
}

/// The first rule of the call that has a policy is another one.
#[test]
fn an_unread_rule_has_the_policy_of_its_own_settings() {
    let limiter = Limiter::builder().url("redis+unix:///nowhere").shared_rules().build().expect("valid");
    for (own, expected) in [("closed", Err(Failure::Denied)), ("raise", Err(Failure::Denied)), ("open", Ok(()))] {
        let rules = format!("[rules.\"first of two\"]\non_error = \"open\"\n[rules.guarded]\non_error = \"{own}\"\n");
        limiter.set_rules(rules.parse().expect("valid")).expect("valid");
        assert_eq!(limiter.scope_sync(guarded), expected, "{own}");
    }
    assert_eq!(limiter.unlimited_calls(), 0);
}

#[test]
fn policies_decide_while_the_store_is_unreachable() {
    // The thread caches the settings of a limiter that does not follow shared rules.
    let memory = Limiter::memory();
    memory.scope_sync(|| assert_eq!((allowed(raising), allowed(closed), allowed(standby)), (5, 5, 5)));
    let limiter = Limiter::builder().url("redis+unix:///nowhere").shared_rules().build().expect("valid");
    assert_policies_decide(&limiter);
    // Other rules replace no shared ones.
    let others = "[rules.other]\nlimit = \"5/s\"\n".parse().expect("valid");
    limiter.set_rules(others).expect("valid");
    assert_policies_decide(&limiter);
    limiter.set_rules(RuleSet::new()).expect("valid");
    assert_policies_decide(&limiter);
    assert_eq!(limiter.shared_rules_version(), 0);
}

#[tokio::test]
async fn limits_of_other_layers_apply_before_the_first_text() {
    let server = RedisServer::start();
    let rules = LIMITS.parse().expect("valid");
    let limiter =
        builder(&server.url(), "c").on_error(OnError::Raise).rules(rules).shared_rules().build().expect("valid");
    limiter.scope_sync(|| assert_eq!((allowed(raising), allowed(closed)), (2, 2)));
}

/// A strict program needs a limit for each such rule, which the shared rules may have.
#[tokio::test]
async fn strict_rules_may_have_their_limits_in_the_shared_text() {
    let server = RedisServer::start();
    let rules = || "strict = true\n".parse().expect("valid");
    let error = builder(&server.url(), "s").rules(rules()).build().expect_err("no limits");
    assert!(error.to_string().contains("must be set with `strict`"), "{error}");
    let limiter = builder(&server.url(), "s").rules(rules()).shared_rules().connect().await.expect("connects");
    let published = SharedRules::new(&limiter);
    published.publish("# nothing", change(0)).await.expect("published");
    eventually("refused", async || limiter.shared_rules_error().is_some_and(|error| !error.is_transient())).await;
    assert_eq!(limiter.shared_rules_version(), 0);
    limiter.scope_sync(|| assert_eq!(closed(), Err(Failure::Denied)));
}

#[test]
fn a_call_without_its_shared_rules_is_a_failure_for_the_observer() {
    let failures = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&failures);
    let count = move |_: &Error| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let builder = Limiter::builder().url("redis+unix:///nowhere").shared_rules().on_failure(count);
    builder.build().expect("valid").scope_sync(|| {
        for (call, expected) in [(open as fn() -> _, 1), (closed, 2), (standby, 3)] {
            drop(call());
            assert_eq!(failures.load(Ordering::Relaxed), expected);
        }
    });
}
