use std::time::Duration;

use super::*;
use crate::{Decision, Error, ErrorKind, Key, Limit, Limiter, ManualClock, Mode, OnError, Rule, RuleSet};

/// A limiter whose clock stands still until a test moves it.
fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder().clock(clock.clone()).build().expect("builds"), clock)
}

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

fn check(limiter: &Limiter, name: &str, limit: Limit) -> Decision {
    limiter.named(name).check_blocking(&Key::new("key of a client"), &limit).expect("decides")
}

fn lines(decision: &Decision, form: Fields) -> Vec<String> {
    fields(decision, form).into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

#[test]
fn fields_of_draft_11_describe_the_limit_of_the_decision() {
    let (limiter, clock) = limiter();
    let limit = limit("2/1m");
    let check = || lines(&check(&limiter, "api", limit), Fields::Draft11);
    let policy = r#"ratelimit-policy: "api";q=2;w=60"#;
    assert_eq!(check(), [policy, r#"ratelimit: "api";r=1;t=60"#]);
    clock.advance(Duration::from_millis(500));
    // All permits are back a window after the last one.
    assert_eq!(check(), [policy, r#"ratelimit: "api";r=0;t=60"#]);
    // 59.5 s are left until the first one is.
    assert_eq!(check(), [policy, r#"ratelimit: "api";r=0;t=60"#, "retry-after: 60"]);
    clock.advance(Duration::from_millis(59_400));
    assert_eq!(check(), [policy, r#"ratelimit: "api";r=0;t=1"#, "retry-after: 1"]);
}

/// The store counts in whole milliseconds: its permits come back up to 1 ms after the window.
#[test]
fn no_time_has_a_second_for_a_part_of_a_millisecond() {
    let (limiter, clock) = limiter();
    clock.advance(Duration::from_micros(300));
    let limit = limit("1/10s");
    let allowed = check(&limiter, "api", limit);
    assert!(allowed.reset_after() > limit.window(), "{allowed:?}");
    assert_eq!(fields(&allowed, Fields::Draft11)[1].1, r#""api";r=0;t=10"#);
    let denied = check(&limiter, "api", limit);
    assert_eq!(lines(&denied, Fields::Draft11)[1..], [r#"ratelimit: "api";r=0;t=10"#, "retry-after: 10"]);
}

#[test]
fn windows_of_parts_of_a_second_have_no_w() {
    let (limiter, _) = limiter();
    for (text, policy) in [("5/1500ms", r#""a";q=5"#), ("5/2000ms", r#""a";q=5;w=2"#), ("5/1ms", r#""a";q=5"#)] {
        let decision = check(&limiter, "a", limit(text));
        assert_eq!(fields(&decision, Fields::Draft11)[0], ("ratelimit-policy", policy.to_owned()));
    }
}

#[test]
fn the_policy_of_calls_at_once_has_no_w() {
    let (limiter, _) = limiter();
    let quotas: Vec<_> = Quota::each_of(&check(&limiter, "erp", limit("50/10s"))).collect();
    let limit = limit("50 concurrent");
    let window = present_window(limit, Duration::ZERO, Duration::ZERO);
    let policy = PolicyMember(Quota { limit, window, ..quotas[0] });
    assert_eq!(policy.to_string(), r#""erp";q=50"#);
}

#[test]
fn legacy_fields_have_the_time_of_the_reset_since_1970() {
    let (limiter, clock) = limiter();
    let limit = limit("1/1h");
    for is_allowed in [true, false] {
        let decision = check(&limiter, "api", limit);
        assert_eq!(decision.is_allowed(), is_allowed);
        let fields = fields(&decision, Fields::Legacy);
        let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
        let all = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"];
        assert_eq!(names, all[..if is_allowed { 3 } else { 4 }]);
        assert_eq!((&*fields[0].1, &*fields[1].1), ("1", "0"));
        assert_eq!(fields[2].1, (clock.now().as_secs() + 3600).to_string());
    }
}

/// Returns the different numbers of `x-ratelimit-reset` of decisions at many times within `time`, as seconds from now.
fn resets(limiter: &Limiter, clock: &ManualClock, limit: Limit, time: Duration) -> Vec<u64> {
    let (start, mut resets) = (clock.now(), Vec::new());
    while clock.now() < start + time {
        let fields = fields(&check(limiter, "api", limit), Fields::Legacy);
        let (_, reset) = fields.iter().find(|(name, _)| *name == "x-ratelimit-reset").expect("the limit is enforced");
        resets.push(reset.parse::<u64>().expect("seconds") - start.as_secs());
        clock.advance(Duration::from_micros(7_001));
    }
    resets.dedup();
    resets
}

/// Two rounded times were added, so the sum changed from one call of a window to the next.
#[test]
fn the_reset_of_a_window_is_one_number_in_all_its_answers() {
    let time = Duration::from_millis(5_000);
    for (text, expected) in [("9999/2500ms", &[3, 5][..]), ("9999/1s", &[1, 2, 3, 4, 5]), ("1/2500ms", &[3, 5])] {
        let (limiter, clock) = limiter();
        let limit = limit(text).with_algorithm(crate::Algorithm::FixedWindow);
        assert_eq!(resets(&limiter, &clock, limit, time), expected, "{text}");
    }
}

#[test]
fn denials_until_one_permit_is_back_name_one_instant() {
    use crate::Algorithm::{LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
    for algorithm in [SlidingWindow, SlidingCounter, TokenBucket, LeakyBucket] {
        let (limiter, clock) = limiter();
        clock.advance(Duration::from_micros(300));
        let limit = limit("1/2500ms").with_algorithm(algorithm);
        assert!(check(&limiter, "api", limit).is_allowed());
        let Decision::Denied(denied) = check(&limiter, "api", limit) else { panic!("there is one permit") };
        let end = Duration::from_micros(300) + denied.retry_after();
        let expected = end.as_secs() + u64::from(end.subsec_nanos() > 0);
        assert_eq!(resets(&limiter, &clock, limit, denied.retry_after()), [expected], "{algorithm:?}");
    }
}

#[test]
fn a_denial_without_fields_has_retry_after() {
    let (limiter, _) = limiter();
    let limit = limit("1/10s");
    assert_eq!(lines(&check(&limiter, "api", limit), Fields::None), [""; 0]);
    assert_eq!(lines(&check(&limiter, "api", limit), Fields::None), ["retry-after: 10"]);
}

#[test]
fn a_final_denial_has_no_time() {
    let (limiter, _) = limiter();
    let decision = limiter.named("api").check_n_blocking(&Key::new("a"), &limit("2/10s"), 3).expect("decides");
    assert_eq!(lines(&decision, Fields::Draft11), [r#"ratelimit-policy: "api";q=2;w=10"#, r#"ratelimit: "api";r=2"#]);
    assert_eq!(lines(&decision, Fields::Legacy), ["x-ratelimit-limit: 2", "x-ratelimit-remaining: 2"]);
    let Decision::Denied(denied) = decision else { panic!("it costs more than the limit") };
    assert_eq!(status(&denied), 429);
    assert!(!problem(&denied).contains("retry_after_ms"), "{}", problem(&denied));
}

#[test]
fn limits_that_are_not_enforced_have_no_fields() {
    let (limiter, _) = limiter();
    for (mode, is_allowed) in [(Mode::Shadow, true), (Mode::Off, true), (Mode::Deny, false)] {
        limiter.set_rules(RuleSet::new().rule("api", Rule::new().mode(mode))).expect("valid");
        let decision = check(&limiter, "api", limit("5/10s"));
        assert_eq!(decision.is_allowed(), is_allowed);
        for form in [Fields::Draft11, Fields::Legacy] {
            assert_eq!(lines(&decision, form), [""; 0], "{mode:?}");
        }
    }
}

#[test]
fn decisions_of_a_failure_policy_have_the_status_503() {
    let limiter = |policy| {
        let down = "redis://127.0.0.1:1";
        Limiter::builder().url(down).on_error(policy).build().expect("starts without its server")
    };
    let limit = limit("5/1m");
    let open = check(&limiter(OnError::Open), "api", limit);
    // The remaining permits are unknown.
    assert_eq!(lines(&open, Fields::Draft11), [""; 0]);
    let closed = check(&limiter(OnError::Closed), "api", limit);
    assert_eq!(lines(&closed, Fields::Draft11), ["retry-after: 1"]);
    let Decision::Denied(denied) = closed else { panic!("the policy denies") };
    assert_eq!(status(&denied), 503);
    assert_eq!(
        problem(&denied),
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"The rate limit cannot be checked","status":503,"violated-policies":["api"],"retry_after_ms":1000}"#
    );
    let error = limiter(OnError::Raise).named("api").check_blocking(&Key::new("a"), &limit).expect_err("it is down");
    assert_eq!(error_status(&error), 503);
    assert_eq!(
        error_problem(&error),
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"The rate limit cannot be checked","status":503}"#
    );
}

#[test]
fn a_problem_has_the_rule_and_the_time() {
    let (limiter, clock) = limiter();
    let limit = limit("1/10s");
    let _ = check(&limiter, "api", limit);
    clock.advance(Duration::from_micros(7_999_500));
    let Decision::Denied(denied) = check(&limiter, "api", limit) else { panic!("there is one permit") };
    assert_eq!(
        problem(&denied),
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"violated-policies":["api"],"retry_after_ms":2001}"#
    );
}

#[test]
fn names_of_any_text_are_valid_in_fields_and_bodies() {
    let (limiter, _) = limiter();
    let name = "a \"quoted\" \\ größe\r\n%";
    let decision = check(&limiter, name, limit("1/1s"));
    let encoded = r#"a \"quoted\" \\ gr%C3%B6%C3%9Fe%0D%0A%25"#;
    assert_eq!(fields(&decision, Fields::Draft11)[0].1, format!("\"{encoded}\";q=1;w=1"));
    let Decision::Denied(denied) = check(&limiter, name, limit("1/1s")) else { panic!("there is one permit") };
    let problem: serde_json::Value = serde_json::from_str(&problem(&denied)).expect("JSON");
    assert_eq!(problem["violated-policies"][0], encoded.replace("\\\"", "\"").replace("\\\\", "\\"));
}

#[test]
fn no_field_and_no_body_has_the_key_or_the_text_of_an_error() {
    let (limiter, _) = limiter();
    let limit = limit("1/10s");
    for _ in 0..2 {
        let decision = check(&limiter, "api", limit);
        let mut texts: Vec<String> =
            [Fields::Draft11, Fields::Legacy].into_iter().flat_map(|form| lines(&decision, form)).collect();
        if let Decision::Denied(denied) = &decision {
            texts.push(problem(denied));
        }
        assert!(!texts.concat().contains("client"), "{texts:?}");
    }
    let error = Error::new(ErrorKind::Unavailable, "redis.internal:6379 is down");
    assert!(!error_problem(&error).contains("internal"));
}

#[cfg(feature = "calendar")]
#[test]
fn the_window_of_a_calendar_is_its_present_period() {
    let (limiter, clock) = limiter();
    // September 2001.
    let months = [(30, "5/month"), (31, "5/month"), (30, "5/month"), (92, "5/quarter"), (365, "5/year:04-06")];
    for (days, limit) in months {
        let decision = check(&limiter, "api", limit.parse().expect(limit));
        let policy = &fields(&decision, Fields::Draft11)[0].1;
        assert_eq!(*policy, format!("\"api\";q=5;w={}", 86_400 * days), "{limit}");
        clock.advance(decision.limits().next().expect("a limit").reset_after());
    }
}

/// The clock of the decisions stops during a suspension, and the wall clock does not.
#[cfg(feature = "calendar")]
#[test]
fn the_window_of_a_calendar_is_that_of_the_wall_clock() {
    const DAY: u64 = 86_400;
    let days = |days: u64| Duration::from_secs(DAY * days);
    // From the first of January 2026 on.
    let at = |day: u64, hours: u64| days(20_454 + day) + Duration::from_secs(3600 * hours);
    let february = at(31, 0);
    for (now, length) in [(at(30, 23), 31), (february, 28), (at(45, 0), 28), (at(58, 23), 28)] {
        let end = if length == 31 { february } else { at(59, 0) };
        for lag in [0, 3600, 36 * 3600] {
            let decided_at = now - Duration::from_secs(lag);
            assert_eq!(present_window(limit("5/month"), decided_at, end - now), days(length), "{now:?} {lag}");
        }
        assert_eq!(present_window(limit("5/month"), now, Duration::ZERO), days(length), "nothing is taken");
    }
    assert_eq!(present_window(limit("5/1m"), february, Duration::ZERO), Duration::from_secs(60));
}

#[test]
fn all_names_of_fields_are_listed() {
    let (limiter, _) = limiter();
    let limit = limit("1/10s");
    let mut seen: Vec<_> = [check(&limiter, "api", limit), check(&limiter, "api", limit)]
        .iter()
        .flat_map(|decision| [fields(decision, Fields::Draft11), fields(decision, Fields::Legacy)].concat())
        .map(|(name, _)| name)
        .collect();
    seen.sort_unstable();
    seen.dedup();
    let mut listed = FIELD_NAMES;
    listed.sort_unstable();
    assert_eq!(seen, listed);
}
