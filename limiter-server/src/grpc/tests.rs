//! The answers to Envoy, without a connection.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rate_limited::{Builder, ErrorKind, Limiter, ManualClock, OnError};
use tempfile::TempDir;
use tonic::Code as GrpcCode;

use super::decide::RateLimits;
use super::held::{HeldHits, HeldKey};
use super::messages::{Code, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitResponse, Unit};
use crate::envoy::EnvoyConfig;
use crate::service::{DecisionService, ServicePolicy};

mod connection;
mod examples;

/// The decisions of one file, on a store in memory with a clock that the test moves.
struct Limits {
    limits: RateLimits,
    clock: ManualClock,
    _directory: TempDir,
}

impl Limits {
    fn new(yaml: &str) -> Self {
        Self::of(Limiter::builder().url("memory:"), yaml)
    }

    fn of(builder: Builder, yaml: &str) -> Self {
        let clock = ManualClock::new();
        let limiter = builder.clock(clock.clone()).receipt_secret([7; 32]).report_limits(true).build().expect("valid");
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("a.yaml"), yaml).expect("a file");
        let config = EnvoyConfig::load(vec![directory.path().to_path_buf()], &limiter);
        let config = Arc::new(config.unwrap_or_else(|mistakes| panic!("{mistakes:#?}")));
        let service = Arc::new(DecisionService::new(limiter, ServicePolicy::default()));
        Self { limits: RateLimits { service, config, held: HeldHits::default() }, clock, _directory: directory }
    }

    async fn answer(&self, request: &RateLimitRequest) -> RateLimitResponse {
        self.limits.answer(request, None).await.unwrap_or_else(|status| panic!("{status:?}"))
    }

    /// Sends descriptors such as `key=value key=value 3`, and returns the answer as a text.
    async fn send(&self, descriptors: &[&str]) -> String {
        text_of(&self.answer(&request("d", descriptors)).await)
    }
}

/// A request with descriptors such as `key=value key=value`: a number after them is the addend, a negative one gives back.
fn request(domain: &str, descriptors: &[&str]) -> RateLimitRequest {
    let descriptor = |text: &&str| {
        let mut descriptor = RateLimitDescriptor::default();
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) => descriptor.entries.push(Entry { key: key.to_owned(), value: value.to_owned() }),
                None => {
                    let addend: i64 = word.parse().expect("a number");
                    descriptor.hits_addend = Some(addend.unsigned_abs());
                    descriptor.is_negative_hits = addend < 0;
                }
            }
        }
        descriptor
    };
    let descriptors = descriptors.iter().map(descriptor).collect();
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

/// Returns an answer as a text: `OK` or `OVER`, and for each status its own, with remaining, limit and unit.
fn text_of(response: &RateLimitResponse) -> String {
    let code = |code: i32| match Code::try_from(code) {
        Ok(Code::Ok) => "OK",
        Ok(Code::OverLimit) => "OVER",
        _ => "UNKNOWN",
    };
    let statuses = response.statuses.iter().map(|status| {
        let limit = status.current_limit.as_ref().map(|limit| {
            let unit = Unit::try_from(limit.unit).expect("a unit");
            format!(" {}/{} {}", status.limit_remaining, limit.requests_per_unit, format!("{unit:?}").to_uppercase())
        });
        let unlimited = || if status.limit_remaining == u32::MAX { " unlimited" } else { "" }.to_owned();
        format!("{}{}", code(status.code), limit.unwrap_or_else(unlimited))
    });
    format!("{}: {}", code(response.overall_code), statuses.collect::<Vec<_>>().join(", "))
}

/// The fields of an answer, in order.
fn headers_of(response: &RateLimitResponse) -> Vec<String> {
    response.response_headers_to_add.iter().map(|header| format!("{}: {}", header.key, header.value)).collect()
}

const PLAIN: &str = "domain: d
descriptors:
  - key: user
    rate_limit: {name: of-user, unit: minute, requests_per_unit: 3}
  - key: path
    rate_limit: {limit: 2/30s}
  - key: path
    value: /free
";

#[tokio::test]
async fn the_descriptors_are_one_decision_and_a_denial_takes_nothing() {
    let limits = Limits::new(PLAIN);
    assert_eq!(limits.send(&["user=1", "path=/a"]).await, "OK: OK 2/3 MINUTE, OK 1/2 UNKNOWN");
    assert_eq!(limits.send(&["path=/a", "user=1"]).await, "OK: OK 0/2 UNKNOWN, OK 1/3 MINUTE");
    let denied = limits.answer(&request("d", &["user=1", "path=/a", "path=/free", "other=1"])).await;
    assert_eq!(text_of(&denied), "OVER: OK 1/3 MINUTE, OVER 0/2 UNKNOWN, OK, OK");
    assert_eq!(denied.statuses[1].duration_until_reset.as_ref().map(|reset| reset.seconds), Some(30));
    assert_eq!(limits.send(&["user=1"]).await, "OK: OK 0/3 MINUTE");
    assert_eq!(limits.send(&["user=1"]).await, "OVER: OVER 0/3 MINUTE");
    // Two descriptors of one rule have a key each.
    assert_eq!(limits.send(&["user=2 2", "user=3 1"]).await, "OK: OK 1/3 MINUTE, OK 2/3 MINUTE");
    assert_eq!(limits.send(&["user=3 2", "user=2 2"]).await, "OVER: OK 2/3 MINUTE, OVER 1/3 MINUTE");
    limits.clock.advance(Duration::from_secs(60));
    assert_eq!(limits.send(&["user=3 2", "user=2 2"]).await, "OK: OK 1/3 MINUTE, OK 1/3 MINUTE");
}

#[tokio::test]
async fn an_admitted_answer_has_no_field_of_a_denial() {
    let limits = Limits::new(PLAIN);
    let admitted = limits.answer(&request("d", &["user=1", "path=/a 2"])).await;
    assert_eq!(
        headers_of(&admitted),
        [
            "ratelimit-policy: \"d.user\";q=3;w=60, \"d.path\";q=2;w=30",
            "ratelimit: \"d.user\";r=2;t=60, \"d.path\";r=0;t=30"
        ]
    );
    assert!(admitted.raw_body.is_empty());
    let denied = limits.answer(&request("d", &["user=1", "path=/a"])).await;
    let headers = headers_of(&denied);
    assert!(headers.contains(&"retry-after: 30".to_owned()), "{headers:?}");
    assert!(headers.contains(&"content-type: application/problem+json".to_owned()), "{headers:?}");
    let body = String::from_utf8(denied.raw_body).expect("JSON");
    assert!(body.starts_with('{') && body.contains("\"status\":429"), "{body}");
    // What nothing limits has no fields.
    assert_eq!(headers_of(&limits.answer(&request("d", &["path=/free"])).await), [""; 0]);
}

#[tokio::test]
async fn the_addend_of_a_descriptor_comes_before_that_of_the_request() {
    let limits = Limits::new(PLAIN);
    let with = |hits_addend, descriptor: &str| RateLimitRequest { hits_addend, ..request("d", &[descriptor]) };
    assert_eq!(text_of(&limits.answer(&with(0, "user=1")).await), "OK: OK 2/3 MINUTE");
    assert_eq!(text_of(&limits.answer(&with(2, "user=1")).await), "OK: OK 0/3 MINUTE");
    assert_eq!(text_of(&limits.answer(&with(2, "user=1 0")).await), "OK: OK 0/3 MINUTE");
    assert_eq!(text_of(&limits.answer(&with(2, "user=2 3")).await), "OK: OK 0/3 MINUTE");
    assert_eq!(text_of(&limits.answer(&with(4, "user=3")).await), "OVER: OVER 3/3 MINUTE");
    assert_eq!(text_of(&limits.answer(&with(1, "user=3 99999999999")).await), "OVER: OVER 3/3 MINUTE");
}

#[tokio::test]
async fn descriptors_in_shadow_mode_are_decided_by_themselves() {
    let limits = Limits::new(
        "domain: d
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: shadow
    rate_limit: {unit: second, requests_per_unit: 1}
    shadow_mode: true
  - key: quota
    rate_limit: {unit: second, requests_per_unit: 1}
    quota_mode: true
  - key: closed
    rate_limit: {unit: second, requests_per_unit: 0}
    quota_mode: true
",
    );
    assert_eq!(limits.send(&["shadow=1"]).await, "OK: OK 0/1 SECOND");
    let beyond = limits.answer(&request("d", &["shadow=1", "user=1", "quota=1"])).await;
    assert_eq!(text_of(&beyond), "OK: OK 0/1 SECOND, OK 0/1 SECOND, OK 0/1 SECOND");
    let metadata = |response: &RateLimitResponse| {
        let fields = &response.dynamic_metadata.as_ref().expect("metadata").fields;
        format!("{:?}", fields["quotaModeViolations"].kind.as_ref().expect("a list"))
    };
    assert_eq!(metadata(&beyond), "ListValue(ListValue { values: [] })");
    // A denial of the others takes no part of theirs, and theirs denies none of the others.
    let denied = limits.answer(&request("d", &["quota=1", "user=1", "quota=2", "closed=1"])).await;
    assert_eq!(text_of(&denied), "OVER: OK 0/1 SECOND, OVER 0/1 SECOND, OK 0/1 SECOND, OK 0/0 SECOND");
    let violations = metadata(&denied);
    assert!(violations.contains("NumberValue(0.0)") && violations.contains("NumberValue(3.0)"), "{violations}");
    assert!(!violations.contains("NumberValue(2.0)"), "{violations}");
    assert!(limits.answer(&request("d", &["user=9"])).await.dynamic_metadata.is_none());
}

#[tokio::test]
async fn a_postpaid_limit_admits_while_something_is_left_and_charges_all_later_hits() {
    let limits = Limits::new(
        "domain: d\ndescriptors: [{key: tokens, rate_limit: {limit: 100/min, postpaid: true}}, \
         {key: user, rate_limit: {limit: 5/s}}]",
    );
    assert_eq!(limits.send(&["tokens=1 0"]).await, "OK: OK 100/100 MINUTE");
    // Without a number of its own a descriptor asks, and takes nothing.
    assert_eq!(limits.send(&["tokens=1", "user=1"]).await, "OK: OK 100/100 MINUTE, OK 4/5 SECOND");
    assert_eq!(limits.send(&["tokens=1 99"]).await, "OK: OK 1/100 MINUTE");
    assert_eq!(limits.send(&["tokens=1 0"]).await, "OK: OK 1/100 MINUTE");
    assert_eq!(limits.send(&["tokens=1 250"]).await, "OK: OK 0/100 MINUTE");
    assert_eq!(limits.send(&["tokens=1 0", "user=1"]).await, "OVER: OVER 0/100 MINUTE, OK 4/5 SECOND");
    assert_eq!(limits.send(&["tokens=1"]).await, "OVER: OVER 0/100 MINUTE");
    assert_eq!(limits.send(&["tokens=1 10"]).await, "OK: OK 0/100 MINUTE");
    limits.clock.advance(Duration::from_secs(60));
    assert_eq!(limits.send(&["tokens=1 0"]).await, "OK: OK 100/100 MINUTE");
}

#[tokio::test]
async fn negative_hits_give_permits_back() {
    let limits = Limits::new(
        "domain: d\ndescriptors: [{key: user, rate_limit: {limit: 10/min, refunds: true}}, {key: path, rate_limit: {limit: 9/s}}]",
    );
    assert_eq!(limits.send(&["user=1 6", "path=/a"]).await, "OK: OK 4/10 MINUTE, OK 8/9 SECOND");
    assert_eq!(limits.send(&["user=1 -4"]).await, "OK: OK 8/10 MINUTE");
    // The rest of the request that was given back is taken for good, and so is what no request holds.
    assert_eq!(limits.send(&["user=1 -4"]).await, "OK: OK");
    assert_eq!(limits.send(&["user=2 -4"]).await, "OK: OK");
    assert_eq!(limits.send(&["user=1 2"]).await, "OK: OK 6/10 MINUTE");
    assert_eq!(limits.send(&["user=1 3"]).await, "OK: OK 3/10 MINUTE");
    assert_eq!(limits.send(&["user=1 -4"]).await, "OK: OK 7/10 MINUTE");
    let status = limits.limits.answer(&request("d", &["path=/a -1"]), None).await.expect_err("no refunds");
    assert_eq!(status.code(), GrpcCode::InvalidArgument);
    assert!(status.message().contains("write `refunds: true`"), "{status:?}");
}

#[tokio::test]
async fn descriptors_of_one_key_are_admitted_and_given_back_together() {
    let limits = Limits::new(
        "domain: d\ndescriptors: [{key: user, rate_limit: {limit: 10/min, refunds: true}}, {key: off, rate_limit: {limit: 1/s, refunds: true}}]",
    );
    assert_eq!(
        limits.send(&["user=1 2", "user=1 3", "user=2"]).await,
        "OK: OK 7/10 MINUTE, OK 7/10 MINUTE, OK 9/10 MINUTE"
    );
    assert_eq!(limits.send(&["user=1 -2"]).await, "OK: OK 9/10 MINUTE");
    assert_eq!(limits.send(&["user=1 -2"]).await, "OK: OK");
    // What a mode or a policy admits takes nothing, and so gives nothing back.
    limits
        .limits
        .service
        .limiter()
        .set_rules(
            "[rules.\"d.off\"]\nmode = \"off\"\n[[rules.\"d.off\".override]]\nmatch = { off = \"9\" }\nmode = \"deny\""
                .parse()
                .expect("rules"),
        )
        .expect("rules");
    assert_eq!(limits.send(&["off=1", "user=2"]).await, "OK: OK unlimited, OK 8/10 MINUTE");
    assert_eq!(limits.send(&["off=1 -1"]).await, "OK: OK");
    let open = Limits::of(
        Limiter::builder().failing(ErrorKind::Unavailable).on_error(OnError::Open),
        "domain: d\ndescriptors: [{key: user, rate_limit: {limit: 10/min, refunds: true}}]",
    );
    assert_eq!(open.send(&["user=1", "user=1"]).await, "OK: OK, OK");
}

#[tokio::test]
async fn a_failure_in_shadow_mode_fails_no_request() {
    let text = "domain: d\ndescriptors: [{key: shadow, shadow_mode: true, rate_limit: {limit: 1/s}}, {key: open, rate_limit: {unlimited: true}}]";
    let limits = Limits::of(Limiter::builder().failing(ErrorKind::Unavailable).on_error(OnError::Raise), text);
    assert_eq!(limits.send(&["shadow=1", "open=1"]).await, "OK: OK, OK unlimited");
    // An enforced key of the rule neither: the others may have taken their permits.
    let rule = "[[rules.\"d.shadow\".override]]\nmatch = { shadow = \"2\" }\nmode = \"enforce\"";
    limits.limits.service.limiter().set_rules(rule.parse().expect("rules")).expect("rules");
    assert_eq!(limits.send(&["shadow=2", "open=1"]).await, "OK: OK, OK unlimited");
}

#[tokio::test]
async fn calls_at_once_are_bounded_and_given_back() {
    let limits = Limits::new(
        "domain: d\ndescriptors: [{key: erp, rate_limit: {limit: 2 concurrent, hold: 10s}}, {key: user, rate_limit: {limit: 2/min}}]",
    );
    assert_eq!(limits.send(&["erp=1", "user=1"]).await, "OK: OK 1/2 UNKNOWN, OK 1/2 MINUTE");
    assert_eq!(limits.send(&["erp=1", "user=1"]).await, "OK: OK 0/2 UNKNOWN, OK 0/2 MINUTE");
    // A denial of either takes nothing of the other.
    assert_eq!(limits.send(&["erp=1", "user=2"]).await, "OVER: OVER 0/2 UNKNOWN, OK");
    assert_eq!(limits.send(&["user=2"]).await, "OK: OK 1/2 MINUTE");
    assert_eq!(limits.send(&["erp=1 -1"]).await, "OK: OK");
    assert_eq!(limits.send(&["erp=1", "user=1"]).await, "OVER: OK 0/2 UNKNOWN, OVER 0/2 MINUTE");
    assert_eq!(limits.send(&["erp=1 0"]).await, "OK: OK 1/2 UNKNOWN");
    assert_eq!(limits.send(&["erp=1"]).await, "OK: OK 0/2 UNKNOWN");
    assert_eq!(limits.limits.service.held_slots(), 2);
}

#[tokio::test]
async fn a_slot_is_given_back_once_whatever_the_hits() {
    let limits = Limits::new("domain: d\ndescriptors: [{key: erp, rate_limit: {limit: 3 concurrent, hold: 10s}}]");
    for left in (0..3).rev() {
        assert_eq!(limits.send(&["erp=1 5"]).await, format!("OK: OK {left}/3 UNKNOWN"));
    }
    assert_eq!(limits.send(&["erp=1 -5"]).await, "OK: OK");
    assert_eq!(limits.limits.service.held_slots(), 2);
    assert_eq!(limits.send(&["erp=1"]).await, "OK: OK 0/3 UNKNOWN");
    assert_eq!(limits.send(&["erp=1"]).await, "OVER: OVER 0/3 UNKNOWN");
}

#[tokio::test]
async fn a_wrong_request_has_a_status_that_names_the_mistake() {
    let limits = Limits::new(PLAIN);
    let overridden = {
        let mut request = request("d", &["user=1"]);
        request.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit: 1, unit: 1 });
        request
    };
    let many = vec!["user=1"; 129];
    let cases = [
        (request("", &["user=1"]), GrpcCode::InvalidArgument, "`domain`"),
        (request("d", &[]), GrpcCode::InvalidArgument, "`descriptors` must have at least one"),
        (request("d", &["user=1", ""]), GrpcCode::InvalidArgument, "`descriptors[1]` must have at least one entry"),
        (overridden, GrpcCode::InvalidArgument, "`descriptors[0]` must have no `limit`"),
        (request("d", &many), GrpcCode::ResourceExhausted, "at most 128, got 129"),
    ];
    for (request, code, message) in cases {
        let status = limits.limits.answer(&request, None).await.expect_err(message);
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(message), "{status:?}");
    }
    // As in Envoy's own service, a domain without a file limits nothing.
    assert_eq!(text_of(&limits.answer(&request("other", &["user=1"])).await), "OK: OK");
}

#[tokio::test]
async fn a_failure_under_raise_is_unavailable_and_the_policies_answer() {
    let failing = |on_error| Limits::of(Limiter::builder().failing(ErrorKind::Unavailable).on_error(on_error), PLAIN);
    let raised = failing(OnError::Raise).limits.answer(&request("d", &["user=1"]), None).await.expect_err("raised");
    assert_eq!(raised.code(), GrpcCode::Unavailable, "{raised:?}");
    assert_eq!(failing(OnError::Open).send(&["user=1", "path=/a"]).await, "OK: OK, OK");
    assert_eq!(failing(OnError::Closed).send(&["user=1", "path=/a"]).await, "OVER: OVER, OVER");
    assert_eq!(failing(OnError::Standby).send(&["user=1", "path=/a"]).await, "OK: OK 2/3 MINUTE, OK 1/2 UNKNOWN");
}

/// The decisions of one file on a store that takes a time of the clock of the machine. The limiter waits 100 ms.
fn slow(delay: Duration, yaml: &str) -> (RateLimits, TempDir) {
    let slow = Limiter::builder().slow(delay).on_error(OnError::Closed).receipt_secret([7; 32]);
    let limiter = slow.report_limits(true).build().expect("valid");
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("a.yaml"), yaml).expect("a file");
    let config = Arc::new(EnvoyConfig::load(vec![directory.path().to_path_buf()], &limiter).expect("rules"));
    let service = Arc::new(DecisionService::new(limiter, ServicePolicy::default()));
    (RateLimits { service, config, held: HeldHits::default() }, directory)
}

#[tokio::test]
async fn a_request_has_the_deadline_of_its_sender() {
    let (limits, _directory) = slow(Duration::from_millis(50), PLAIN);
    let after = |time: Duration| Some(Instant::now() + time);
    let (request, short) = (request("d", &["user=1", "path=/a"]), Duration::from_millis(17));
    assert_eq!(text_of(&limits.answer(&request, after(short)).await.expect("closed")), "OVER: OVER, OVER");
    assert_eq!(text_of(&limits.answer(&request, after(Duration::ZERO)).await.expect("closed")), "OVER: OVER, OVER");
    assert!(text_of(&limits.answer(&request, None).await.expect("decided")).starts_with("OK: OK 2/3"));
    // What is left of 70 ms after 40 is too short too.
    let end = after(Duration::from_millis(70));
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(text_of(&limits.answer(&request, end).await.expect("closed")), "OVER: OVER, OVER");
    let long = after(Duration::from_secs(5));
    assert!(text_of(&limits.answer(&request, long).await.expect("decided")).starts_with("OK: OK 1/3"));
}

#[tokio::test]
async fn a_dropped_request_charges_and_gives_back() {
    let yaml = "domain: d\ndescriptors: [{key: tokens, rate_limit: {limit: 100/h, postpaid: true}}, \
        {key: user, rate_limit: {limit: 10/h, refunds: true}}]";
    let (limits, _directory) = slow(Duration::from_millis(30), yaml);
    let send = async |descriptors: &[&str]| {
        text_of(&limits.answer(&request("d", descriptors), None).await.expect("an answer"))
    };
    assert_eq!(send(&["user=1 6"]).await, "OK: OK 4/10 HOUR");
    let (short, changes) = (Duration::from_millis(5), request("d", &["tokens=1 40", "user=1 -4"]));
    let dropped = tokio::time::timeout(short, limits.answer(&changes, Some(Instant::now() + short))).await;
    assert!(dropped.is_err(), "{dropped:?}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(send(&["tokens=1 0", "user=1 0"]).await, "OK: OK 60/100 HOUR, OK 8/10 HOUR");
}

#[tokio::test]
async fn what_could_not_be_given_back_is_given_back_later() {
    // The store takes longer than the limiter waits, for a settlement too.
    let yaml = "domain: d\ndescriptors: [{key: user, rate_limit: {limit: 10/h, refunds: true}}]";
    let (limits, _directory) = slow(Duration::from_millis(150), yaml);
    let key = || HeldKey { rule: "d.user".into(), values: ["1".into()].into() };
    let (quick, _other) = slow(Duration::ZERO, yaml);
    quick.answer(&request("d", &["user=1 6"]), None).await.expect("an answer");
    let (end, hits) = quick.held.take(&key(), Instant::now()).expect("held");
    limits.held.put_back(key(), end, hits.clone());
    let status = limits.answer(&request("d", &["user=1 -4"]), None).await.expect_err("the store is too slow");
    assert_eq!(status.code(), GrpcCode::Unavailable, "{status:?}");
    assert_eq!(limits.held.take(&key(), Instant::now()), Some((end, hits)));
}

#[tokio::test]
async fn shared_rules_change_a_descriptor() {
    let limits = Limits::new(PLAIN);
    let limiter = limits.limits.service.limiter();
    let rules = "[rules.\"d.user\"]\nlimits = [\"5/s\", \"7/h\"]\n[[rules.\"d.user\".override]]\nmatch = { user = \"42\" }\nlimit = \"9/s\"\n\
        [rules.\"d.path\"]\nmode = \"off\"";
    limiter.set_rules(rules.parse().expect("rules")).expect("rules");
    assert_eq!(limits.send(&["user=1", "path=/a"]).await, "OK: OK 4/5 SECOND, OK unlimited");
    assert_eq!(limits.send(&["user=42"]).await, "OK: OK 8/9 SECOND");
    assert_eq!(limits.send(&["user=1 4"]).await, "OK: OK 0/5 SECOND");
    limits.clock.advance(Duration::from_secs(1));
    assert_eq!(limits.send(&["user=1 3"]).await, "OVER: OVER 2/7 HOUR");
    limiter.set_rules("[rules.\"d.user\"]\nmode = \"deny\"".parse().expect("rules")).expect("rules");
    assert_eq!(limits.send(&["user=1", "path=/a"]).await, "OVER: OVER, OK");
}

#[tokio::test]
async fn an_override_denies_one_key_of_a_rule_that_is_off_or_in_shadow_mode() {
    let limits = Limits::new(
        "domain: d
descriptors:
  - key: open
    rate_limit: {unlimited: true}
  - key: shadow
    rate_limit: {unit: second, requests_per_unit: 1}
    shadow_mode: true
  - key: erp
    rate_limit: {limit: 2 concurrent, hold: 10s}
  - key: user
    rate_limit: {limit: 9/s}
",
    );
    assert_eq!(limits.send(&["open=42", "shadow=42"]).await, "OK: OK unlimited, OK 0/1 SECOND");
    let deny =
        |rule: &str| format!("[[rules.\"d.{rule}\".override]]\nmatch = {{ {rule} = \"42\" }}\nmode = \"deny\"\n");
    let rules = deny("open") + &deny("shadow");
    limits.limits.service.limiter().set_rules(rules.parse().expect("rules")).expect("rules");
    // Another key is as before.
    assert_eq!(limits.send(&["open=1", "user=1"]).await, "OK: OK unlimited, OK 8/9 SECOND");
    assert_eq!(limits.send(&["open=1"]).await, "OK: OK unlimited");
    assert_eq!(limits.send(&["open=1 -1"]).await, "OK: OK unlimited");
    assert_eq!(limits.send(&["shadow=1"]).await, "OK: OK 0/1 SECOND");
    assert_eq!(limits.send(&["shadow=1"]).await, "OK: OK 0/1 SECOND");
    assert_eq!(limits.send(&["open=42"]).await, "OVER: OVER");
    assert_eq!(limits.send(&["user=1", "open=42"]).await, "OVER: OK, OVER");
    assert_eq!(limits.send(&["shadow=42"]).await, "OVER: OVER");
    let denied = limits.answer(&request("d", &["shadow=42", "erp=1"])).await;
    assert_eq!(text_of(&denied), "OVER: OVER, OK 1/2 UNKNOWN");
    assert!(!denied.raw_body.is_empty());
    // A denied request holds no slot.
    assert_eq!(limits.limits.service.held_slots(), 0);
}
