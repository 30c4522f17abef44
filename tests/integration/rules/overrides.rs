//! Overrides of rules for some keys.

use rate_limited::{Algorithm, Denied, ErrorKind, Key, KeyMatch, Limiter, Mode, Origin, Rule, RuleSet, rate_limited};

use crate::support::limit;

#[rate_limited(key = "{tenant}/{user}", limit = "2/h")]
fn act(tenant: &str, user: &str) -> Result<(), Denied> {
    Ok(())
}

/// The calls that are allowed of the first 20.
fn allowed(tenant: &str, user: &str) -> usize {
    (0..20).filter(|_| act(tenant, user).is_ok()).count()
}

fn max(text: &str) -> Rule {
    Rule::new().limit(limit(text))
}

fn rules(rule: Rule) -> RuleSet {
    RuleSet::new().rule("{tenant}/{user}", rule)
}

#[test]
fn the_override_with_the_most_matching_parts_applies() {
    let limiter = Limiter::memory();
    let both = Key::new("").part("acme").text("/").part("vip");
    let rule = max("3/h")
        .overriding(KeyMatch::parts([("tenant", "acme")]), max("4/h"))
        .overriding(KeyMatch::parts([("user", "vip")]), max("5/h"))
        .overriding(KeyMatch::parts([("tenant", "acme"), ("user", "boss")]), max("6/h"))
        .overriding(KeyMatch::key(&both), max("7/h"));
    limiter.set_rules(rules(rule)).expect("valid");
    limiter.scope_sync(|| {
        assert_eq!(allowed("other", "any"), 3);
        assert_eq!(allowed("acme", "any"), 4);
        assert_eq!(allowed("other", "vip"), 5);
        assert_eq!(allowed("acme", "boss"), 6);
        assert_eq!(allowed("acme", "vip"), 7);
    });
    let in_force = limiter.rules();
    let rule = in_force.iter().find(|rule| rule.name() == "{tenant}/{user}").expect("a rule");
    assert_eq!((rule.overrides(), rule.origin()), (4, Origin::Runtime));
}

/// Lengthening another part of the key does not escape an override, also when the key is stored as a digest.
#[test]
fn overrides_match_keys_of_any_length() {
    let limiter = Limiter::memory();
    let rule = max("3/h").overriding(KeyMatch::parts([("user", "blocked")]), Rule::new().mode(Mode::Deny));
    limiter.set_rules(rules(rule)).expect("valid");
    limiter.scope_sync(|| {
        for length in [0, 1, 100, 199, 200, 201, 1_000, 100_000] {
            let tenant = "t".repeat(length);
            assert_eq!(allowed(&tenant, "blocked"), 0, "{length} bytes");
            assert_eq!(allowed(&tenant, "free"), 3, "{length} bytes");
        }
    });
}

/// Neither by a long part, nor by a character that a pattern has as a sign.
#[test]
fn a_pattern_matches_each_part_with_its_beginning() {
    let limiter = Limiter::memory();
    let denied = || Rule::new().mode(Mode::Deny);
    let rule = max("3/h")
        .overriding(KeyMatch::parts([("user", "test-*")]), denied())
        .overriding(KeyMatch::any_of([("tenant", ["10.0.0.0/8", "2001:db8::/48", r"\*"])]), denied());
    limiter.set_rules(rules(rule)).expect("valid");
    limiter.scope_sync(|| {
        for length in [0, 1, 194, 195, 196, 1_000, 100_000] {
            assert_eq!(allowed("t", &format!("test-{}", "x".repeat(length))), 0, "{length} bytes");
            assert_eq!(allowed("t", &format!("tesx-{}", "x".repeat(length))), 3, "{length} bytes");
            assert_eq!(allowed("10.1.2.3", &"x".repeat(length)), 0, "{length} bytes");
        }
        assert_eq!(
            [allowed("2001:db8::9", "a"), allowed("*", "a"), allowed("**", "a"), allowed("11.1.2.3", "a")],
            [0, 0, 3, 3]
        );
    });
}

#[test]
fn settings_that_an_override_lacks_come_from_its_rule() {
    let limiter = Limiter::memory();
    let rule = max("3/h").mode(Mode::Shadow).overriding(KeyMatch::parts([("user", "a")]), max("1/h"));
    let rule = rule.overriding(KeyMatch::parts([("user", "b")]), Rule::new().mode(Mode::Enforce));
    limiter.set_rules(rules(rule)).expect("valid");
    limiter.scope_sync(|| assert_eq!((allowed("t", "a"), allowed("t", "b"), allowed("t", "c")), (20, 3, 20)));
}

/// Limits of a level replace those of overrides in lower levels. Their modes stay in force.
#[test]
fn limits_of_a_higher_level_hide_those_of_lower_overrides() {
    let lower = max("3/h")
        .overriding(KeyMatch::parts([("user", "wide")]), max("9/h"))
        .overriding(KeyMatch::parts([("user", "blocked")]), Rule::new().mode(Mode::Deny));
    let limiter = Limiter::builder().rules(rules(lower)).build().expect("valid");
    let counts = || limiter.scope_sync(|| [allowed("t", "wide"), allowed("t", "blocked"), allowed("t", "other")]);
    assert_eq!(counts(), [9, 0, 3]);
    for user in ["wide", "other"] {
        let key = Key::new("").part("t").text("/").part(user);
        limiter.reset_blocking(&key, &limit("1/h")).expect("memory");
    }
    limiter.set_rules(rules(max("4/h"))).expect("valid");
    assert_eq!(counts(), [4, 0, 4]);
    limiter.set_rules(rules(Rule::new().mode(Mode::Enforce))).expect("valid");
    assert_eq!(counts(), [5, 3, 0]);
}

#[test]
fn invalid_overrides_are_rejected() {
    let nested = Rule::new().overriding(KeyMatch::parts([("user", "a")]), Rule::new());
    let fixed = Rule::new().algorithm(Algorithm::FixedWindow);
    let cases = [
        (
            Rule::new().overriding(KeyMatch::parts([("usr", "a")]), max("1/h")),
            "override 1 of the rule `{tenant}/{user}`: `match` must name parts of the key \
             `{tenant}/{user}`, got `usr`: write `user`",
        ),
        (
            max("1/h")
                .overriding(KeyMatch::parts([("user", "a")]), max("1/h"))
                .overriding(KeyMatch::parts([("user", "a")]), max("2/h")),
            "override 2 of the rule `{tenant}/{user}`: `override` must match other keys than \
             those before it, got number 2 that matches the same keys as number 1",
        ),
        (
            Rule::new().overriding(KeyMatch::parts([("user", "b")]), nested),
            "`overriding` of the rule `{tenant}/{user}` must have rules without overrides",
        ),
        (
            Rule::new().overriding(KeyMatch::parts([("user", "b")]), fixed.burst(3)),
            "`burst` of an override of the rule `{tenant}/{user}` must be left out for `fixed_window`, got 3",
        ),
    ];
    let patterns = [
        (
            Rule::new().overriding(KeyMatch::parts([("user", "secret*x")]), max("1/h")),
            "override 1 of the rule `{tenant}/{user}`: `user` must have a `*` only as its last character, got one before \
             others: remove it, or write `\\*` for the character itself",
        ),
        (
            Rule::new().overriding(KeyMatch::any_of([("user", [""; 0])]), max("1/h")),
            "override 1 of the rule `{tenant}/{user}`: `user` must have at least one value, got an empty list",
        ),
        (
            Rule::new().overriding(KeyMatch::parts([("user", "é".repeat(34) + "*")]), max("1/h")),
            "override 1 of the rule `{tenant}/{user}`: `user` must have at most 200 bytes before its `*`, of which all but \
             letters, digits, `-`, `_` and `.` count three times, got 204: write a shorter text",
        ),
    ];
    let limiter = Limiter::memory();
    for (rule, message) in cases.into_iter().chain(patterns) {
        let error = limiter.set_rules(rules(rule)).expect_err(message);
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with(message), "{error}");
    }
    let many =
        (0..100_001).fold(Rule::new(), |rule, user| rule.overriding(KeyMatch::parts([("user", user)]), max("1/h")));
    let error = limiter.set_rules(rules(many)).expect_err("too many");
    assert!(error.to_string().starts_with("`overriding` must be used at most 100000 times, got 100001"), "{error}");
}

/// A direct call's key is matched by the parts of the rule's name, if that is a template.
#[tokio::test]
async fn overrides_apply_to_named_calls() {
    let limiter = Limiter::memory();
    limiter.set_rules(rules(max("3/h").overriding(KeyMatch::parts([("user", "a")]), max("1/h")))).expect("valid");
    let named = limiter.named("{tenant}/{user}");
    let decide = async |user| {
        let key = Key::new("").part("t").text("/").part(user);
        named.check(&key, &limit("9/h")).await.expect("memory").into_result().expect("the first").limit()
    };
    assert_eq!((decide("a").await, decide("b").await), (limit("1/h"), limit("3/h")));
}

/// What belongs to another limit does not apply: the burst of a lower level, and that of a hidden override.
#[tokio::test]
async fn a_limit_with_an_algorithm_keeps_its_own_burst() {
    let bucket = limit("5/s").with_algorithm(Algorithm::TokenBucket);
    let lower = max("1000/h")
        .algorithm(Algorithm::TokenBucket)
        .burst(500)
        .overriding(KeyMatch::parts([("user", "vip")]), max("2000/h").burst(900));
    let limiter = Limiter::builder().rules(rules(lower)).build().expect("valid");
    let applied = async |user| {
        let key = Key::new("").part("t").text("/").part(user);
        let peeked = limiter.named("{tenant}/{user}").peek(&key, &limit("9/h")).await.expect("memory");
        peeked.into_result().expect("nothing is taken").limit()
    };
    assert_eq!((applied("any").await.burst(), applied("vip").await.burst()), (500, 900));
    limiter.set_rules(rules(Rule::new().limit(bucket))).expect("valid");
    assert_eq!((applied("any").await, applied("vip").await), (bucket, bucket));
    limiter.set_rules(rules(max("7/h"))).expect("valid");
    assert_eq!((applied("any").await.burst(), applied("vip").await.burst()), (500, 500));
}

/// Functions with another key under the same name: only the overrides that match their keys apply.
#[rate_limited(key = "shared:{user}", name = "shared name", limit = "2/h")]
fn first_of_name(user: u32) -> Result<(), Denied> {
    let _ = user;
    Ok(())
}

#[rate_limited(key = "shared:{user}:{file}", name = "shared name", limit = "2/h")]
fn second_of_name(user: u32, file: u32) -> Result<(), Denied> {
    let _ = (user, file);
    Ok(())
}

#[test]
fn overrides_apply_to_all_functions_whose_keys_have_the_parts() {
    let limiter = Limiter::memory();
    let rule = Rule::new().overriding(KeyMatch::parts([("user", 7)]), Rule::new().mode(Mode::Deny));
    limiter.set_rules(RuleSet::new().rule("shared name", rule)).expect("valid");
    limiter.scope_sync(|| {
        assert!(first_of_name(7).is_err() && second_of_name(7, 1).is_err());
        assert!(first_of_name(8).is_ok() && second_of_name(8, 1).is_ok());
    });
}
