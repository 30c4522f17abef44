//! The modes of rules, for annotated functions.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{
    Allowed, Builder, Decision, Denied, Key, Limiter, Mode, OnError, Rule, RuleSet, Source, rate_limited,
};

use crate::support::{builder_for, unpacked_limit as limit};

#[rate_limited(key = "moded", limit = "2/h")]
async fn moded() -> Result<&'static str, Denied> {
    Ok("ran")
}

#[rate_limited(key = "first", limit = "3/h")]
#[rate_limited(key = "second", limit = "2/h")]
async fn two() -> Result<&'static str, Denied> {
    Ok("ran")
}

#[rate_limited(key = "patient", limit = "1/h", wait = "1h")]
async fn patient() -> Result<&'static str, Denied> {
    Ok("ran")
}

/// Names of the decisions that each kind of observer got.
#[derive(Clone, Default)]
struct Observed {
    allowed: Arc<AtomicU32>,
    denied: Arc<Mutex<Vec<String>>>,
    shadowed: Arc<Mutex<Vec<String>>>,
}

impl Observed {
    fn by(builder: Builder) -> (Builder, Self) {
        let observed = Self::default();
        let Self { allowed, denied, shadowed } = observed.clone();
        let builder = builder
            .on_allowed(move |_| {
                allowed.fetch_add(1, Relaxed);
            })
            .on_denied(move |call| denied.lock().expect("no panic").push(call.name().to_owned()))
            .on_shadowed(move |call| shadowed.lock().expect("no panic").push(call.name().to_owned()));
        (builder, observed)
    }

    fn counts(&self) -> (u32, usize, usize) {
        let length = |names: &Mutex<Vec<String>>| names.lock().expect("no panic").len();
        (self.allowed.load(Relaxed), length(&self.denied), length(&self.shadowed))
    }
}

fn mode(name: &str, mode: Mode) -> RuleSet {
    RuleSet::new().rule(name, Rule::new().mode(mode))
}

/// Runs a test on both stores, with observers.
macro_rules! on_both_stores {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() { super::$test(rate_limited::Limiter::builder()).await; })+
        }
        mod redis {
            $(#[tokio::test] async fn $test() {
                super::$test(super::builder_for(super::RedisServer::shared())).await;
            })+
        }
    };
}

on_both_stores! {
    shadow_counts_and_reports_and_denies_no_call,
    off_neither_counts_nor_reports,
    deny_is_final_and_counts_nothing,
    enforced_rules_decide_before_those_in_shadow,
    deny_of_one_rule_takes_nothing_of_the_other,
    decisions_know_whether_their_rule_is_enforced,
    shadow_does_not_wait,
}

async fn shadow_counts_and_reports_and_denies_no_call(builder: Builder) {
    let (builder, observed) = Observed::by(builder);
    let limiter = builder.connect().await.expect("a store");
    limiter.set_rules(mode("moded", Mode::Shadow)).expect("valid");
    limiter
        .scope(async {
            for _ in 0..5 {
                assert!(moded().await.is_ok());
            }
        })
        .await;
    assert_eq!(observed.counts(), (2, 0, 3));
    // A denied call took nothing, so enforcement goes on from the same counts.
    limiter.set_rules(RuleSet::new()).expect("valid");
    limiter.scope(async { assert!(moded().await.is_err()) }).await;
    assert_eq!(observed.counts(), (2, 1, 3));
}

async fn off_neither_counts_nor_reports(builder: Builder) {
    let (builder, observed) = Observed::by(builder);
    let limiter = builder.connect().await.expect("a store");
    limiter.set_rules(mode("moded", Mode::Off)).expect("valid");
    limiter
        .scope(async {
            for _ in 0..5 {
                assert!(moded().await.is_ok());
            }
        })
        .await;
    assert_eq!(observed.counts(), (0, 0, 0));
    limiter.set_rules(RuleSet::new()).expect("valid");
    limiter.scope(async { assert!(moded().await.is_ok() && moded().await.is_ok() && moded().await.is_err()) }).await;
}

async fn deny_is_final_and_counts_nothing(builder: Builder) {
    let (builder, observed) = Observed::by(builder);
    let limiter = builder.connect().await.expect("a store");
    limiter.set_rules(mode("moded", Mode::Deny)).expect("valid");
    let denied = limiter.scope(moded()).await.expect_err("the rule denies every call");
    assert!(denied.is_final());
    assert_eq!((denied.source(), denied.name(), denied.limit()), (Source::Mode, "moded", limit("2/h")));
    assert_eq!(denied.to_string(), "the rate limit `moded` denies every call: its mode is `deny`");
    assert_eq!(observed.counts(), (0, 1, 0));
    limiter.set_rules(RuleSet::new()).expect("valid");
    limiter.scope(async { assert!(moded().await.is_ok() && moded().await.is_ok() && moded().await.is_err()) }).await;
}

async fn enforced_rules_decide_before_those_in_shadow(builder: Builder) {
    let (builder, observed) = Observed::by(builder);
    let limiter = builder.connect().await.expect("a store");
    limiter.set_rules(mode("second", Mode::Shadow)).expect("valid");
    limiter
        .scope(async {
            for _ in 0..3 {
                assert!(two().await.is_ok());
            }
            assert_eq!(two().await.expect_err("the enforced rule denies").name(), "first");
        })
        .await;
    // The rule in shadow mode did not see the call that the other one denied.
    assert_eq!(*observed.shadowed.lock().expect("no panic"), ["second"]);
    assert_eq!(*observed.denied.lock().expect("no panic"), ["first"]);
    let second = limiter.peek(&Key::new("second"), &limit("2/h")).await.expect("a store");
    assert_eq!(second.remaining(), 0);
}

async fn deny_of_one_rule_takes_nothing_of_the_other(builder: Builder) {
    let limiter = builder.connect().await.expect("a store");
    limiter.set_rules(mode("second", Mode::Deny)).expect("valid");
    assert_eq!(limiter.scope(two()).await.expect_err("one denies").name(), "second");
    let first = limiter.peek(&Key::new("first"), &limit("3/h")).await.expect("a store");
    assert_eq!(first.remaining(), 3);
}

async fn decisions_know_whether_their_rule_is_enforced(builder: Builder) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&seen);
    let report = move |allowed: &Allowed| {
        reports.lock().expect("no panic").push((allowed.name().to_owned(), allowed.is_enforced()));
    };
    let limiter = builder.on_allowed(report).build().expect("valid");
    let (first, second, default) = (Key::new("first"), Key::new("second"), limit("9/h"));
    let check = async |expected: bool| {
        let rules = [("first", &first, &default, 1), ("second", &second, &default, 1)];
        let decision = limiter.check_rules(&rules).await.expect("decides");
        assert_eq!(decision.into_result().map(|allowed| allowed.is_enforced()).ok(), Some(expected));
    };
    check(true).await;
    limiter.set_rules(mode("second", Mode::Shadow)).expect("valid");
    check(true).await;
    limiter.set_rules(RuleSet::new().defaults(Rule::new().mode(Mode::Shadow))).expect("valid");
    check(false).await;
    let peeked = limiter.named("first").peek(&first, &default).await.expect("decides");
    assert!(matches!(peeked, Decision::Allowed(allowed) if !allowed.is_enforced()));
    limiter.set_rules(RuleSet::new().defaults(Rule::new().mode(Mode::Off))).expect("valid");
    check(false).await;
    let expected = [true, true, true, false, false, false];
    let names = ["first", "second"].into_iter().cycle().map(str::to_owned);
    assert_eq!(*seen.lock().expect("no panic"), names.zip(expected).collect::<Vec<_>>());
}

async fn shadow_does_not_wait(builder: Builder) {
    let (builder, observed) = Observed::by(builder);
    let limiter = builder.connect().await.expect("a store");
    limiter.set_rules(mode("patient", Mode::Shadow)).expect("valid");
    limiter.scope(async { assert!(patient().await.is_ok() && patient().await.is_ok()) }).await;
    assert_eq!(observed.counts(), (1, 0, 1));
}

#[tokio::test]
async fn a_failed_store_stops_no_call_in_shadow_mode() {
    for policy in [OnError::Closed, OnError::Raise, OnError::Standby, OnError::Open] {
        let builder = Limiter::builder()
            .url("redis+unix:///nowhere")
            .on_error(policy)
            .rule("moded", Rule::new().mode(Mode::Shadow).deadline(Duration::from_millis(50)));
        let limiter = builder.build().expect("valid");
        limiter.scope(async { assert!(moded().await.is_ok(), "{policy:?}") }).await;
    }
}

#[tokio::test]
async fn an_off_rule_does_not_need_a_store() {
    let builder = Limiter::builder().url("redis+unix:///nowhere").on_error(OnError::Closed);
    let limiter = builder.rules(mode("moded", Mode::Off)).build().expect("valid");
    limiter.scope(async { assert!(moded().await.is_ok()) }).await;
    limiter.set_rules(mode("moded", Mode::Enforce)).expect("valid");
    limiter.scope(async { assert_eq!(moded().await.expect_err("no store").source(), Source::Policy) }).await;
}
