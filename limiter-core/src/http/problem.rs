//! Status codes, and problem texts as bodies (RFC 9457).

use super::policy_name::PolicyName;
use crate::{Denied, Error, Source};

const TOO_MANY_REQUESTS: u16 = 429;
const SERVICE_UNAVAILABLE: u16 = 503;

/// Returns the status of the answer to a denied call: 429, or 503 if a failure policy denied it.
#[must_use]
pub fn status(denied: &Denied) -> u16 {
    if denied.source() == Source::Policy { SERVICE_UNAVAILABLE } else { TOO_MANY_REQUESTS }
}

/// Returns the status of the answer to a call that the limiter could not decide: 503.
#[must_use]
pub fn error_status(_error: &Error) -> u16 {
    SERVICE_UNAVAILABLE
}

/// Returns the body of the answer to a denied call: JSON of the type `application/problem+json`.
///
/// `violated-policies` has the rule's name, as in the field `ratelimit-policy`. `retry_after_ms` is
/// [`Denied::retry_after`] in milliseconds, rounded up; a [final](Denied::is_final) denial has none.
///
/// ```json
/// {
///   "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
///   "title": "Too many requests",
///   "status": 429,
///   "violated-policies": ["api"],
///   "retry_after_ms": 1250
/// }
/// ```
#[must_use]
pub fn problem(denied: &Denied) -> String {
    let (kind, status) = (Kind::of_denial(denied), status(denied));
    let policy = PolicyName(denied.name());
    let retry_after = denied.retry_after_millis();
    let retry_after = retry_after.map_or_else(String::new, |millis| format!(r#","retry_after_ms":{millis}"#));
    format!(r#"{{{kind},"status":{status},"violated-policies":["{policy}"]{retry_after}}}"#)
}

/// Returns the body of the answer to a call that the limiter could not decide: JSON of the type
/// `application/problem+json`.
///
/// It does not contain the error's text, which may name a server.
#[must_use]
pub fn error_problem(error: &Error) -> String {
    format!(r#"{{{},"status":{}}}"#, Kind::ReducedCapacity, error_status(error))
}

/// The types of problems, of the registry of IANA.
enum Kind {
    QuotaExceeded,
    ReducedCapacity,
}

impl Kind {
    fn of_denial(denied: &Denied) -> Self {
        if denied.source() == Source::Policy { Self::ReducedCapacity } else { Self::QuotaExceeded }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, title) = match self {
            Self::QuotaExceeded => ("quota-exceeded", "Too many requests"),
            Self::ReducedCapacity => ("temporary-reduced-capacity", "The rate limit cannot be checked"),
        };
        write!(f, r#""type":"https://iana.org/assignments/http-problem-types#{name}","title":"{title}""#)
    }
}
