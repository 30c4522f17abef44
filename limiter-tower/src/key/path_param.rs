//! Quotas by a parameter of the path.

use std::pin::pin;
use std::task::Poll;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use http::Request;
use http::request::Parts;

use super::{Internal, PartialKey, RequestKey};
use crate::decision_future::poll_once;
use crate::missing::Lack;
use crate::piece_name::{PieceName, PieceNames};

/// Counts by a parameter of the path, such as the tenant of `/{tenant}/data`, as axum 0.8 matched and decoded it.
///
/// `/acme/data` and `/%61cme/data` have one quota, as they have one `Path` in the handler. A text of `uri.path()` has
/// two. Axum knows parameters behind its routing alone: add the layer by `Router::route_layer`. A request whose route
/// lacks the parameter, or has it twice, lacks its key: see [`Missing`](crate::Missing).
///
/// Requests with a parameter that is no UTF-8 once decoded count together, by `\u{fffd}`. So they are never exempt.
/// Axum's `Path` answers them with 400. Its part in overrides has the parameter's name.
///
/// ```
/// use axum::Router;
/// use axum::routing::get;
/// use limiter_tower::{PathParam, RateLimitLayer};
///
/// # fn main() -> Result<(), limiter_core::Error> {
/// let layer = RateLimitLayer::new("tenants", "1000/min".parse()?).key(PathParam::new("tenant"));
/// let app: Router = Router::new().route("/{tenant}/data", get(|| async {})).route_layer(layer);
/// # let _ = app;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PathParam {
    param: String,
    name: PieceName,
}

/// The value of requests with a parameter that is no text.
const NO_TEXT: &str = "\u{fffd}";

impl PathParam {
    /// Counts by the parameter of this name: `tenant` for `{tenant}`, and `rest` for `{*rest}`.
    ///
    /// # Panics
    /// If `name` is empty or contains one of the characters `{`, `}`, `*`, `/` and `:`. Create the value at the program's
    /// start.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let is_name = !name.is_empty() && !name.contains(['{', '}', '*', '/', ':']);
        assert!(
            is_name,
            "`name` must be that of a parameter such as `tenant`, got `{name}`: write it without its braces"
        );
        Self { param: name.to_owned(), name: PieceName::new(name) }
    }
}

impl RequestKey for PathParam {}

impl Internal for PathParam {
    fn name_pieces(&mut self, names: &mut PieceNames) {
        names.assign_path_param(&mut self.name);
    }

    fn forms(&self) -> Vec<Vec<String>> {
        self.name.only_form()
    }

    fn add_to(&self, key: PartialKey, parts: &Parts) -> Result<PartialKey, Lack> {
        let params = match params_of(parts).ok_or(Lack::NoValue)? {
            Ok(params) => params,
            Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) => return Ok(key.add(self.name.text(), NO_TEXT)),
            Err(_) => return Err(Lack::NoValue),
        };
        let mut values = params.iter().filter(|(name, _)| *name == self.param).map(|(_, value)| value);
        let value = values.next().filter(|_| values.next().is_none()).ok_or(Lack::NoValue)?;
        Ok(key.add(self.name.text(), value))
    }
}

/// Returns the parameters of a request. `None` if axum does not return them at once, as axum 0.8 does.
fn params_of(parts: &Parts) -> Option<Result<RawPathParams, RawPathParamsRejection>> {
    // The extractor takes a head that it may change.
    let mut request = Request::new(());
    request.extensions_mut().clone_from(&parts.extensions);
    let (mut parts, ()) = request.into_parts();
    match poll_once(&mut pin!(RawPathParams::from_request_parts(&mut parts, &()))) {
        Poll::Ready(params) => Some(params),
        Poll::Pending => None,
    }
}
