//! Fields about each of several limits.

use rate_limited::http::{self, Fields};
use rate_limited::tower::{Everyone, RateLimitLayer};
use rate_limited::{Decision, Key, Limit, Limiter, ManualClock, Mode, Rule, RuleSet};

use super::{Served, counted, field, limit, limiter, request_of, send};

fn lines(decision: &Decision, fields: Fields) -> Vec<String> {
    http::fields(decision, fields).into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

/// A limiter that reports limits, and whose clock stands still.
fn reporting() -> Limiter {
    Limiter::builder().clock(ManualClock::new()).report_limits(true).build().expect("builds")
}

#[tokio::test]
async fn an_answer_of_a_layer_has_each_of_its_limits() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("5/s")).limit(limit("1000/d")).limiter(limiter).key(Everyone);
    let service = counted(&layer, &Served::default());
    let policies = [r#""api-1s";q=5;w=1, "api-1d";q=1000;w=86400"#];
    for second in (0..5).rev() {
        let response = send(&service, request_of("192.0.2.1")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(field(&response, "ratelimit-policy"), policies);
        let day = 995 + second;
        assert_eq!(field(&response, "ratelimit"), [format!(r#""api-1s";r={second};t=1, "api-1d";r={day};t=86400"#)]);
    }
    let denied = send(&service, request_of("192.0.2.1")).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "ratelimit-policy"), policies);
    assert_eq!(field(&denied, "ratelimit"), [r#""api-1s";r=0;t=1, "api-1d";r=995;t=86400"#]);
    assert_eq!(field(&denied, "retry-after"), ["1"]);
    assert!(denied.body().contains(r#""violated-policies":["api-1s"]"#), "{}", denied.body());
}

#[tokio::test]
async fn other_fields_of_a_layer_describe_one_limit() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("1000/d")).limit(limit("1/s")).limiter(limiter).key(Everyone);
    let legacy = counted(&layer.fields(Fields::Legacy), &Served::default());
    for status in [200, 429] {
        let response = send(&legacy, request_of("192.0.2.1")).await;
        assert_eq!(response.status(), status);
        let numbers = [field(&response, "x-ratelimit-limit"), field(&response, "x-ratelimit-remaining")];
        assert_eq!(numbers, [["1"], ["0"]]);
    }
}

#[tokio::test]
async fn names_of_limits_differ_and_are_the_rules_where_it_has_one() {
    let limiter = reporting();
    let (a, b, c, none) = (Key::new("a"), Key::new("b"), Key::new("c"), limit("9/h"));
    let two = Rule::new().limit(limit("5/1500ms")).limit(limit("9/90m"));
    limiter.set_rules(RuleSet::new().rule("two", two)).expect("valid");
    let rules = [("two", &a, &none, 1), ("one \"%\"", &a, &limit("7/m"), 1)];
    let decision = limiter.check_rules(&rules).await.expect("decides");
    let policies = r#"ratelimit-policy: "two-1s500ms";q=5, "two-1h30m";q=9;w=5400, "one \"%25\"";q=7;w=60"#;
    assert_eq!(lines(&decision, Fields::Draft11)[0], policies);
    // Limits of one window: of two keys, and of two algorithms.
    let hour = limit("9/h");
    let calls = [(&a, &hour, 1), (&b, &hour, 2), (&c, &limit("9/m"), 1)];
    let decision = limiter.check_all_blocking(&calls).expect("decides");
    let quotas = r#"ratelimit: "check-1h";r=8;t=3600, "check-1h-2";r=7;t=3600, "check-1m";r=8;t=60"#;
    assert_eq!(lines(&decision, Fields::Draft11)[1], quotas);
}

#[tokio::test]
async fn a_denial_has_its_retry_after_at_the_limit_that_denied() {
    let (limiter, a) = (reporting(), Key::new("a"));
    let limits: [Limit; 2] = [limit("9/h"), limit("2/m")];
    let check = async |cost| {
        let rules = [("wide", &a, &limits[0], 1), ("narrow", &a, &limits[1], cost)];
        limiter.check_rules(&rules).await.expect("decides")
    };
    assert!(check(2).await.is_allowed());
    let expected = [
        r#"ratelimit-policy: "wide";q=9;w=3600, "narrow";q=2;w=60"#,
        r#"ratelimit: "wide";r=8;t=3600, "narrow";r=0;t=60"#,
        "retry-after: 60",
    ];
    assert_eq!(lines(&check(1).await, Fields::Draft11), expected);
    // No wait helps a call that costs more than the limit.
    assert_eq!(lines(&check(3).await, Fields::Draft11)[1..], [r#"ratelimit: "wide";r=8;t=3600, "narrow";r=0"#]);
    let legacy = lines(&check(1).await, Fields::Legacy);
    assert_eq!(legacy[..2], ["x-ratelimit-limit: 2", "x-ratelimit-remaining: 0"]);
}

#[tokio::test]
async fn limits_that_are_not_enforced_have_no_member() {
    let (limiter, a, hour) = (reporting(), Key::new("a"), limit("9/h"));
    let modes = [("shadow", Mode::Shadow), ("off", Mode::Off)];
    let rules = modes.into_iter().fold(RuleSet::new(), |rules, (name, mode)| rules.rule(name, Rule::new().mode(mode)));
    limiter.set_rules(rules).expect("valid");
    let names = ["off", "wide", "shadow", "narrow"];
    let calls = names.map(|name| (name, &a, &hour, 1));
    let decision = limiter.check_rules(&calls).await.expect("decides");
    assert_eq!(lines(&decision, Fields::Draft11)[0], r#"ratelimit-policy: "wide";q=9;w=3600, "narrow";q=9;w=3600"#);
    let decision = limiter.check_rules(&[calls[0], calls[2], calls[2]]).await.expect("decides");
    assert_eq!(lines(&decision, Fields::Draft11), [""; 0]);
}
