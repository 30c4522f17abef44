//! Decisions as parts of an HTTP reply.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use rate_limited::Limit;
use serde_json::json;

use crate::gate::Permit;

/// The answer to a call that was not let through.
pub(crate) enum Rejection {
    /// The limit is reached.
    Denied { rule: &'static str, limit: Limit, retry_after: Duration },
    /// The limiter failed, and the call's policy is `closed`.
    Unavailable,
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        match self {
            Self::Denied { rule, limit, retry_after } => {
                let seconds = whole_seconds(retry_after).max(1);
                let body = json!({
                    "error": "rate limited",
                    "rule": rule,
                    "limit": limit.to_string(),
                    "retry_after": seconds,
                });
                let headers = [(header::RETRY_AFTER, HeaderValue::from(seconds))];
                (StatusCode::TOO_MANY_REQUESTS, headers, Json(body)).into_response()
            }
            Self::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": "unavailable" }))).into_response()
            }
        }
    }
}

impl IntoResponseParts for Permit {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        if let Some(allowed) = self.allowed {
            let max = allowed.limit().max();
            let remaining = allowed.remaining().saturating_add(self.refunded).min(max);
            let headers = parts.headers_mut();
            headers.insert("ratelimit-limit", max.into());
            headers.insert("ratelimit-remaining", remaining.into());
            headers.insert("ratelimit-reset", whole_seconds(allowed.reset_after()).into());
        }
        Ok(parts)
    }
}

/// Returns whole seconds, rounded up.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
