//! Answers of the routes, and the bodies of requests.

use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use rate_limited::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::access::Refusal;

/// A request that has no result.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
    headers: Vec<(axum::http::HeaderName, HeaderValue)>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, body: json!({ "error": message.into() }), headers: Vec::new() }
    }

    /// Adds a field to the body.
    pub(crate) fn with(mut self, field: &str, value: Value) -> Self {
        self.body[field] = value;
        self
    }

    /// Creates the problem of a request without the token.
    pub(crate) fn no_token() -> Self {
        let problem = Self::new(StatusCode::UNAUTHORIZED, "the token is needed for this");
        Self { headers: vec![(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))], ..problem }
    }

    /// Creates the problem of a client beyond a bound.
    pub(crate) fn try_later(status: StatusCode, message: &str, seconds: u64) -> Self {
        Self { headers: vec![(RETRY_AFTER, seconds.into())], ..Self::new(status, message) }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::WrongToken => Self { body: json!({ "error": "the token is wrong" }), ..Self::no_token() },
            Refusal::TooManyWrong { retry_after } => {
                let seconds = retry_after.as_secs() + 1;
                let message = format!("too many wrong tokens from this address: try again in {seconds} s");
                Self::try_later(StatusCode::TOO_MANY_REQUESTS, &message, seconds)
            }
        }
    }
}

/// A caller with the token reads the whole message: it may name the server.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Config | ErrorKind::InvalidLimit => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Refused => StatusCode::BAD_GATEWAY,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string()).with("kind", json!(error.kind().to_string()))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.body);
        response.headers_mut().extend(self.headers);
        response
    }
}

pub(crate) fn json_response(status: StatusCode, value: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// The most bytes of a body: a text of 1 MB, each byte of which may be an escape of two, and its details.
const MAX_BODY_BYTES: usize = (2 << 20) + (16 << 10);

/// Reads the body of a request: an object of JSON.
///
/// # Errors
/// Another type, a body that is too large, and one that is no object.
pub(crate) async fn read_json(headers: &HeaderMap, body: Body) -> Result<Value, Problem> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // A form of a foreign page cannot send this type.
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the type of the body must be application/json"));
    }
    let bytes = to_bytes(body, MAX_BODY_BYTES)
        .await
        .map_err(|_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body must have at most 2 MB"))?;
    let value = serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object);
    value.ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "the body must be an object of JSON"))
}

/// Returns a text of a body, or an empty one.
///
/// # Errors
/// Another value.
pub(crate) fn text<'b>(body: &'b Value, field: &str) -> Result<&'b str, Problem> {
    match &body[field] {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text),
        _ => Err(Problem::new(StatusCode::BAD_REQUEST, format!("`{field}` must be a text"))),
    }
}
