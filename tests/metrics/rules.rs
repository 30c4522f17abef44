//! The series of rules. Each test has rules of its own, because a process has one recorder.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use rate_limited::{Algorithm, Builder, ErrorKind, Limiter, ManualClock, Mode, OnError, Rule, RuleSet, rate_limited};

use crate::recorder::Collector;
use crate::{key, limit};

/// Returns the number of decisions of a rule.
fn decisions(rule: &str, outcome: &str, source: &str) -> f64 {
    let series = format!(r#"rate_limited_decisions_total{{rule="{rule}",outcome="{outcome}",source="{source}"}}"#);
    Collector::installed().value(&series).unwrap_or_default()
}

/// Returns the value of a series whose only label is the rule.
fn of_rule(name: &str, rule: &str) -> f64 {
    Collector::installed().value(&format!(r#"{name}{{rule="{rule}"}}"#)).unwrap_or_default()
}

fn limit_in_force(rule: &str, window: &str) -> Option<f64> {
    Collector::installed().value(&format!(r#"rate_limited_limit{{rule="{rule}",window="{window}"}}"#))
}

fn limiter(configure: impl FnOnce(Builder) -> Builder) -> Limiter {
    Collector::installed();
    configure(Limiter::builder()).clock(ManualClock::new()).build().expect("builds")
}

#[rate_limited(key = "fast:{id}", name = "fast", limit = "10/1m", fallback = None)]
async fn fast(id: u32) -> Option<u32> {
    Some(id)
}

#[tokio::test]
async fn an_annotated_call_counts_its_decision_its_permit_and_a_near_limit() {
    let limiter = limiter(|builder| builder);
    for _ in 0..12 {
        let _ = limiter.scope(fast(1)).await;
    }
    assert_eq!(
        (decisions("fast", "allowed", "store"), decisions("fast", "denied", "store")),
        (10.0, 2.0),
        "{:?}",
        Collector::installed().names()
    );
    assert_eq!(of_rule("rate_limited_permits_total", "fast"), 10.0);
    // Less than a fifth of ten permits is left after the last two of them.
    assert_eq!(of_rule("rate_limited_near_limit_total", "fast"), 2.0);
    assert_eq!(limit_in_force("fast", "1m"), Some(10.0));
}

#[tokio::test]
async fn an_observer_changes_no_series() {
    #[rate_limited(key = "observed:{id}", name = "observed", limit = "10/1m", fallback = None)]
    async fn observed(id: u32) -> Option<u32> {
        Some(id)
    }
    let limiter = limiter(|builder| builder.on_allowed(|_| {}).on_denied(|_| {}));
    for _ in 0..12 {
        let _ = limiter.scope(observed(1)).await;
    }
    assert_eq!((decisions("observed", "allowed", "store"), decisions("observed", "denied", "store")), (10.0, 2.0));
    assert_eq!(of_rule("rate_limited_permits_total", "observed"), 10.0);
    assert_eq!(of_rule("rate_limited_near_limit_total", "observed"), 2.0);
}

#[tokio::test]
async fn a_cost_counts_as_so_many_permits_and_a_refund_gives_them_back() {
    let limiter = limiter(|builder| builder);
    let named = limiter.named("costly");
    let decision = named.check_n(&key("a"), &limit("10/1m"), 7).await.expect("decides");
    let allowed = decision.into_result().expect("allowed");
    limiter.refund_n(&allowed, 2).await.expect("refunds");
    limiter.refund(&allowed).await.expect("refunds");
    limiter.refund(&allowed).await.expect("has nothing left");
    assert_eq!(of_rule("rate_limited_permits_total", "costly"), 7.0);
    assert_eq!(of_rule("rate_limited_refunds_total", "costly"), 7.0);
    assert_eq!(of_rule("rate_limited_near_limit_total", "costly"), 0.0);
}

/// The permits of charges: counted, of those beyond the limit, and without a counter because it was full or failed.
fn charges(rule: &str) -> [f64; 4] {
    let uncounted = |reason| {
        let series = format!(r#"rate_limited_uncounted_total{{rule="{rule}",reason="{reason}"}}"#);
        Collector::installed().value(&series).unwrap_or_default()
    };
    let [counted, overdrawn] =
        ["rate_limited_charges_total", "rate_limited_overdrawn_total"].map(|name| of_rule(name, rule));
    [counted, overdrawn, uncounted("full"), uncounted("error")]
}

#[tokio::test]
async fn a_charge_counts_its_permits_those_beyond_the_limit_and_those_that_no_counter_has() {
    let limiter = limiter(|builder| builder.rule("charged-off", Rule::new().mode(Mode::Off)));
    let bucket = limit("10/1m").with_algorithm(Algorithm::TokenBucket);
    let charge = async |rule, cost| {
        limiter.named(rule).charge(&key("a"), &bucket, cost).await.expect("charges");
        charges(rule)
    };
    assert_eq!(charge("charged", 7).await, [7.0, 0.0, 0.0, 0.0]);
    assert_eq!(charge("charged", 5).await, [12.0, 2.0, 0.0, 0.0]);
    // A bucket is overdrawn by at most its burst.
    assert_eq!(charge("charged", 11).await, [20.0, 10.0, 3.0, 0.0]);
    assert_eq!(charge("charged-off", 7).await, [0.0; 4]);
    let decided =
        Collector::installed().names().iter().any(|name| name.contains(r#"rule="charged",outcome="shadowed""#));
    assert!(!decided && decisions("charged", "allowed", "store") + decisions("charged", "denied", "store") == 0.0);
    assert_eq!(of_rule("rate_limited_permits_total", "charged"), 0.0);
    // Of several limits the largest numbers count.
    let (key, hour, day) = (key("b"), limit("10/1h"), limit("100/1d"));
    limiter.named("charged-two").charge_all(&[(&key, &hour, 12), (&key, &day, 15)]).await.expect("charges");
    assert_eq!(charges("charged-two"), [15.0, 2.0, 0.0, 0.0]);
}

#[tokio::test]
async fn a_charge_that_failed_is_not_counted_and_one_of_the_standby_limiter_is() {
    for (on_error, rule, expected) in [
        (OnError::Closed, "charge-failed", [0.0, 0.0, 0.0, 7.0]),
        (OnError::Standby, "charge-standby", [7.0, 2.0, 0.0, 0.0]),
    ] {
        let limiter = limiter(|builder| builder.failing(ErrorKind::Unavailable).on_error(on_error));
        let charged = limiter.named(rule).charge(&key("a"), &limit("5/1m"), 7).await;
        assert_eq!((charges(rule), charged.is_ok()), (expected, on_error == OnError::Standby), "{rule}");
    }
}

#[tokio::test]
async fn a_charge_counts_for_an_enforced_rule_and_for_one_in_shadow_mode() {
    let limiter = limiter(|builder| builder.rule("charged-shadow", Rule::new().mode(Mode::Shadow)));
    limiter.named("charged-shadow").charge(&key("a"), &limit("5/1m"), 7).await.expect("charges");
    assert_eq!(charges("charged-shadow"), [7.0, 2.0, 0.0, 0.0]);
}

#[tokio::test]
async fn a_call_of_several_rules_counts_each_of_them_and_a_denied_one_counts_its_denial_alone() {
    let limiter = limiter(|builder| builder);
    let (user, total, five, hundred) = (key("user"), key("total"), limit("5/1m"), limit("100/1m"));
    let rules = [("several-user", &user, &five, 2), ("several-total", &total, &hundred, 45)];
    let allowed = limiter.check_rules(&rules).await.expect("decides").into_result().expect("allowed");
    let _ = limiter.check_rules(&rules).await.expect("decides").into_result().expect("allowed");
    assert!(limiter.check_rules(&rules).await.expect("decides").is_denied());
    let counts = |rule| (decisions(rule, "allowed", "store"), decisions(rule, "denied", "store"));
    assert_eq!((counts("several-user"), counts("several-total")), ((2.0, 1.0), (2.0, 0.0)));
    let permits = |rule| of_rule("rate_limited_permits_total", rule);
    assert_eq!((permits("several-user"), permits("several-total")), (4.0, 90.0));
    // A fifth is left of the user's permits, which the decision describes, and less of the total's.
    let near = |rule| of_rule("rate_limited_near_limit_total", rule);
    assert_eq!((near("several-user"), near("several-total")), (0.0, 1.0));
    limiter.refund(&allowed).await.expect("refunds");
    let refunds = |rule| of_rule("rate_limited_refunds_total", rule);
    assert_eq!((refunds("several-user"), refunds("several-total")), (2.0, 45.0));
}

#[tokio::test]
async fn a_refund_counts_for_an_enforced_rule_and_for_one_in_shadow_mode() {
    let limiter = limiter(|builder| builder.rule("refund-shadow", Rule::new().mode(Mode::Shadow)));
    let (user, total, limit) = (key("user"), key("total"), limit("10/1m"));
    let rules = [("refund-enforced", &user, &limit, 1), ("refund-shadow", &total, &limit, 2)];
    let allowed = limiter.check_rules(&rules).await.expect("decides").into_result().expect("allowed");
    limiter.refund(&allowed).await.expect("refunds");
    let refunds = |rule| of_rule("rate_limited_refunds_total", rule);
    assert_eq!((refunds("refund-enforced"), refunds("refund-shadow")), (1.0, 2.0));
}

#[tokio::test]
async fn a_rule_with_two_limits_counts_one_decision_and_has_a_gauge_for_each_window() {
    #[rate_limited(key = "two:{id}", name = "two", limits = ["5/1s", "20/1h"], fallback = None)]
    async fn two(id: u32) -> Option<u32> {
        Some(id)
    }
    let limiter = limiter(|builder| builder);
    for _ in 0..6 {
        let _ = limiter.scope(two(1)).await;
    }
    assert_eq!((decisions("two", "allowed", "store"), decisions("two", "denied", "store")), (5.0, 1.0));
    assert_eq!(of_rule("rate_limited_permits_total", "two"), 5.0);
    assert_eq!((limit_in_force("two", "1s"), limit_in_force("two", "1h")), (Some(5.0), Some(20.0)));
}

#[tokio::test]
async fn a_changed_limit_changes_its_gauge_and_a_window_that_is_not_in_force_gets_0() {
    let limiter = limiter(|builder| builder);
    let set = |text| limiter.set_rules(RuleSet::new().rule("changed", Rule::new().limit(limit(text))));
    let check = || limiter.check_rules_once("changed");
    check().await;
    assert_eq!(limit_in_force("changed", "1m"), Some(10.0));
    set("50/1m").expect("valid");
    check().await;
    assert_eq!(limit_in_force("changed", "1m"), Some(50.0));
    set("7/1h").expect("valid");
    check().await;
    assert_eq!((limit_in_force("changed", "1m"), limit_in_force("changed", "1h")), (Some(0.0), Some(7.0)));
}

trait CheckOnce {
    async fn check_rules_once(&self, rule: &str);
}

impl CheckOnce for Limiter {
    async fn check_rules_once(&self, rule: &str) {
        let _ = self.named(rule).check(&key(rule), &limit("10/1m")).await.expect("decides");
    }
}

#[tokio::test]
async fn a_shadowed_denial_counts_as_shadowed_and_an_off_rule_counts_nothing() {
    let rule = |mode| Rule::new().limit(limit("1/1m")).mode(mode);
    let limiter = limiter(|builder| {
        builder.rule("shadow", rule(Mode::Shadow)).rule("off", rule(Mode::Off)).rule("deny", rule(Mode::Deny))
    });
    for name in ["shadow", "off", "deny"] {
        for _ in 0..3 {
            limiter.check_rules_once(name).await;
        }
    }
    assert_eq!((decisions("shadow", "allowed", "store"), decisions("shadow", "shadowed", "store")), (1.0, 2.0));
    assert_eq!(decisions("shadow", "denied", "store"), 0.0);
    assert_eq!(decisions("deny", "denied", "mode"), 3.0);
    let names = Collector::installed().names();
    assert!(!names.iter().any(|name| name.contains(r#"rule="off""#)), "{names:?}");
    assert_eq!(limit_in_force("deny", "1m"), None);
}

#[tokio::test]
async fn a_peek_is_no_decision() {
    let limiter = limiter(|builder| builder);
    let _ = limiter.named("peeked").peek(&key("a"), &limit("1/1m")).await.expect("decides");
    let names = Collector::installed().names();
    assert!(!names.iter().any(|name| name.contains("peeked")), "{names:?}");
}

#[tokio::test]
async fn a_failure_policy_counts_as_the_source_and_takes_no_permits() {
    let failing = |on_error| limiter(|builder| builder.failing(ErrorKind::Timeout).on_error(on_error));
    failing(OnError::Open).check_rules_once("by-policy").await;
    failing(OnError::Closed).check_rules_once("by-policy").await;
    assert_eq!((decisions("by-policy", "allowed", "policy"), decisions("by-policy", "denied", "policy")), (1.0, 1.0));
    assert_eq!(of_rule("rate_limited_permits_total", "by-policy"), 0.0);
    assert_eq!(of_rule("rate_limited_near_limit_total", "by-policy"), 0.0);
    failing(OnError::Standby).check_rules_once("by-standby").await;
    assert_eq!(decisions("by-standby", "allowed", "standby"), 1.0);
    assert_eq!(of_rule("rate_limited_permits_total", "by-standby"), 1.0);
}

#[tokio::test]
async fn a_wait_is_recorded_in_seconds_for_each_rule_that_may_wait() {
    let clock = ManualClock::new();
    Collector::installed();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
    let (key, limit) = (key("a"), limit("1/2s"));
    let waited = limiter.named("waited");
    let wait = || waited.wait(&key, &limit, Duration::from_secs(10));
    let _ = wait().await.expect("decides");
    let second = async {
        let mut second = pin!(wait());
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        clock.advance(Duration::from_secs(2));
        second.await.expect("decides")
    };
    assert!(second.await.is_allowed());
    let samples = Collector::installed().samples(r#"rate_limited_wait_seconds{rule="waited"}"#);
    assert_eq!(samples, [0.0, 2.0]);
}

#[tokio::test]
async fn a_call_without_a_configured_limit_is_counted() {
    #[rate_limited(key = "unconfigured:{id}", name = "unconfigured", limit = configured, fallback = None)]
    async fn unconfigured(id: u32) -> Option<u32> {
        Some(id)
    }
    let limiter = limiter(|builder| builder);
    assert_eq!(limiter.scope(unconfigured(1)).await, Some(1));
    assert_eq!(of_rule("rate_limited_unconfigured_total", "unconfigured"), 1.0);
}
