//! Sets of rules that are checked together, as each call uses them together.

use rate_limited::{Algorithm, Builder, ErrorKind, Key, KeyMatch, Layout, Limiter, Rule, RuleSet};

use crate::support::limit;

fn set(rule: Rule) -> RuleSet {
    RuleSet::new().rule("job:{id}", rule)
}

fn builder(rule: Rule) -> Builder {
    Limiter::builder().declare("job:{id}").declare("upload").rules(set(rule))
}

/// Asserts that the rules are rejected with this message, and that those in force stay.
fn assert_rejected(limiter: &Limiter, rules: RuleSet, message: &str) {
    let before = limiter.rules();
    let error = limiter.set_rules(rules).expect_err(message);
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().starts_with(message), "{error}");
    // A layer that another test makes meanwhile is listed as well.
    let mut after = limiter.rules();
    after.retain(|rule| before.iter().any(|other| other.name() == rule.name()));
    assert_eq!(format!("{after:?}"), format!("{before:?}"));
}

#[test]
fn settings_of_several_sets_that_contradict_each_other_are_rejected() {
    let bucket = || Rule::new().algorithm(Algorithm::TokenBucket);
    let limiter = builder(Rule::new().limit(limit("5/s")).layout(Layout::Zset)).build().expect("valid");
    assert_rejected(
        &limiter,
        set(bucket()),
        "`layout` of the rule `job:{id}` with all sets of rules must be `compact` for `token_bucket`",
    );
    let override_of_one = set(Rule::new().overriding(KeyMatch::parts([("id", 7)]), bucket()));
    assert_rejected(
        &limiter,
        override_of_one,
        "`layout` of override 1 of the rule `job:{id}` with all sets of rules must be `compact`",
    );
    let limiter = builder(Rule::new().algorithm(Algorithm::FixedWindow)).build().expect("valid");
    assert_rejected(
        &limiter,
        set(Rule::new().burst(7)),
        "`burst` of the rule `job:{id}` with all sets of rules must be left out for `fixed_window`, got 7",
    );
    limiter.set_rules(set(bucket().burst(7))).expect("the higher algorithm applies");
}

#[tokio::test]
async fn a_burst_belongs_to_the_algorithm_of_its_set_and_those_above() {
    let limiter = builder(Rule::new().algorithm(Algorithm::TokenBucket).burst(50)).build().expect("valid");
    let (key, default) = (Key::new("job:").part(1), limit("9/h"));
    for algorithm in [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::LeakyBucket] {
        limiter
            .set_rules(set(Rule::new().limit(limit("5/s")).algorithm(algorithm)))
            .expect("the higher algorithm applies");
        let applied = limiter.named("job:{id}").peek(&key, &default).await.expect("decides").limit();
        assert_eq!((applied.algorithm(), applied.max()), (algorithm, 5));
        assert_eq!(applied.burst(), if algorithm == Algorithm::LeakyBucket { 50 } else { 5 });
        limiter.set_rules(RuleSet::new()).expect("an empty set undoes");
    }
}

#[test]
fn sorted_sets_cannot_be_set_at_run_time_if_keys_are_hashed() {
    let limiter = builder(Rule::new()).hash_keys([7; 16]).build().expect("valid");
    let rules = set(Rule::new().limit(limit("5/s")).layout(Layout::Zset));
    assert_rejected(&limiter, rules, "`hash_keys` must be left out with `layout = \"zset\"`, got the rule `job:{id}`");
}

#[tokio::test]
async fn a_key_that_one_set_states_is_that_of_the_rule_in_all_sets() {
    let stated: RuleSet = "[rules.upload]\nkey = \"upload:{user}\"".parse().expect("valid");
    let for_user = || {
        let one = Rule::new().limit(limit("1/h"));
        RuleSet::new().rule("upload", Rule::new().overriding(KeyMatch::parts([("user", 42)]), one))
    };
    let limiter = Limiter::builder().rules(stated).build().expect("valid");
    limiter.set_rules(for_user()).expect("the key is known");
    let (user, other) = (Key::new("upload:").part(42), Key::new("upload:").part(43));
    let upload = limiter.named("upload");
    let default = limit("9/h");
    assert!(upload.check(&user, &default).await.expect("decides").is_allowed());
    assert!(upload.check(&user, &default).await.expect("decides").is_denied());
    assert!(upload.check(&other, &default).await.expect("decides").is_allowed());
    assert!(upload.check(&other, &default).await.expect("decides").is_allowed());

    let wrong_part = Rule::new().overriding(KeyMatch::parts([("usr", 42)]), Rule::new());
    assert_rejected(
        &limiter,
        RuleSet::new().rule("upload", wrong_part),
        "override 1 of the rule `upload`: `match` must name parts of the key `upload:{user}`, got `usr`",
    );
    assert_rejected(
        &limiter,
        "[rules.upload]\nkey = \"upload:{client}\"".parse().expect("valid"),
        "`key` of the rule `upload` must be the same in all sets of rules",
    );
    // Without the key the parts are unknown, unless a layer may have them.
    let error = Limiter::builder().rules(for_user()).build().expect_err("no key");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(Limiter::builder().declare("upload").rules(for_user()).build().is_ok());
}

/// The file is always there, so the builder's rules may need it.
#[test]
fn rules_of_the_builder_may_need_the_key_of_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.toml");
    std::fs::write(&file, "[rules.upload]\nkey = \"upload:{user}\"").expect("written");
    let one = Rule::new().overriding(KeyMatch::parts([("user", 42)]), Rule::new().limit(limit("1/h")));
    let rules = RuleSet::new().rule("upload", one);
    let limiter = Limiter::builder().rules(rules).rules_file(&file).build().expect("the key is known");
    limiter.set_rules(RuleSet::new().rule("upload", Rule::new())).expect("valid");
    limiter.set_rules(RuleSet::new()).expect("an empty set undoes");
}
