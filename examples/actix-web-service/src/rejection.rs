//! The response to a request that the limiter rejects. The orphan rule allows [`ResponseError`] for a type of this crate
//! alone.

use std::fmt::{self, Display};

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError};
use rate_limited::http::{self, Fields};
use rate_limited::{Denied, Error};

/// A denial, or a failure of the limiter under the policy `raise`.
#[derive(Debug)]
pub(crate) enum Rejection {
    Denied(Denied),
    Failed(Error),
}

impl From<Denied> for Rejection {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denied) => denied.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl ResponseError for Rejection {
    fn status_code(&self) -> StatusCode {
        let status = match self {
            Self::Denied(denied) => http::status(denied),
            Self::Failed(error) => http::error_status(error),
        };
        StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        response.content_type("application/problem+json").insert_header(("cache-control", "no-store"));
        match self {
            Self::Denied(denied) => {
                for field in http::fields(&denied.clone().into(), Fields::Draft11) {
                    response.insert_header(field);
                }
                response.body(http::problem(denied))
            }
            Self::Failed(error) => response.body(http::error_problem(error)),
        }
    }
}
