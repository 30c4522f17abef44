//! Decisions as parts of an HTTP reply.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use rate_limited::{Allowed, Denied, Limiter, Source};
use serde_json::json;

/// The answer to a call that was not let through.
pub(crate) struct Rejection(Denied);

impl From<Denied> for Rejection {
    fn from(denied: Denied) -> Self {
        Self(denied)
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let Self(denied) = self;
        if denied.source() == Source::Policy {
            return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": "unavailable" }))).into_response();
        }
        // No wait helps a blocked user.
        let retry_after = (!denied.is_final()).then(|| denied.retry_after_secs());
        let header = retry_after.map(|seconds| [(header::RETRY_AFTER, seconds.to_string())]);
        let body = json!({
            "error": "rate limited",
            "rule": denied.name(),
            "limit": denied.limit(),
            "retry_after": retry_after,
        });
        (StatusCode::TOO_MANY_REQUESTS, header, Json(body)).into_response()
    }
}

/// The headers of a limit. `None` for a call that no limit bounds.
pub(crate) type LimitHeaders = Option<[(&'static str, String); 3]>;

/// Returns the headers of an allowed call.
pub(crate) fn limit_headers(allowed: &Allowed) -> LimitHeaders {
    headers_after_refund(allowed, 0)
}

/// Gives permits of an allowed call back, and returns its headers.
pub(crate) async fn refund(allowed: &Allowed, permits: u32) -> LimitHeaders {
    match Limiter::current().refund_n(allowed, permits).await {
        Ok(()) => headers_after_refund(allowed, permits),
        Err(error) => {
            tracing::warn!(%error, "permits were not given back");
            limit_headers(allowed)
        }
    }
}

fn headers_after_refund(allowed: &Allowed, refunded: u32) -> LimitHeaders {
    // Clients must not obey a limit that is only tried, and without a store there are no numbers.
    if !allowed.is_enforced() || allowed.source() == Source::Policy {
        return None;
    }
    let max = allowed.limit().max();
    let remaining = allowed.remaining().saturating_add(refunded).min(max);
    // Without its microseconds: 60 s must not become 61 s.
    let reset_seconds = allowed.reset_after().as_millis().div_ceil(1_000);
    Some([
        ("ratelimit-limit", max.to_string()),
        ("ratelimit-remaining", remaining.to_string()),
        ("ratelimit-reset", reset_seconds.to_string()),
    ])
}
