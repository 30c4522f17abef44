use std::borrow::Cow;
use std::time::Duration;

use rate_limited::{Builder, ErrorKind, Key, Limit, Limiter, ManualClock, Mode, OnError, Rule, RuleSet, Source};

use super::*;

fn service_of(builder: Builder, rules: &str) -> DecisionService {
    let rules: RuleSet = rules.parse().expect("rules");
    let limiter = builder.rules(rules).report_limits(true).build().expect("valid");
    DecisionService::new(limiter, ServicePolicy { allows_limits: true, ..ServicePolicy::default() })
}

fn service(rules: &str) -> DecisionService {
    service_of(Limiter::builder().url("memory:").receipt_secret([7; 32]), rules)
}

fn call<'c>(name: &'c str, values: &[(&'c str, &'c str)]) -> Call<'c> {
    let values = values.iter().map(|(part, value)| (Cow::Borrowed(*part), Value::from(*value))).collect();
    Call::new(Target::Rule { name: name.into(), values: Values::Named(values) })
}

const SEARCH: &str = r#"
    [rules.search]
    key = "search:{user.id}/{tenant}"
    limits = ["2/10s", "5/h"]
    [rules.getId]
    limit = "1/10s"
"#;

#[tokio::test]
async fn a_call_counts_on_the_key_of_the_attribute_with_the_template() {
    let service = service(SEARCH);
    let answer = service.check(&call("search", &[("tenant", "a@b"), ("user.id", "42")])).await.expect("an answer");
    assert_eq!((answer.is_allowed(), answer.rule(), answer.source()), (true, "search", Source::Store));
    let limits: Vec<_> = answer.limits().map(|limit| (limit.limit.to_string(), limit.remaining)).collect();
    assert_eq!(limits, [("2/10s".to_owned(), 1), ("5/h".to_owned(), 4)]);
    let key = Key::from_template("search:{user.id}/{tenant}", [("user.id", "42"), ("tenant", "a@b")]).expect("a key");
    let left = service.limiter().peek(&key, &"2/10s".parse().expect("a limit")).await.expect("memory").remaining();
    assert_eq!(left, 1);
    let in_order = Values::InOrder(vec!["42".into(), "a@b".into()]);
    let second = Call::new(Target::Rule { name: "search".into(), values: in_order });
    assert!(service.check(&second).await.expect("an answer").is_allowed());
    let denied = service.check(&second).await.expect("an answer");
    assert!(!denied.is_allowed());
    let limits: Vec<_> =
        denied.limits().map(|limit| (limit.remaining, limit.retry_after.map(|time| time.is_zero()))).collect();
    assert_eq!(limits, [(0, Some(false)), (3, Some(true))]);
    // A name without braces is a constant key.
    assert!(service.check(&call("getId", &[])).await.expect("an answer").is_allowed());
    let denied = service.limiter().check(&Key::new("getId"), &"1/10s".parse().expect("a limit")).await.expect("memory");
    assert!(denied.is_denied());
}

#[tokio::test]
async fn a_call_that_fits_no_rule_has_a_problem_with_a_suggestion() {
    let service = service(
        r#"
        [rules.search]
        key = "search:{user_id}/{tenant}"
        limit = "2/10s"
        [rules.expression]
        key = "user:{user.id()}"
        limit = "2/10s"
        [rules.unset]
        key = "unset:{user_id}"
        mode = "enforce"
        [[rules.unset.override]]
        match = { user_id = "42" }
        limit = "3/10s"
        [rules.erp]
        limit = "2 concurrent"
        [rules.planned]
        plans = ["free"]
        [plans.free]
        limit = "2/h"
    "#,
    );
    let of_plan = |plan| Call { plan, ..call("planned", &[]) };
    let cases: [(Call<'_>, &str, &str); 11] = [
        (call("serch", &[]), "unknown-rule", "write `search`"),
        (call("nothing like it", &[]), "unknown-rule", ""),
        (call("search", &[("user_id", "1")]), "missing-value", "add a value for `tenant`"),
        (call("search", &[("user_id", "1"), ("tenant", "2"), ("tenand", "3")]), "unknown-value", "write `tenant`"),
        (call("search", &[("user_id", "1"), ("tenant", "2"), ("tenant", "3")]), "repeated-value", ""),
        (call("getId", &[]), "unknown-rule", ""),
        (call("expression", &[("user.id()", "1")]), "key-is-expression", "write names alone"),
        (call("unset", &[("user_id", "41")]), "rule-without-limit", "write its `limit`"),
        (call("erp", &[]), "rule-holds-slots", "enter, and leave"),
        (of_plan(""), "plan-needed", "write one of `free`"),
        (of_plan("gold"), "plan-needed", "write one of `free`"),
    ];
    for (call, code, suggestion) in cases {
        let problem = service.check(&call).await.expect_err(code);
        assert_eq!(problem.code(), code, "{problem:?}");
        let suggested = problem.suggestion().unwrap_or_default();
        assert!(suggested.starts_with(suggestion) && suggested.is_empty() == suggestion.is_empty(), "{suggested}");
        assert!(!problem.detail().is_empty() && !problem.title().is_empty());
    }
    let too_many = Target::Rule { name: "search".into(), values: Values::InOrder(vec!["1".into()]) };
    assert_eq!(service.check(&Call::new(too_many)).await.expect_err("one value").code(), "wrong-number-of-values");
    assert!(service.check(&call("unset", &[("user_id", "42")])).await.expect("the override").is_allowed());
    assert!(service.check(&of_plan("free")).await.expect("the plan").is_allowed());
}

/// A bound of the time for wrong names, which all other calls would miss.
#[tokio::test]
async fn only_some_wrong_names_in_a_second_get_a_suggestion() {
    let service = service(SEARCH);
    let suggested = async || {
        let problem = service.check(&call("serch", &[])).await.expect_err("no such rule");
        assert_eq!(problem.code(), "unknown-rule");
        problem.suggestion().is_some()
    };
    let mut number = 0;
    while suggested().await {
        number += 1;
        assert!(number < 100_000, "each gets one");
    }
    assert!(number >= 20);
}

#[tokio::test]
async fn many_values_are_refused_by_the_first_that_is_wrong() {
    let service = service(SEARCH);
    let many: Vec<_> = (0..100_000).map(|number| (Cow::Owned(format!("part{number}")), Value::from("1"))).collect();
    let values = [("tenant", "1"), ("user.id", "2")].map(|(part, value)| (Cow::Borrowed(part), Value::from(value)));
    let values = Values::Named(values.into_iter().chain(many).collect());
    let problem = service.check(&Call::new(Target::Rule { name: "search".into(), values })).await.expect_err("many");
    assert_eq!(problem.code(), "unknown-value");
}

#[tokio::test]
async fn a_changed_rule_holds_for_the_next_call() {
    let service = service(SEARCH);
    let added = call("added", &[]);
    assert_eq!(service.check(&added).await.expect_err("not yet").code(), "unknown-rule");
    let limit: Limit = "1/10s".parse().expect("a limit");
    let set = |rule| service.limiter().set_rules(RuleSet::new().rule("added", rule)).expect("valid");
    set(Rule::new().limit(limit));
    assert!(service.check(&added).await.expect("added").is_allowed());
    assert!(!service.check(&added).await.expect("added").is_allowed());
    set(Rule::new().mode(Mode::Off));
    let off = service.check(&added).await.expect("off");
    assert_eq!((off.is_allowed(), off.source(), off.limits().count()), (true, Source::Mode, 0));
    set(Rule::new().mode(Mode::Deny));
    let denied = service.check(&added).await.expect("denied");
    assert_eq!((denied.is_allowed(), denied.retry_after()), (false, None));
    service.limiter().set_rules(RuleSet::new()).expect("empty");
    assert_eq!(service.check(&added).await.expect_err("removed").code(), "unknown-rule");
}

#[tokio::test]
async fn limits_of_a_caller_count_apart_from_every_rule() {
    let service = service(SEARCH);
    let limit: Limit = "1/10s".parse().expect("a limit");
    let own = Call::new(Target::Limits { key: vec!["getId".into()], limits: vec![limit] });
    assert!(service.check(&own).await.expect("an answer").is_allowed());
    assert!(!service.check(&own).await.expect("an answer").is_allowed());
    assert!(service.check(&call("getId", &[])).await.expect("an answer").is_allowed());
    assert!(!service.peek(&own).await.expect("an answer").is_allowed());
    service.reset(&own).await.expect("reset");
    assert!(service.peek(&own).await.expect("an answer").is_allowed());
    let of = |limits: &[&str]| {
        let limits = limits.iter().map(|limit| limit.parse().expect("a limit")).collect();
        Call::new(Target::Limits { key: vec!["a".into()], limits })
    };
    let waiting = Call { max_wait: Duration::from_millis(1), ..of(&["1/s", "5/h"]) };
    for wrong in [of(&[]), of(&["1/10s", "2/10s"]), waiting] {
        assert_eq!(service.check(&wrong).await.expect_err("wrong limits").code(), "invalid-limits");
        assert_eq!(service.enter(&wrong, DEFAULT_TTL).await.expect_err("wrong limits").code(), "invalid-limits");
    }
    assert_eq!(service.peek(&of(&["1/s", "5/h"])).await.expect_err("several").code(), "invalid-limits");
    assert!(service.check(&of(&["1/s", "5/h"])).await.expect("an answer").is_allowed());
    let strict = DecisionService::new(service.limiter().clone(), ServicePolicy::default());
    assert_eq!(strict.check(&own).await.expect_err("not allowed").class(), ProblemClass::Forbidden);
}

#[tokio::test]
async fn a_receipt_settles_its_call_once_on_its_own_server() {
    let service = service(
        "[rules.tokens]\nkey = \"tokens:{org}\"\nlimit = \"1000/h\"\n[rules.later]\nlimit = \"5/h\"\npostpaid = true",
    );
    let tokens = Call { cost: 500, wants_receipt: true, ..call("tokens", &[("org", "acme")]) };
    let receipt = service.check(&tokens).await.expect("an answer").receipt().expect("wanted").to_string();
    let other = self::service("[rules.tokens]\nkey = \"tokens:{org}\"\nlimit = \"1000/h\"");
    assert_eq!(other.settle(&tokens, &receipt, 1).await.expect_err("another server").code(), "foreign-receipt");
    let of_other_key = call("tokens", &[("org", "other")]);
    assert_eq!(service.settle(&of_other_key, &receipt, 1).await.expect_err("another key").code(), "foreign-receipt");
    assert_eq!(service.settle(&tokens, "rl1-", 1).await.expect_err("no receipt").code(), "not-a-receipt");
    assert_eq!(service.settle(&tokens, &receipt, 620).await.expect("settled").remaining(), 380);
    assert_eq!(service.refund(&tokens, &receipt).await.expect_err("twice").code(), "used-receipt");
    assert_eq!(service.charge(&tokens).await.expect("charged").overdrawn(), 120);
    let without = service.check(&Call { cost: 0, ..call("tokens", &[("org", "acme")]) }).await.expect("an answer");
    assert!(without.receipt().is_none());
    // A rule that is settled afterwards always has one.
    assert!(service.check(&call("later", &[])).await.expect("an answer").receipt().is_some());
}

#[tokio::test]
async fn a_slot_is_held_until_its_caller_leaves() {
    let service = service("[rules.erp]\nlimit = \"1 concurrent\"");
    let (erp, ttl) = (call("erp", &[]), Duration::from_secs(60));
    let slot = service.enter(&erp, ttl).await.expect("an answer").slot().expect("entered").id.to_string();
    let denied = service.enter(&erp, ttl).await.expect("an answer");
    assert!(!denied.is_allowed() && denied.slot().is_none());
    assert_eq!(&*service.renew(&slot, ttl).expect("held").id, slot);
    service.leave(&slot).expect("held");
    assert_eq!(service.leave(&slot).expect_err("left").code(), "ended-slot");
    assert_eq!(service.renew(&slot, ttl).expect_err("left").code(), "ended-slot");
    let other = self::service("");
    assert_eq!(other.leave(&slot).expect_err("of another server").code(), "foreign-slot");
    assert_eq!(other.leave("sl1-x").expect_err("no slot").code(), "not-a-slot");
    assert_eq!(service.enter(&erp, Duration::ZERO).await.expect_err("no time").code(), "ttl-out-of-range");
    assert!(service.enter(&erp, ttl).await.expect("an answer").is_allowed());
}

#[tokio::test]
async fn a_wait_has_a_bound() {
    let service = service(SEARCH);
    let long = Call { max_wait: Duration::from_millis(1001), ..call("getId", &[]) };
    let problem = service.check(&long).await.expect_err("too long");
    assert_eq!(problem.detail(), "a call may wait for 1000 ms at most, got 1001 ms");
}

#[tokio::test]
async fn a_failure_is_a_problem_under_raise_alone() {
    let rules = "[rules.raise]\nlimit = \"1/10s\"\non_error = \"raise\"\n[rules.closed]\nlimit = \"1/10s\"\non_error = \"closed\"";
    let failing = Limiter::builder().failing(ErrorKind::Timeout).on_error(OnError::Standby);
    let service = service_of(failing, rules);
    let problem = service.check(&call("raise", &[])).await.expect_err("raised");
    assert_eq!((problem.code(), problem.class()), ("undecided", ProblemClass::Unavailable));
    let denied = service.check(&call("closed", &[])).await.expect("an answer");
    assert_eq!((denied.is_allowed(), denied.source()), (false, Source::Policy));
}

#[tokio::test]
async fn rules_are_decided_together_or_not_at_all() {
    let service = service(SEARCH);
    let user = call("search", &[("tenant", "a"), ("user.id", "1")]);
    let all = [call("getId", &[]), user.clone()];
    let answer = service.check_together(&all).await.expect("an answer");
    let limits: Vec<_> = answer.limits().map(|limit| (limit.rule.to_owned(), limit.remaining)).collect();
    assert_eq!(limits, [("getId".to_owned(), 0), ("search".to_owned(), 1), ("search".to_owned(), 4)]);
    assert!(!service.check_together(&all).await.expect("an answer").is_allowed());
    assert_eq!(service.peek(&user).await.expect("an answer").limits().next().expect("one").remaining, 1);
}

#[tokio::test]
async fn calls_that_wait_leave_half_of_the_places() {
    let service = service_of(Limiter::builder().url("memory:").clock(ManualClock::new()), SEARCH);
    let service =
        DecisionService::new(service.limiter().clone(), ServicePolicy { max_calls: 3, ..ServicePolicy::default() });
    let get_id = call("getId", &[]);
    assert!(service.check(&get_id).await.expect("an answer").is_allowed());
    let waiting = Call { max_wait: Duration::from_secs(1), ..call("search", &[("user.id", "1"), ("tenant", "a")]) };
    let places = (service.begin_for(waiting.max_wait).expect("the first"), service.begin_for(waiting.max_wait));
    assert!(places.1.is_ok(), "the second of two");
    assert_eq!(service.check(&waiting).await.expect_err("half is taken").code(), "too-many-calls");
    assert!(!service.check(&get_id).await.expect("an answer").is_allowed(), "it has the third place");
}

#[tokio::test]
async fn calls_beyond_the_most_are_refused_at_once() {
    let clock = ManualClock::new();
    let rules = "[rules.getId]\nlimit = \"1/500ms\"";
    let service = service_of(Limiter::builder().url("memory:").clock(clock.clone()), rules);
    let service =
        DecisionService::new(service.limiter().clone(), ServicePolicy { max_calls: 1, ..ServicePolicy::default() });
    let get_id = call("getId", &[]);
    assert!(service.check(&get_id).await.expect("an answer").is_allowed());
    let waiting = Call { max_wait: Duration::from_millis(500), ..get_id.clone() };
    let mut waiting = std::pin::pin!(service.check(&waiting));
    // The wait has begun, and ends with its future.
    let polled =
        std::future::poll_fn(|context| std::task::Poll::Ready(waiting.as_mut().poll(context).is_pending())).await;
    assert!(polled, "it waits");
    assert_eq!(service.check(&get_id).await.expect_err("one runs").code(), "too-many-calls");
    clock.advance(Duration::from_millis(500));
    assert!(waiting.await.expect("an answer").is_allowed());
    assert!(!service.check(&get_id).await.expect("an answer").is_allowed());
}
