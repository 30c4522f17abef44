use std::iter;
use std::time::Duration;

use super::*;
use crate::limiter::tests::Warnings;
use crate::request::CallSettings;
use crate::rule::{CustomerPlan, KeyText, Rule, RuleSet, UNCACHED};
use crate::{Algorithm, Builder, Key, Limiter};

const POLICIES: [OnError; 4] = [OnError::Open, OnError::Closed, OnError::Standby, OnError::Raise];

fn settings_of_a_policy() -> impl Iterator<Item = Option<OnError>> {
    POLICIES.into_iter().map(Some).chain([None])
}

#[test]
fn a_policy_is_that_of_the_rule_the_caller_the_defaults_or_the_limiter_in_this_order() {
    for of_rules in settings_of_a_policy() {
        for on_error in settings_of_a_policy() {
            for of_defaults in settings_of_a_policy() {
                for of_limiter in POLICIES {
                    let set: Vec<_> =
                        [of_rules, on_error, of_defaults, Some(of_limiter)].into_iter().flatten().collect();
                    let resolve = |returns_errors| {
                        OwnPolicy { on_error, returns_errors, max_deadline: None }.resolve(
                            of_rules,
                            of_defaults,
                            of_limiter,
                        )
                    };
                    assert_eq!(resolve(true), set[0]);
                    let without_errors = if set[0] == OnError::Raise { OnError::Closed } else { set[0] };
                    assert_eq!(resolve(false), without_errors, "no caller without a handler gets an error");
                }
            }
        }
    }
}

#[derive(Clone)]
struct Reference;

impl RuleRef for Reference {
    fn position(&self) -> u32 {
        UNCACHED
    }

    fn name_and_key(&self) -> (&str, KeyText) {
        ("a", KeyText::Unknown)
    }
}

fn plan_of<'a>(limiter: &Limiter, key: &'a Key, limits: &[Limit], own: OwnPolicy) -> Plan<'a> {
    let limits = OwnLimits::Layer(limits);
    let rule = RuleUse {
        rule_index: 0,
        name: "a",
        key,
        limits,
        cost: 3,
        own: CallSettings::NONE,
        customer_plan: CustomerPlan::NONE,
    };
    limiter.inside().rules.plan(own, &iter::once((rule, Reference))).expect("few requests")
}

#[test]
fn one_request_is_planned_without_those_of_other_rules_and_with_final_options() {
    let (key, limit) = (Key::new("a"), "5/10s".parse().expect("a limit"));
    let limiter = Builder::default().on_error(OnError::Open).build().expect("valid");
    let own = OwnPolicy { on_error: Some(OnError::Raise), returns_errors: false, max_deadline: None };
    let plan = plan_of(&limiter, &key, &[limit], own);
    let Planned::Single { request: [request], .. } = &plan.requests else { panic!("one request") };
    assert_eq!((request.limit, request.cost, plan.options.on_error), (limit, 3, OnError::Closed));

    let rule = Rule::new().limit("7/1s".parse().expect("a limit")).deadline(Duration::from_millis(20));
    limiter.set_rules(RuleSet::new().rule("a", rule.clone().on_error(OnError::Standby))).expect("valid");
    let read = plan_of(&limiter, &key, &[limit], own);
    let Planned::Single { request: [request], .. } = &read.requests else { panic!("one request") };
    assert_eq!((request.limit.max(), request.cost), (7, 3));
    assert_eq!((read.options.on_error, read.options.deadline), (OnError::Standby, Some(Duration::from_millis(20))));
    assert!(!read.is_same(&plan) && read.generation != plan.generation);

    limiter.set_rules(RuleSet::new().rule("a", rule.mode(Mode::Off))).expect("valid");
    assert!(matches!(plan_of(&limiter, &key, &[limit], own).requests, Planned::Off { name: "a", .. }));
}

/// A call that waits compares its plans, and keeps its place if they are the same.
#[test]
fn a_request_is_the_same_whether_its_rule_has_a_line_in_the_log_or_not() {
    let (key, limit) = (Key::new("a"), "5/10s".parse().expect("a limit"));
    let limiter = Builder::default().build().expect("valid");
    // The burst is ignored, which the first reading logs.
    limiter.set_rules(RuleSet::new().rule("a", Rule::new().burst(9))).expect("valid");
    let [first, second] = [(); 2].map(|()| plan_of(&limiter, &key, &[limit], OwnPolicy::NONE));
    assert!(matches!((&first.requests, &second.requests), (Planned::Rules(_), Planned::Single { .. })));
    assert!(first.is_same(&second) && second.is_same(&first));
    let other = plan_of(&limiter, &key, &[limit.with_algorithm(Algorithm::FixedWindow)], OwnPolicy::NONE);
    assert!(!other.is_same(&second) && !other.is_same(&first));
}

/// A call has it on its stack.
#[test]
fn a_plan_is_small() {
    let bytes = size_of::<Plan<'_>>();
    assert!(bytes <= 144, "{bytes} bytes");
}

/// A rule whose calls nothing can charge is not postpaid, and says so once.
#[test]
fn postpaid_without_a_settlement_is_one_warning() {
    let (key, limits) = (Key::new("a"), ["5/10s".parse().expect("a limit")]);
    let limiter = Limiter::memory();
    limiter.set_rules(RuleSet::new().rule("a", Rule::new().postpaid(true))).expect("valid");
    let plan = |rule: RuleUse<'_, '_>| {
        let plan = limiter.inside().rules.plan(OwnPolicy::NONE, &iter::once((rule, Reference))).expect("few requests");
        match &plan.requests {
            Planned::Single { request: [request], .. } => request.role.is_postpaid(),
            Planned::Rules(rules) => rules.enforced.requests.iter().all(|request| request.role.is_postpaid()),
            Planned::Off { .. } => panic!("the rule is enforced"),
        }
    };
    let rule = RuleUse {
        rule_index: 0,
        name: "a",
        key: &key,
        limits: OwnLimits::Layer(&limits),
        cost: 3,
        own: CallSettings::NONE,
        customer_plan: CustomerPlan::NONE,
    };
    let lines = Warnings::during(|| assert!(plan(rule)));
    assert!(!lines.iter().any(|line| line.contains("postpaid")), "{lines:?}");
    let lines = Warnings::during(|| assert!(!plan(rule.never_settled()) && !plan(rule.never_settled())));
    assert_eq!(
        lines.iter().filter(|line| line.contains("rule `a` has calls that nothing settles")).count(),
        1,
        "{lines:?}"
    );
}

/// Settings of windows reach no slot, and each of them says so once.
#[test]
fn a_setting_of_windows_on_calls_at_once_is_one_warning() {
    let (key, limits) = (Key::new("a"), [Limit::concurrent(50).expect("valid")]);
    for (rule, word) in [
        (Rule::new().algorithm(Algorithm::TokenBucket), "remove `algorithm`"),
        (Rule::new().postpaid(true), "remove `postpaid`"),
        (Rule::new().burst(7), "a rule has a burst"),
    ] {
        let limiter = Limiter::memory();
        limiter.set_rules(RuleSet::new().rule("a", rule)).expect("valid");
        let lines = Warnings::during(|| {
            for _ in 0..2 {
                let plan = plan_of(&limiter, &key, &limits, OwnPolicy::NONE);
                let request = match &plan.requests {
                    Planned::Single { request: [request], .. } => *request,
                    Planned::Rules(rules) => rules.slots.requests[0],
                    Planned::Off { .. } => panic!("the rule is enforced"),
                };
                assert_eq!((request.limit, request.cost, request.role.is_postpaid()), (limits[0], 3, false), "{word}");
            }
        });
        assert_eq!(lines.iter().filter(|line| line.contains(word)).count(), 1, "{word}: {lines:?}");
    }
}

#[test]
fn a_postpaid_call_has_a_slot_and_owes_its_windows() {
    let (key, limiter) = (Key::new("a"), Limiter::memory());
    let limits = ["5 concurrent", "100/min"].map(|text| text.parse().expect("a limit"));
    let rule = RuleUse {
        rule_index: 0,
        name: "a",
        key: &key,
        limits: OwnLimits::Layer(&limits),
        cost: 0,
        own: CallSettings::NONE,
        customer_plan: CustomerPlan::NONE,
    };
    let rule = rule.with_postpaid(true);
    let plan = limiter.inside().rules.plan(OwnPolicy::NONE, &iter::once((rule, Reference))).expect("few requests");
    let Planned::Rules(rules) = &plan.requests else { panic!("two limits") };
    let of_all = rules.slots.requests.iter().chain(&rules.enforced.requests);
    let of_all: Vec<_> = of_all.map(|request| (request.cost, request.role.is_postpaid())).collect();
    assert_eq!(of_all, [(1, false), (1, true)]);
}

/// A limit of one kind gives nothing to one of the other.
#[test]
fn windows_and_calls_at_once_replace_each_other_as_they_are() {
    let (key, limiter) = (Key::new("a"), Limiter::memory());
    let (concurrent, window) = (Limit::concurrent(50).expect("valid"), "5/10s".parse::<Limit>().expect("a limit"));
    let bucket = window.with_algorithm(Algorithm::TokenBucket).with_burst(7).expect("a bucket");
    let limits_of = |configured: Rule, own: &[Limit]| {
        limiter.set_rules(RuleSet::new().rule("a", configured)).expect("valid");
        match &plan_of(&limiter, &key, own, OwnPolicy::NONE).requests {
            Planned::Single { request: [request], .. } => vec![request.limit],
            Planned::Rules(rules) => {
                rules.slots.requests.iter().chain(&rules.enforced.requests).map(|request| request.limit).collect()
            }
            Planned::Off { .. } => panic!("the rule is enforced"),
        }
    };
    let rule = |limit| Rule::new().limit(limit);
    assert_eq!(limits_of(rule(concurrent), &[bucket]), [concurrent]);
    assert_eq!(limits_of(rule(window), &[concurrent]), [window]);
    assert_eq!(limits_of(rule(window), &[concurrent, bucket]), [bucket], "the algorithm of the other window");
    let both = rule(concurrent).limit(window).algorithm(Algorithm::TokenBucket).burst(7);
    assert_eq!(limits_of(both, &[window]), [concurrent, bucket]);
    let error = limiter.set_rules(RuleSet::new().rule("a", Rule::new().algorithm(Algorithm::Concurrent)));
    let message =
        "`algorithm` of the rule `a` must be that of a window, got `concurrent`: write the limit as `50 concurrent`";
    assert_eq!(error.expect_err("no algorithm of a window").to_string(), message);
}
