//! Settings of rules by name, before what the attribute says.

use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{Algorithm, Builder, Denied, Error, ErrorKind, Layout, Limit, Limiter, OnError, Rule, rate_limited};

use crate::deadlines::SLACK;
use crate::support::{limit, on};

#[rate_limited(key = "getId", limit = "5/10s")]
fn get_id() -> Result<&'static str, Denied> {
    Ok("id")
}

#[rate_limited(key = "user:{user}", limits = ["5/s", "20/min"])]
async fn of_user(user: u64) -> Result<u64, Denied> {
    Ok(user)
}

#[rate_limited(key = user, name = "named", limit = "5/10s", when = user != "admin")]
#[rate_limited(key = "everybody", limit = "5/10s")]
fn of_two(user: &str) -> Result<&'static str, Denied> {
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
fn given(max: u32) -> &'static str {
    "ran"
}

/// A limiter that cannot reach its store, with its answers and a name's settings.
fn away(name: &str, rule: Rule) -> Limiter {
    Limiter::builder().url("redis+unix:///nowhere").on_error(OnError::Closed).rule(name, rule).build().expect("valid")
}

fn memory(rule: &str, settings: Rule) -> Limiter {
    Limiter::builder().rule(rule, settings).build().expect("valid")
}

#[test]
fn limits_take_the_place_of_the_attributes() {
    let limiter = memory("getId", Rule::new().limit(limit("2/h")));
    limiter.scope_sync(|| {
        assert!(get_id().is_ok() && get_id().is_ok());
        let denied = get_id().expect_err("two are the limit now");
        assert_eq!((denied.limit(), denied.name()), (limit("2/h"), "getId"));
    });
}

#[tokio::test]
async fn of_several_limits_all_hold() {
    let rule = Rule::new().limit(limit("3/s")).limit(limit("4/h"));
    let server = RedisServer::timeless();
    for builder in [Limiter::builder(), on(server)] {
        let clock = rate_limited::ManualClock::new();
        let limiter = builder.clock(clock.clone()).rule("user:{user}", rule.clone()).connect().await.expect("a store");
        let calls = limiter.scope(async {
            let mut denials = Vec::new();
            for _ in 0..2 {
                for _ in 0..4 {
                    denials.extend(of_user(7).await.err().map(|denied| denied.limit().to_string()));
                }
                clock.advance(Duration::from_secs(1));
            }
            denials
        });
        assert_eq!(calls.await, ["3/1s", "4/1h", "4/1h", "4/1h"]);
    }
}

#[test]
fn each_rule_of_a_function_has_its_own() {
    let limiter = memory("named", Rule::new().limit(limit("1/h")));
    limiter.scope_sync(|| {
        assert!(of_two("a").is_ok());
        assert_eq!(of_two("a").expect_err("one is the limit of `named`").name(), "named");
        assert!((0..4).all(|_| of_two("admin").is_ok()), "the other keeps the attribute's limit");
        assert_eq!(of_two("admin").expect_err("five of everybody").name(), "everybody");
    });
}

#[test]
fn a_limit_of_a_rule_mends_an_impossible_one() {
    Limiter::memory().scope_sync(|| assert_eq!(given(0), "denied"));
    memory("impossible", Rule::new().limit(limit("1/h"))).scope_sync(|| {
        assert_eq!((given(0), given(0)), ("ran", "denied"));
    });
}

#[test]
fn a_policy_comes_before_the_functions_own() {
    let open = Rule::new().on_error(OnError::Open);
    let raise = Rule::new().on_error(OnError::Raise);
    assert_eq!(
        away("other", open.clone()).scope_sync(|| (handled(), own_policy(), no_policy())),
        ("handled", "denied", "denied")
    );
    assert_eq!(away("handled", open.clone()).scope_sync(handled), "ran");
    assert_eq!(away("handled", Rule::new().on_error(OnError::Closed)).scope_sync(handled), "denied");
    assert_eq!(away("handled", raise.clone()).scope_sync(handled), "handled");
    assert_eq!(away("own", open.clone()).scope_sync(own_policy), "ran");
    assert_eq!(away("unset", open).scope_sync(no_policy), "ran");
    assert_eq!(away("unset", raise).scope_sync(no_policy), "denied", "there is nobody to raise it to");
}

#[tokio::test]
async fn a_deadline_is_the_rules_own_and_the_shortest_of_several() {
    let mut server = RedisServer::start();
    let short = Rule::new().deadline(Duration::from_millis(50)).on_error(OnError::Open);
    let limiter = on(&server)
        .rule("everybody", short.clone())
        .rule("named", short.deadline(Duration::from_secs(60)))
        .connect()
        .await
        .expect("a server");
    limiter.scope_sync(|| of_two("a")).expect("the first of five");
    server.pause();
    let asked = Instant::now();
    limiter.scope_sync(|| of_two("a")).expect("open");
    let took = asked.elapsed();
    server.resume();
    assert!(took >= Duration::from_millis(50) && took <= Duration::from_millis(50) + SLACK, "{took:?}");
}

#[rate_limited(key = "bucket", limit = "5/10s", algorithm = token_bucket, fallback = "denied", on_error = open)]
fn of_a_bucket() -> &'static str {
    "ran"
}

#[tokio::test]
async fn a_layout_is_that_of_the_rules_limit_or_of_the_attributes() {
    let server = RedisServer::start();
    let zset = || Rule::new().layout(Layout::Zset);
    let builder = on(&server).rule("unset", zset()).rule("own", zset().limit(limit("2/h"))).rule("bucket", zset());
    let limiter = builder.connect().await.expect("a server");
    limiter.scope_sync(|| {
        assert_eq!((no_policy(), own_policy(), own_policy(), own_policy()), ("ran", "ran", "ran", "denied"));
        assert_eq!(of_a_bucket(), "denied", "it cannot be kept so, whatever the policy");
    });
    let mut keys = server.keys();
    keys.sort();
    assert_eq!(keys, ["CurrentLimiter:own", "CurrentLimiter:unset"]);
}

#[test]
fn refuses_settings_that_cannot_be() {
    let bucket = limit("5/s").with_algorithm(Algorithm::TokenBucket);
    let refused = |builder: Builder| -> Error { builder.build().expect_err("no limiter") };
    let cases = [
        (Limiter::builder().rule("", Rule::new()), "`rule` must have a name, got an empty text: "),
        (
            Limiter::builder().rule("a", Rule::new()).rule("a", Rule::new()),
            "`rule` must be set once for a name, got `a` twice: ",
        ),
        (
            Limiter::builder().rule("a", Rule::new().limit(limit("5/s")).limit(limit("9/h")).layout(Layout::Zset)),
            "`limit` of the rule `a` must be set once with `Layout::Zset`, got 2 limits: ",
        ),
        (
            Limiter::builder().rule("a", Rule::new().limit(bucket).layout(Layout::Zset)),
            "`layout` of the rule `a` must be `Layout::Compact` for `TokenBucket`, got `Layout::Zset`: ",
        ),
        (
            Limiter::builder().rule("a", Rule::new().deadline(Duration::ZERO)),
            "`deadline` of the rule `a` must be between 1 ms and 60 s, got 0ns: ",
        ),
    ];
    for (builder, problem) in cases {
        let error = refused(builder);
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with(problem), "{error}");
    }
    assert!("0/s".parse::<Limit>().is_err(), "a limit that cannot be is no limit");
}

#[test]
fn what_cannot_be_kept_so_is_a_failure_in_memory_too_or_never() {
    let limiter = memory("bucket", Rule::new().layout(Layout::Zset));
    let waits = memory("waits", Rule::new().layout(Layout::Zset));
    assert_eq!(limiter.scope_sync(of_a_bucket), waits.scope_sync(of_a_waiting_bucket));
}

#[rate_limited(key = "waits", limit = "5/10s", algorithm = token_bucket, wait = "1ms", fallback = "denied")]
fn of_a_waiting_bucket() -> &'static str {
    "ran"
}
