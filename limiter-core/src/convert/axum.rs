//! Responses of axum 0.8 for denials and failures.

use axum_core::body::Body;
use axum_core::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::convert::{FromDenied, FromFailure};
use crate::http::{self as answers, Fields};
use crate::{Decision, Denied, Error};

/// The answer to a denied call: status, [fields](crate::http::fields) and a [problem](crate::http::problem) as its body.
///
/// With the feature `axum`, of axum 0.8. So a handler may return `Result<T, Denied>`, and needs no `fallback`.
impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let mut response = problem_response(answers::status(&self), answers::problem(&self));
        for (name, value) in answers::fields(&Decision::Denied(self), Fields::default()) {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// The answer to a call that the limiter could not decide: 503, with a [problem](crate::http::error_problem) as its
/// body. It does not contain the error's text.
///
/// With the feature `axum`, of axum 0.8.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        problem_response(answers::error_status(&self), answers::error_problem(&self))
    }
}

/// The response of a handler that is denied. With the feature `axum`, of axum 0.8.
#[diagnostic::do_not_recommend]
impl FromDenied for Response {
    fn from_denied(denied: Denied) -> Self {
        denied.into_response()
    }
}

/// The response of a handler whose limiter fails. With the feature `axum`, of axum 0.8.
#[diagnostic::do_not_recommend]
impl FromFailure for Response {
    fn from_failure(error: Error) -> Self {
        error.into_response()
    }
}

fn problem_response(status: u16, problem: String) -> Response {
    let mut response = Response::new(Body::from(problem));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(all(test, not(limiter_loom), feature = "redis", feature = "test-util"))]
mod tests {
    use super::*;
    use crate::{ErrorKind, Key, Limiter, ManualClock};

    #[test]
    fn a_denial_is_a_response_with_fields_and_a_problem() {
        let limiter = Limiter::builder().clock(ManualClock::new()).build().expect("builds");
        let (key, limit) = (Key::new("a"), "1/10s".parse().expect("a limit"));
        let _ = limiter.named("api").check_blocking(&key, &limit);
        let denied = limiter.named("api").check_blocking(&key, &limit).expect("decides").into_result();
        let response = Response::from_denied(denied.expect_err("there is one permit"));
        assert_eq!(response.status(), 429);
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("none");
        assert_eq!(header("ratelimit-policy"), r#""api";q=1;w=10"#);
        assert_eq!(header("ratelimit"), r#""api";r=0;t=10"#);
        assert_eq!(header("retry-after"), "10");
        assert_eq!(header("content-type"), "application/problem+json");
        assert_eq!(header("cache-control"), "no-store");
    }

    #[test]
    fn a_failure_is_a_response_without_its_text() {
        let response = Response::from_failure(Error::new(ErrorKind::Unavailable, "redis.internal:6379 is down"));
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert!(!format!("{response:?}").contains("internal"));
    }
}
