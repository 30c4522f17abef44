use std::borrow::Cow;
use std::time::Duration;

use crate::{Algorithm, Builder, ErrorKind, Key, KeyMatch, Layout, Limit, Limiter, Rule, RuleSet};

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

/// Every configuration error of `build`, apart from those of a server's URL.
#[test]
fn each_configuration_error_names_option_bound_value_and_remedy() {
    let (new, rule) = (Limiter::builder, Rule::new);
    let bucket = limit("5/s").with_algorithm(Algorithm::TokenBucket);
    let cases: Vec<(Builder, &str)> = vec![
        (
            new().deadline(Duration::from_micros(999)),
            "`deadline` must be between 1 ms and 60 s, got 999µs: write one such as `Duration::from_millis(100)`",
        ),
        (
            new().deadline(Duration::from_secs(61)),
            "`deadline` must be between 1 ms and 60 s, got 61s: write one such as `Duration::from_millis(100)`",
        ),
        (
            new().prefix(""),
            "`prefix` must be 1 to 64 letters, digits and `-`, `_`, `.`, `:`, got \"\": leave it out for the default of \
             `rl`",
        ),
        (
            new().prefix("a{b}"),
            "`prefix` must be 1 to 64 letters, digits and `-`, `_`, `.`, `:`, got \"a{b}\": leave it out for the default \
             of `rl`",
        ),
        (new().max_in_flight(0), "`max_in_flight` must be at least 1, got 0: leave it out for the default of 100000"),
        (
            new().busy_poll(Duration::from_micros(1_001)),
            "`busy_poll` must be at most 1 ms, got 1.001ms: leave it out for the default of 100 µs",
        ),
        (new().max_keys(0), "`max_keys` must be at least 1, got 0: leave it out for the default of 1000000"),
        (new().instances(0), "`instances` must be at least 1, got 0: leave it out for a program with one instance"),
        (
            new().remember_denials(Duration::from_secs(61)),
            "`remember_denials` must be at most 60 s, got 61s: leave it out for the default of 1 s",
        ),
        (
            new().declare(""),
            "`declare` must have the name of a rule, got an empty text: write that of a direct call or a layer",
        ),
        (
            new().rule("", rule()),
            "`rule` must have a name, got an empty text: write the attribute's `name`, or its key as written there",
        ),
        (
            new().rule("a", rule()).rule("a", rule()),
            "`rule` must be set once for a name, got `a` twice: write one `Rule` for it",
        ),
        (
            new().rule("a", rule().deadline(Duration::ZERO)),
            "`deadline` of the rule `a` must be between 1 ms and 60 s, got 0ns: write one such as \
             `Duration::from_millis(100)`",
        ),
        (
            new().rule("a", rule().limit(limit("5/s")).limit(limit("9/h")).layout(Layout::Zset)),
            "`limit` of the rule `a` must be set once with `layout = \"zset\"`, got 2 limits: write one",
        ),
        (
            new().rule("a", rule().limit(bucket).layout(Layout::Zset)),
            "`layout` of the rule `a` must be `compact` for `token_bucket`, got `zset`: use `sliding_window` as the \
             `algorithm`, or remove it",
        ),
        (new().url(""), "`url` must be the URL of a store, got an empty text: write `memory:` or `redis://host:port`"),
        (
            new().url("localhost:6379"),
            "`url` must begin with a scheme, got none: write `redis://` before the host, or `memory:`",
        ),
        (
            new().url("memory:8"),
            "`url` must be `memory:` alone for the store in this process, got more text behind it: write `memory:`",
        ),
        (
            new().url("http://:password@host"),
            "`url` must begin with the scheme of a store, got an unknown scheme: write `memory:`, `redis://host:port`, \
             `rediss://host:port`, `redis+unix:///path`, `redis-sentinel://host:port/name` or \
             `redis-cluster://host:port`",
        ),
    ];
    for (builder, message) in cases {
        let error = builder.build().expect_err(message);
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, message));
    }
}

/// An empty path of a cache made a limiter that never wrote it.
#[cfg(all(feature = "rules", feature = "redis"))]
#[tokio::test]
async fn paths_that_are_empty_or_of_a_directory_are_configuration_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let new = || Limiter::builder().url("redis://127.0.0.1:1");
    let cache = |path: &std::path::Path| new().shared_rules().shared_rules_cache(path);
    let empty = std::path::Path::new("");
    for (builder, message) in [
        (new().rules_file(""), "`rules_file` must be the path of a file, got an empty one: write one, or leave it out"),
        (
            new().rules_file(directory.path()),
            "`rules_file` must be a file, got a directory or a device: write the path",
        ),
        (cache(empty), "`shared_rules_cache` must be the path of a file, got an empty one: write one, or leave it out"),
        (cache(directory.path()), "`shared_rules_cache` must be a file that only limiters write, got a directory or a"),
    ] {
        let error = builder.build().expect_err(message);
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(message), "{error}");
    }
    new().rules_file("").connect().await.expect_err("an empty path");
}

#[cfg(not(feature = "leases"))]
#[test]
fn leases_are_a_configuration_error_without_the_feature() {
    const NEED: &str = "must be `false`, got `true`: turn on the feature `leases` of `rate-limited`";
    let (on, off) = (Rule::new().leases(true), Rule::new().leases(false));
    let override_on = off.clone().overriding(KeyMatch::parts([("id", 1)]), on.clone());
    let cases: [(Builder, &str); 4] = [
        (Limiter::builder().leases(true), "`leases`"),
        (Limiter::builder().rule("a:{id}", on.clone()), "`leases` of the rule `a:{id}`"),
        (Limiter::builder().rule("a:{id}", override_on), "`leases` of an override of the rule `a:{id}`"),
        (Limiter::builder().rules(RuleSet::new().defaults(on.clone())), "`leases` of the defaults"),
    ];
    for (builder, option) in cases {
        let error = builder.build().expect_err(option);
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Config, format!("{option} {NEED}")));
    }
    let limiter = Limiter::builder().leases(false).rule("a", off).build().expect("valid");
    limiter.set_rules(RuleSet::new().rule("a", on)).expect_err("the feature is off");
}

#[cfg(feature = "leases")]
#[test]
fn leases_are_accepted_with_the_feature() {
    let on = || Rule::new().leases(true);
    let rule = on().overriding(KeyMatch::parts([("id", 1)]), on());
    let rules = RuleSet::new().defaults(on()).rule("a:{id}", rule);
    Limiter::builder().leases(true).rules(rules).build().expect("valid");
}

#[cfg(feature = "redis")]
#[test]
fn busy_polling_for_zero_to_one_millisecond_is_accepted() {
    for limit in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(1)] {
        assert!(Limiter::builder().url("redis://127.0.0.1:1").busy_poll(limit).build().is_ok(), "{limit:?}");
    }
}

#[cfg(feature = "redis")]
#[test]
fn each_option_of_a_server_is_a_configuration_error_for_a_store_in_memory() {
    let set = limit("5/s").with_layout(Layout::Zset).expect("a sliding window");
    let cases = [
        (
            Limiter::builder().credentials(|| crate::Credentials::new("user", "password")),
            "`credentials` must be used with a server, got the store `memory:`: write a URL such as `redis://host`",
        ),
        #[cfg(feature = "tls")]
        (
            Limiter::builder().tls(crate::Tls::new()),
            "`tls` must be used with a server, got the store `memory:`: write a URL such as `rediss://host`",
        ),
        (
            Limiter::builder().hash_keys([7; 16]).rule("a", Rule::new().limit(set)),
            "`hash_keys` must be left out with `layout = \"zset\"`, got the rule `a` of that layout: remove one of them, \
             because such a set is addressed by the plain key",
        ),
    ];
    for (builder, message) in cases {
        let error = builder.build().expect_err(message);
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, message));
    }
}

#[cfg(not(feature = "redis"))]
#[test]
fn a_url_of_a_missing_feature_is_a_configuration_error() {
    let error = Limiter::builder().url("redis://host").build().expect_err("a feature is off");
    let message = "`url` must be `memory:`, got `redis://`: turn on the feature `redis` of `rate-limited`";
    assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, message));
}

#[cfg(all(feature = "redis", not(feature = "tls")))]
#[test]
fn a_url_with_tls_is_a_configuration_error_without_the_feature() {
    let error = Limiter::builder().url("rediss://host").build().expect_err("a feature is off");
    let message = "`url` must be one without TLS, got `rediss://`: turn on the feature `tls` of `rate-limited`";
    assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, message));
}

#[test]
fn names_and_urls_are_any_text() {
    fn builds(url: impl AsRef<str>) -> bool {
        Limiter::builder().url(url).prefix(String::from("shop")).declare(String::from("search")).build().is_ok()
    }
    let text = String::from("memory:");
    let borrowed = Cow::from(&*text);
    assert!(builds("memory:") && builds(&text) && builds(text.clone()) && ["memory:"].iter().all(builds));
    assert!(builds(&borrowed) && builds(borrowed));
    let rule = RuleSet::new().rule(String::from("search"), Rule::new());
    assert!(Limiter::builder().rules(rule).rule(text, Rule::new()).build().is_ok());
}

#[test]
fn a_receipt_of_another_limiter_is_a_configuration_error() {
    let (granted, other) = (Limiter::memory(), Limiter::memory());
    let decision = granted.check_blocking(&Key::new("a"), &limit("5/s")).expect("a decision");
    let allowed = decision.into_result().expect("the first call");
    let error = other.refund_blocking(&allowed).expect_err("the receipt of `granted`");
    let message = "`allowed` must be a decision of this limiter, got one of another: call `refund` of the limiter that \
                   granted it";
    assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, message));
}
