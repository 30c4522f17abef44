//! The user of a request: the service's own authentication, which the limiter knows nothing of.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;

/// A user who has logged in.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) id: u64,
}

/// Adds the user to a request. The token is the user's number: a real service verifies a secret.
pub(crate) async fn authenticate(mut request: Request) -> Result<Request, StatusCode> {
    let header = request.headers().get(AUTHORIZATION).and_then(|header| header.to_str().ok());
    let token = header.and_then(|header| header.strip_prefix("Bearer "));
    let id = token.and_then(|token| token.parse().ok()).ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(User { id });
    Ok(request)
}
