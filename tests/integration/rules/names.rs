//! Names of rules that are compared with those of annotated functions.

use std::collections::BTreeSet;

use rate_limited::{ErrorKind, Key, KeyMatch, Limiter, Rule, RuleSet, rate_limited};

use crate::support::limit;

#[rate_limited(key = "known to sites:{user}", name = "known to sites", limit = "5/h", fallback = ())]
fn known(user: u64) {}

#[rate_limited(key = "prefixed:{user_id}", limit = "5/h", fallback = ())]
fn with_a_prefix(user_id: u64) {}

#[rate_limited("without a limit", fallback = ())]
fn without_a_limit() {}

mod first {
    #[rate_limited::rate_limited(key = "first twin", limit = "5/h", fallback = ())]
    pub(super) fn twin_function() {}
}

mod second {
    #[rate_limited::rate_limited(key = "second twin", limit = "5/h", fallback = ())]
    pub(super) fn twin_function() {}
}

#[test]
fn a_strict_set_must_have_a_function_for_each_rule() {
    let with_limit = |set: RuleSet| set.rule("without a limit", Rule::new().limit(limit("1/h")));
    let limiter = Limiter::builder().declare("declared").build().expect("valid");
    limiter.set_rules(with_limit(configured_rules().strict())).expect("all functions are known");
    let known = with_limit(configured_rules().strict())
        .rule("known to sites", Rule::new().limit(limit("9/h")))
        .rule("declared", Rule::new().limit(limit("9/h")));
    limiter.set_rules(known.clone()).expect("known names");
    let error = limiter.set_rules(known.rule("known to sitse", Rule::new())).expect_err("a wrong name");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "`strict` rules must each have a function, got `known to sitse` (is it `known to sites`?): write the names \
         of functions, make the layer before the limiter, or declare them by `key` in the rule or by `Builder::declare`"
    );
    let rules = limiter.rules();
    let rule = rules.iter().find(|rule| rule.name() == "known to sites").expect("a rule");
    assert_eq!((rule.limits(), rule.attribute_limits()), (&[limit("9/h")][..], &["5/h"][..]));
}

/// The overrides of a rule cannot be right if its name is wrong, so the message begins with the name.
#[test]
fn overrides_of_an_unknown_rule_are_explained_by_its_name() {
    let limiter = Limiter::builder().declare("declared").build().expect("valid");
    let rule = || Rule::new().overriding(KeyMatch::parts([("user", "7")]), Rule::new().limit(limit("1/h")));
    limiter.scope_sync(|| with_a_prefix(7));
    let unknown = [
        ("twin_function", " (is it one of `first twin` and `second twin`, the rules of such functions?)"),
        ("known", " (is it `known to sites`, the rule of that function?)"),
        ("known to sitse", " (is it `known to sites`?)"),
        ("prefixed", " (is it `prefixed:{user_id}`?)"),
        ("resembles nothing", ""),
    ];
    for (name, hint) in unknown {
        let error = limiter.set_rules(RuleSet::new().rule(name, rule())).expect_err(name);
        let message = format!(
            "the rule `{name}` must be that of a function, got a name that none has{hint}: write the attribute's `name`, \
             or its key as written there, or declare the name of a layer by `key` in the rule or by `Builder::declare`; override 1 of the rule `{name}`: `match` must be left out for `{name}`, "
        );
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with(&message), "{error}");
    }
    limiter.scope_sync(|| (first::twin_function(), second::twin_function()));
    // A layer that is made later may have the parts.
    limiter.set_rules(RuleSet::new().rule("declared", rule())).expect("declared");
}

/// Limits for all rules of this program that have none of their own, except one.
fn configured_rules() -> RuleSet {
    let names: BTreeSet<_> = rate_limited::sites()
        .into_iter()
        .filter(|site| site.limits() == ["configured"] && site.rule() != "without a limit")
        .map(|site| site.rule())
        .collect();
    names.into_iter().fold(RuleSet::new(), |set, name| set.rule(name, Rule::new().limit(limit("5/h"))))
}

#[test]
fn a_strict_set_must_have_a_limit_for_each_configured_rule() {
    let limiter = Limiter::memory();
    let error = limiter.set_rules(configured_rules().strict()).expect_err("one has no limit");
    assert_eq!(error.kind(), ErrorKind::Config);
    let start = "`limit` of the rule `without a limit` must be set with `strict`, got none for `configured` in ";
    assert!(error.to_string().starts_with(start), "{error}");
}

#[test]
fn calls_without_a_limit_are_counted() {
    let limiter = Limiter::memory();
    limiter.scope_sync(|| (0..3).for_each(|_| without_a_limit()));
    assert_eq!(limiter.unlimited_calls(), 3);
    limiter.set_rules(RuleSet::new().rule("without a limit", Rule::new().limit(limit("1/h")))).expect("valid");
    limiter.scope_sync(|| (0..3).for_each(|_| without_a_limit()));
    assert_eq!(limiter.unlimited_calls(), 3);
}

/// The parts of an override are those of the function's key, also if the rule has another name.
#[test]
fn parts_of_overrides_are_those_of_the_functions_key() {
    let limiter = Limiter::memory();
    let rule = |part| Rule::new().overriding(KeyMatch::parts([(part, "7")]), Rule::new().limit(limit("1/h")));
    limiter.set_rules(RuleSet::new().rule("known to sites", rule("user"))).expect("valid");
    limiter.scope_sync(|| (0..3).for_each(|_| known(7)));
    let key = Key::new("known to sites:").part(7);
    assert_eq!(limiter.peek_blocking(&key, &limit("5/h")).expect("memory").remaining(), 4);
    let error = limiter.set_rules(RuleSet::new().rule("known to sites", rule("name"))).expect_err("no such part");
    let start = "override 1 of the rule `known to sites`: `match` must name parts of the \
                 key `known to sites:{user}`, got `name`: write one of `user`";
    assert!(error.to_string().starts_with(start), "{error}");
}
