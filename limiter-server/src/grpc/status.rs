//! The statuses of descriptors and of problems, and what Envoy adds to the answer.

use std::time::Duration;

use rate_limited::http::{self, Fields};
use rate_limited::{Decision, Limit, Usage};
use tonic::Status;

use super::messages::{Code, DescriptorStatus, HeaderValue, RateLimit, Unit};
use crate::envoy::{EnvoyRule, UNITS};
use crate::service::{Answer, LimitAnswer, Problem, ProblemClass};

/// The status of a descriptor that nothing limits.
pub(super) fn unlimited(limit_remaining: u32) -> DescriptorStatus {
    DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..DescriptorStatus::default() }
}

/// The status of a descriptor whose rule grants nothing.
pub(super) fn denied_by_mode(rule: &EnvoyRule, code: Code) -> DescriptorStatus {
    let current_limit = rule.denied_limit().map(|limit| RateLimit { requests_per_unit: 0, ..rate_limit(limit, rule) });
    DescriptorStatus { code: code.into(), current_limit, ..DescriptorStatus::default() }
}

/// The status of a descriptor that was decided under these limits: the numbers are those of the limit that denied, or else of
/// the one with the least left.
pub(super) fn decided(code: Code, limits: &[LimitAnswer<'_>], rule: &EnvoyRule) -> DescriptorStatus {
    let waits = |limit: &&LimitAnswer<'_>| limit.retry_after != Some(Duration::ZERO);
    let denying = limits.iter().find(waits).filter(|_| code == Code::OverLimit);
    let Some(limit) = denying.or_else(|| limits.iter().min_by_key(|limit| limit.remaining)) else {
        return denied_by_mode(rule, code);
    };
    let until_reset = match denying {
        Some(LimitAnswer { retry_after: Some(retry_after), .. }) => *retry_after,
        _ => limit.reset_after,
    };
    DescriptorStatus {
        code: code.into(),
        current_limit: Some(rate_limit(limit.limit, rule)),
        limit_remaining: limit.remaining,
        duration_until_reset: Some(duration(until_reset)),
    }
}

/// The status of a descriptor that was charged, or given back. Without a usage nothing was.
pub(super) fn charged(usage: Option<&Usage>, rule: &EnvoyRule) -> DescriptorStatus {
    let Some(usage) = usage else { return DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() } };
    DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: Some(rate_limit(usage.limit(), rule)),
        limit_remaining: usage.remaining(),
        duration_until_reset: Some(duration(usage.reset_after())),
    }
}

/// The limit as Envoy shows it. A window that is none of Envoy's units has the unit UNKNOWN.
fn rate_limit(limit: Limit, rule: &EnvoyRule) -> RateLimit {
    let name = rule.limit_name().unwrap_or(rule.name()).to_owned();
    RateLimit { requests_per_unit: limit.max(), unit: unit_of(limit).into(), name }
}

fn unit_of(limit: Limit) -> Unit {
    if limit.is_concurrent() {
        return Unit::Unknown;
    }
    let window = limit.window();
    let is_whole = window.subsec_nanos() == 0;
    let unit = UNITS.iter().find(|(_, seconds)| is_whole && *seconds == window.as_secs());
    match unit.map(|(name, _)| *name) {
        Some("second") => Unit::Second,
        Some("minute") => Unit::Minute,
        Some("hour") => Unit::Hour,
        Some("day") => Unit::Day,
        Some("week") => Unit::Week,
        Some("month") => Unit::Month,
        Some("year") => Unit::Year,
        _ => Unit::Unknown,
    }
}

fn duration(time: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: i32::try_from(time.subsec_nanos()).unwrap_or(0) }
}

/// The fields that Envoy adds to the answer. It adds them to admitted answers too, so these have none of a denial.
pub(super) fn headers(answer: &Answer) -> Vec<HeaderValue> {
    let mut headers: Vec<_> = http::fields(answer.decision(), Fields::default())
        .into_iter()
        .filter(|(name, _)| !answer.is_allowed() || *name != "retry-after")
        .map(|(name, value)| HeaderValue { key: name.to_owned(), value })
        .collect();
    if !answer.is_allowed() {
        headers.push(HeaderValue { key: "content-type".to_owned(), value: "application/problem+json".to_owned() });
    }
    headers
}

/// The body of a denial.
pub(super) fn body(answer: &Answer) -> Vec<u8> {
    match answer.decision() {
        Decision::Denied(denied) => http::problem(denied).into_bytes(),
        Decision::Allowed(_) => Vec::new(),
    }
}

/// The metadata of descriptors in quota mode: whether there are some, and the places of those beyond their limit.
pub(super) fn quota_metadata(domain: &str, violations: &[usize]) -> prost_types::Struct {
    use prost_types::value::Kind;

    let value = |kind| prost_types::Value { kind: Some(kind) };
    // A place is below 128.
    let number = |index: &usize| f64::from(u32::try_from(*index).unwrap_or(u32::MAX));
    let values = violations.iter().map(|index| value(Kind::NumberValue(number(index)))).collect();
    let fields = [
        ("domain", Kind::StringValue(domain.to_owned())),
        ("quotaModeEnabled", Kind::BoolValue(true)),
        ("quotaModeViolations", Kind::ListValue(prost_types::ListValue { values })),
    ];
    prost_types::Struct { fields: fields.into_iter().map(|(name, kind)| (name.to_owned(), value(kind))).collect() }
}

/// The status of gRPC for a problem.
pub(super) fn of_problem(problem: &Problem) -> Status {
    let detail = match problem.suggestion() {
        Some(suggestion) => format!("{}: {suggestion}", problem.detail()),
        None => problem.detail(),
    };
    match problem.class() {
        ProblemClass::Invalid => Status::invalid_argument(detail),
        ProblemClass::Unknown => Status::not_found(detail),
        ProblemClass::Used => Status::already_exists(detail),
        ProblemClass::Unusable => Status::failed_precondition(detail),
        ProblemClass::Forbidden => Status::permission_denied(detail),
        ProblemClass::Unavailable => Status::unavailable(detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_no_unit_has_an_unknown_one() {
        for (limit, unit) in [
            ("5/s", Unit::Second),
            ("5/60s", Unit::Minute),
            ("5/h", Unit::Hour),
            ("5/d", Unit::Day),
            ("5/7d", Unit::Week),
            ("5/30d", Unit::Month),
            ("5/365d", Unit::Year),
            ("5/30s", Unit::Unknown),
            ("5/1500ms", Unit::Unknown),
            ("5 concurrent", Unit::Unknown),
        ] {
            assert_eq!(unit_of(limit.parse().expect("a limit")), unit, "{limit}");
        }
    }
}
