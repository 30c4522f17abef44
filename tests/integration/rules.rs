//! Tests of rules by name, which override the attribute's arguments.

use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{Algorithm, Builder, Denied, Error, ErrorKind, Layout, Limit, Limiter, OnError, Rule, rate_limited};

use crate::deadlines::MAX_LATENESS;
use crate::support::{builder_for, limit};

mod changes;
mod file;
mod levels;
mod modes;
mod named;
mod names;
mod one_counter;
mod overrides;
mod shadow_counters;
mod shadow_oracle;
mod switch;

#[rate_limited(key = "getId", limit = "5/10s")]
fn get_id() -> Result<&'static str, Denied> {
    Ok("id")
}

#[rate_limited(key = "user:{user}", limits = ["5/s", "20/min"])]
async fn per_user(user: u64) -> Result<u64, Denied> {
    Ok(user)
}

#[rate_limited(key = user, name = "named", limit = "5/10s", when = user != "admin")]
#[rate_limited(key = "global", limit = "5/10s")]
fn two_rules(user: &str) -> Result<&'static str, Denied> {
    Ok("both")
}

#[rate_limited(key = "handled", limit = "5/10s", fallback = "denied", on_error = |_error| "handled")]
fn handled() -> &'static str {
    "ran"
}

#[rate_limited(key = "own", limit = "5/10s", fallback = "denied", on_error = closed)]
fn own_policy() -> &'static str {
    "ran"
}

#[rate_limited(key = "unset", limit = "5/10s", fallback = "denied")]
fn no_policy() -> &'static str {
    "ran"
}

#[rate_limited(key = "impossible", window = "10s", max = max, fallback = "denied")]
fn impossible_limit(max: u32) -> &'static str {
    "ran"
}

/// Returns a limiter that cannot reach its store, with a rule of this name.
fn unreachable_limiter(name: &str, rule: Rule) -> Limiter {
    Limiter::builder().url("redis+unix:///nowhere").on_error(OnError::Closed).rule(name, rule).build().expect("valid")
}

fn memory(rule: &str, settings: Rule) -> Limiter {
    Limiter::builder().rule(rule, settings).build().expect("valid")
}

#[test]
fn limit_of_a_rule_replaces_the_attributes() {
    let limiter = memory("getId", Rule::new().limit(limit("2/h")));
    limiter.scope_sync(|| {
        assert!(get_id().is_ok() && get_id().is_ok());
        let denied = get_id().expect_err("two are the limit now");
        assert_eq!((denied.limit(), denied.name()), (limit("2/h"), "getId"));
    });
}

#[tokio::test]
async fn all_limits_of_a_rule_hold() {
    let rule = Rule::new().limit(limit("3/s")).limit(limit("4/h"));
    let server = RedisServer::timeless();
    for builder in [Limiter::builder(), builder_for(server)] {
        let clock = rate_limited::ManualClock::new();
        let limiter = builder.clock(clock.clone()).rule("user:{user}", rule.clone()).connect().await.expect("a store");
        let calls = limiter.scope(async {
            let mut denials = Vec::new();
            for _ in 0..2 {
                for _ in 0..4 {
                    denials.extend(per_user(7).await.err().map(|denied| denied.limit().to_string()));
                }
                clock.advance(Duration::from_secs(1));
            }
            denials
        });
        assert_eq!(calls.await, ["3/s", "4/h", "4/h", "4/h"]);
    }
}

#[test]
fn rule_overrides_only_the_rule_of_its_name() {
    let limiter = memory("named", Rule::new().limit(limit("1/h")));
    limiter.scope_sync(|| {
        assert!(two_rules("a").is_ok());
        assert_eq!(two_rules("a").expect_err("one is the limit of `named`").name(), "named");
        assert!((0..4).all(|_| two_rules("admin").is_ok()), "the other keeps the attribute's limit");
        assert_eq!(two_rules("admin").expect_err("five calls of all users").name(), "global");
    });
}

#[test]
fn limit_of_a_rule_replaces_an_invalid_one() {
    Limiter::memory().scope_sync(|| assert_eq!(impossible_limit(0), "denied"));
    memory("impossible", Rule::new().limit(limit("1/h"))).scope_sync(|| {
        assert_eq!((impossible_limit(0), impossible_limit(0)), ("ran", "denied"));
    });
}

#[test]
fn policy_of_a_rule_precedes_the_functions_own() {
    let open = Rule::new().on_error(OnError::Open);
    let raise = Rule::new().on_error(OnError::Raise);
    assert_eq!(
        unreachable_limiter("other", open.clone()).scope_sync(|| (handled(), own_policy(), no_policy())),
        ("handled", "denied", "denied")
    );
    assert_eq!(unreachable_limiter("handled", open.clone()).scope_sync(handled), "ran");
    assert_eq!(unreachable_limiter("handled", Rule::new().on_error(OnError::Closed)).scope_sync(handled), "denied");
    assert_eq!(unreachable_limiter("handled", raise.clone()).scope_sync(handled), "handled");
    assert_eq!(unreachable_limiter("own", open.clone()).scope_sync(own_policy), "ran");
    assert_eq!(unreachable_limiter("unset", open).scope_sync(no_policy), "ran");
    assert_eq!(
        unreachable_limiter("unset", raise).scope_sync(no_policy),
        "denied",
        "the function cannot return an error"
    );
}

#[tokio::test]
async fn shortest_deadline_of_several_rules_applies() {
    let mut server = RedisServer::start();
    let short = Rule::new().deadline(Duration::from_millis(50)).on_error(OnError::Open);
    let limiter = builder_for(&server)
        .rule("global", short.clone())
        .rule("named", short.deadline(Duration::from_secs(60)))
        .connect()
        .await
        .expect("a server");
    limiter.scope_sync(|| two_rules("a")).expect("the first of five");
    server.pause();
    let started = Instant::now();
    limiter.scope_sync(|| two_rules("a")).expect("open");
    let took = started.elapsed();
    server.resume();
    assert!(took >= Duration::from_millis(50) && took <= Duration::from_millis(50) + MAX_LATENESS, "{took:?}");
}

#[rate_limited(key = "bucket", limit = "5/10s", algorithm = token_bucket, fallback = "denied", on_error = open)]
fn bucket() -> &'static str {
    "ran"
}

#[tokio::test]
async fn layout_of_a_rule_applies_to_its_limit_or_the_attributes() {
    let server = RedisServer::start();
    let zset = || Rule::new().layout(Layout::Zset);
    let builder =
        builder_for(&server).rule("unset", zset()).rule("own", zset().limit(limit("2/h"))).rule("bucket", zset());
    let limiter = builder.connect().await.expect("a server");
    limiter.scope_sync(|| {
        assert_eq!((no_policy(), own_policy(), own_policy(), own_policy()), ("ran", "ran", "ran", "denied"));
        assert_eq!(bucket(), "denied", "this layout is invalid for a bucket, whatever the policy");
    });
    let mut keys = server.keys();
    keys.sort();
    assert_eq!(keys, ["CurrentLimiter:own", "CurrentLimiter:unset"]);
}

#[test]
fn invalid_rules_are_rejected() {
    let bucket = limit("5/s").with_algorithm(Algorithm::TokenBucket);
    let build_error = |builder: Builder| -> Error { builder.build().expect_err("no limiter") };
    let cases = [
        (Limiter::builder().rule("", Rule::new()), "`rule` must have a name, got an empty text: "),
        (
            Limiter::builder().rule("a", Rule::new()).rule("a", Rule::new()),
            "`rule` must be set once for a name, got `a` twice: ",
        ),
        (
            Limiter::builder().rule("a", Rule::new().limit(limit("5/s")).limit(limit("9/h")).layout(Layout::Zset)),
            "`limit` of the rule `a` must be set once with `layout = \"zset\"`, got 2 limits: ",
        ),
        (
            Limiter::builder().rule("a", Rule::new().limit(bucket).layout(Layout::Zset)),
            "`layout` of the rule `a` must be `compact` for `token_bucket`, got `zset`: ",
        ),
        (
            Limiter::builder().rule("a", Rule::new().deadline(Duration::ZERO)),
            "`deadline` of the rule `a` must be between 1 ms and 60 s, got 0ns: ",
        ),
    ];
    for (builder, message_start) in cases {
        let error = build_error(builder);
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with(message_start), "{error}");
    }
    assert!("0/s".parse::<Limit>().is_err(), "an invalid limit does not parse");
}

#[test]
fn invalid_layout_has_the_same_outcome_with_and_without_waiting() {
    let limiter = memory("bucket", Rule::new().layout(Layout::Zset));
    let waits = memory("waits", Rule::new().layout(Layout::Zset));
    assert_eq!(limiter.scope_sync(bucket), waits.scope_sync(waiting_bucket));
}

#[rate_limited(key = "waits", limit = "5/10s", algorithm = token_bucket, wait = "1ms", fallback = "denied")]
fn waiting_bucket() -> &'static str {
    "ran"
}
