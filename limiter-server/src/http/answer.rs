//! Answers as JSON, with the fields of the layer.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use rate_limited::http::{Fields, fields};
use rate_limited::{Receipt, Usage};
use serde::{Serialize, Serializer};

use crate::service::{Answer, LimitAnswer, SlotAnswer, millis};

/// The answer to a call, also as one of a batch.
#[derive(Serialize)]
pub(crate) struct AnswerBody<'a> {
    /// The status of one check of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    allowed: bool,
    /// `None` for limits of the caller's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    limits: LimitList<'a>,
    retry_after_ms: Option<u64>,
    source: &'static str,
    #[serde(skip_serializing_if = "is_false")]
    blocked: bool,
    #[serde(skip_serializing_if = "is_false")]
    shadowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<&'a Receipt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

struct LimitList<'a>(&'a Answer);

impl Serialize for LimitList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.limits().map(LimitBody::from))
    }
}

/// A limit of an answer. Its text is that of the rules.
#[derive(Serialize)]
struct LimitBody {
    limit: LimitText,
    remaining: u32,
    retry_after_ms: Option<u64>,
    reset_after_ms: u64,
}

struct LimitText(rate_limited::Limit);

impl Serialize for LimitText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl From<LimitAnswer<'_>> for LimitBody {
    fn from(limit: LimitAnswer<'_>) -> Self {
        Self {
            limit: LimitText(limit.limit),
            remaining: limit.remaining,
            retry_after_ms: limit.retry_after.map(millis),
            reset_after_ms: millis(limit.reset_after),
        }
    }
}

impl<'a> AnswerBody<'a> {
    pub(crate) fn new(answer: &'a Answer, is_of_rule: bool) -> Self {
        Self {
            status: None,
            allowed: answer.is_allowed(),
            rule: is_of_rule.then(|| answer.rule()),
            limits: LimitList(answer),
            retry_after_ms: answer.retry_after().map(millis),
            source: answer.source().as_str(),
            blocked: answer.is_blocked(),
            shadowed: answer.is_shadowed(),
            receipt: answer.receipt(),
            slot: answer.slot().map(|slot| &*slot.id),
            ttl_ms: answer.slot().map(|slot| millis(slot.ttl)),
        }
    }

    /// Returns it as one check of a batch, which has its own status.
    pub(crate) fn of_batch(answer: &'a Answer, is_of_rule: bool) -> Self {
        Self { status: Some(status_of(answer).as_u16()), ..Self::new(answer, is_of_rule) }
    }
}

/// The answer of a charge or a settlement.
#[derive(Serialize)]
pub(crate) struct UsageBody {
    limit: LimitText,
    remaining: u32,
    overdrawn: u32,
    uncounted: u32,
    reset_after_ms: u64,
    source: &'static str,
}

impl From<&Usage> for UsageBody {
    fn from(usage: &Usage) -> Self {
        Self {
            limit: LimitText(usage.limit()),
            remaining: usage.remaining(),
            overdrawn: usage.overdrawn(),
            uncounted: usage.uncounted(),
            reset_after_ms: millis(usage.reset_after()),
            source: usage.source().as_str(),
        }
    }
}

/// The answer of a renewal.
#[derive(Serialize)]
pub(crate) struct SlotBody<'a> {
    slot: &'a str,
    ttl_ms: u64,
}

impl<'a> From<&'a SlotAnswer> for SlotBody<'a> {
    fn from(slot: &'a SlotAnswer) -> Self {
        Self { slot: &slot.id, ttl_ms: millis(slot.ttl) }
    }
}

/// Returns the status of an answer: 429 for every denial.
///
/// A denial by the policy `closed` is a decision too. A gateway that admits when the service fails must not take it for a
/// failure.
pub(crate) fn status_of(answer: &Answer) -> StatusCode {
    if answer.is_allowed() { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS }
}

/// Adds `RateLimit-Policy`, `RateLimit` and `Retry-After`, as the layer of tower does.
pub(crate) fn add_fields(answer: &Answer, headers: &mut HeaderMap) {
    for (name, value) in fields(answer.decision(), Fields::Draft11) {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Returns a response with a body of JSON.
pub(crate) fn json_response(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let mut bytes = Vec::with_capacity(256);
    // A body of texts and numbers is always written.
    let _ = serde_json::to_writer(&mut bytes, body);
    bytes_response(status, HeaderValue::from_static("application/json"), bytes)
}

/// Returns a response with a body of a type.
pub(crate) fn bytes_response(status: StatusCode, kind: HeaderValue, bytes: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Returns a response that no cache keeps.
pub(crate) fn uncached(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
