//! Answers to requests that the service does not get.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use limiter_core::{Denied, Error};

/// The kinds of answers of a layer to requests that the service does not get.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer with the body `{B}`",
    note = "the body of a service with this layer needs `From<String>`; after `denied` or `grpc` it needs `Default`"
)]
pub trait Answer<B> {
    /// Returns the answer to a denied request, without the fields about quotas.
    fn denied(&self, parts: &Parts, denied: &Denied) -> Response<B>;

    /// Returns the answer to a request that the limiter could not decide.
    fn failed(&self, error: Error) -> Response<B>;

    /// Returns the answer to a request that lacks its key.
    fn lacks_key(&self) -> Response<B>;
}

/// Answers that have a status of HTTP.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no status of HTTP: that of gRPC is in the trailers",
    label = "not together with `grpc`",
    note = "`refund_if` sees the status of HTTP alone, and `denied` sets it: leave one of the two methods out"
)]
pub trait HttpAnswer {}

/// The answers of HTTP: a status, and a problem text as the body.
#[derive(Clone, Copy, Debug)]
pub struct ProblemAnswer;

const LACKS_KEY: &str = r#"{"type":"about:blank","title":"The request lacks the key of its rate limit","status":400}"#;

impl HttpAnswer for ProblemAnswer {}

impl<B: From<String>> Answer<B> for ProblemAnswer {
    fn denied(&self, _: &Parts, denied: &Denied) -> Response<B> {
        problem(limiter_core::http::status(denied), limiter_core::http::problem(denied))
    }

    fn failed(&self, error: Error) -> Response<B> {
        problem(limiter_core::http::error_status(&error), limiter_core::http::error_problem(&error))
    }

    fn lacks_key(&self) -> Response<B> {
        problem(StatusCode::BAD_REQUEST.as_u16(), LACKS_KEY.to_owned())
    }
}

fn problem<B: From<String>>(code: u16, text: String) -> Response<B> {
    let mut response = Response::new(B::from(text));
    *response.status_mut() = status(code);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
}

/// The program's own answers to denied requests. Other answers have no body.
#[derive(Debug)]
pub struct CustomAnswer<F>(pub(crate) Arc<F>);

impl<F> Clone for CustomAnswer<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F> HttpAnswer for CustomAnswer<F> {}

impl<B: Default, F: Fn(&Parts, &Denied) -> Response<B>> Answer<B> for CustomAnswer<F> {
    fn denied(&self, parts: &Parts, denied: &Denied) -> Response<B> {
        (self.0)(parts, denied)
    }

    fn failed(&self, error: Error) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = status(limiter_core::http::error_status(&error));
        response
    }

    fn lacks_key(&self) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        response
    }
}

/// Answers of a layer that settles requests by the status of HTTP.
#[derive(Clone, Debug)]
pub struct SettlingAnswer<A>(pub(crate) A);

impl<A: HttpAnswer> HttpAnswer for SettlingAnswer<A> {}

impl<B, A: Answer<B>> Answer<B> for SettlingAnswer<A> {
    fn denied(&self, parts: &Parts, denied: &Denied) -> Response<B> {
        self.0.denied(parts, denied)
    }

    fn failed(&self, error: Error) -> Response<B> {
        self.0.failed(error)
    }

    fn lacks_key(&self) -> Response<B> {
        self.0.lacks_key()
    }
}

/// The answers of gRPC: a status in the trailers, without a body.
#[cfg(feature = "tonic")]
#[derive(Clone, Copy, Debug)]
pub struct GrpcAnswer;

/// Answers that can become those of gRPC.
#[cfg(feature = "tonic")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` has answers of HTTP: the status of gRPC is in the trailers",
    label = "not together with `refund_if` or `denied`",
    note = "`refund_if` sees the status of HTTP alone, and `denied` sets it: leave one of the two methods out"
)]
pub trait Plain {}

#[cfg(feature = "tonic")]
#[diagnostic::do_not_recommend]
impl Plain for ProblemAnswer {}

#[cfg(feature = "tonic")]
impl<B: Default> Answer<B> for GrpcAnswer {
    fn denied(&self, _: &Parts, denied: &Denied) -> Response<B> {
        tonic::Status::from(denied.clone()).into_http()
    }

    fn failed(&self, error: Error) -> Response<B> {
        tonic::Status::from(error).into_http()
    }

    fn lacks_key(&self) -> Response<B> {
        tonic::Status::invalid_argument("the request lacks the key of its rate limit").into_http()
    }
}
