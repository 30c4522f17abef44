//! Problems as answers of HTTP: `application/problem+json` of RFC 9457.

use axum::body::Body;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::service::{Problem, ProblemClass};

/// A request without a result.
#[derive(Debug)]
pub(crate) struct HttpProblem {
    pub(crate) status: StatusCode,
    content: Box<ProblemContent>,
}

#[derive(Debug)]
struct ProblemContent {
    body: ProblemBody,
    fields: Vec<(HeaderName, HeaderValue)>,
}

/// The body, also for one check of a batch.
#[derive(Debug, Serialize)]
pub(crate) struct ProblemBody {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
}

impl HttpProblem {
    pub(crate) fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        let (detail, status_code) = (detail.into(), status.as_u16());
        let (suggestion, line, column) = (None, None, None);
        let body =
            ProblemBody { kind: "about:blank", title, status: status_code, code, detail, suggestion, line, column };
        Self { status, content: Box::new(ProblemContent { body, fields: Vec::new() }) }
    }

    /// Its name for programs, a word of this program.
    pub(crate) fn code(&self) -> &'static str {
        self.content.body.code
    }

    /// Creates the problem of a request that is wrong in itself.
    pub(crate) fn invalid(code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, title, detail)
    }

    /// Creates the problem of a body that is not what the route needs.
    pub(crate) fn of_json(error: &serde_json::Error) -> Self {
        let mut problem = Self::invalid("invalid-json", "The body cannot be read", error.to_string());
        (problem.content.body.line, problem.content.body.column) = (Some(error.line()), Some(error.column()));
        problem
    }

    /// Creates the problem of a request without the token, or with a wrong one.
    pub(crate) fn of_token(detail: &'static str) -> Self {
        let problem = Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "The token is needed", detail);
        problem.with_field(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }

    /// Creates the problem of a method that a path does not have.
    pub(crate) fn of_method(allowed: &'static str) -> Self {
        let detail = format!("this path has {allowed} alone");
        let problem =
            Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "The path has no such method", detail);
        problem.with_field(ALLOW, HeaderValue::from_static(allowed))
    }

    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.content.body.suggestion = Some(suggestion.into());
        self
    }

    pub(crate) fn with_field(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.content.fields.push((name, value));
        self
    }

    /// The body alone, for one check of a batch.
    pub(crate) fn into_body(self) -> ProblemBody {
        self.content.body
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        // A body of texts and numbers is always written.
        let bytes = serde_json::to_vec(&self.content.body).unwrap_or_default();
        let mut response = Response::new(Body::from(bytes));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(self.content.fields);
        response
    }
}

impl From<Problem> for HttpProblem {
    fn from(problem: Problem) -> Self {
        let status = match problem.class() {
            ProblemClass::Invalid => StatusCode::BAD_REQUEST,
            ProblemClass::Unknown => StatusCode::NOT_FOUND,
            ProblemClass::Used => StatusCode::CONFLICT,
            ProblemClass::Unusable => StatusCode::UNPROCESSABLE_ENTITY,
            ProblemClass::Forbidden => StatusCode::FORBIDDEN,
            ProblemClass::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut answer = Self::new(status, problem.code(), problem.title(), problem.detail());
        answer.content.body.suggestion = problem.suggestion();
        match problem.class() {
            ProblemClass::Unavailable => answer.with_field(RETRY_AFTER, HeaderValue::from_static("1")),
            _ => answer,
        }
    }
}
