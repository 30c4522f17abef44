//! The key of an outgoing call, and the pause that a response demands.

use std::borrow::Cow;
use std::time::Duration;

use http::Response;
use http::header::RETRY_AFTER;
use limiter_core::Key;

use super::retry_after::retry_after;

/// The choice of the key that a call of [`OutgoingLayer`](crate::OutgoingLayer) counts for.
pub trait OutgoingKey<R>: Send + Sync + 'static {
    /// Returns the key of a call.
    fn key<'a>(&'a self, request: &R) -> Cow<'a, Key>;
}

/// One key for all calls: the default of [`OutgoingLayer`](crate::OutgoingLayer).
#[derive(Clone, Debug)]
pub struct OneKey(pub(super) Key);

impl<R> OutgoingKey<R> for OneKey {
    fn key<'a>(&'a self, _: &R) -> Cow<'a, Key> {
        Cow::Borrowed(&self.0)
    }
}

impl<R, F: Fn(&R) -> Key + Send + Sync + 'static> OutgoingKey<R> for F {
    fn key<'a>(&'a self, request: &R) -> Cow<'a, Key> {
        Cow::Owned(self(request))
    }
}

/// The pause that a response demands.
pub trait DemandedPause<R>: Send + Sync + 'static {
    /// Returns the pause. `None` if the response demands none.
    fn pause(&self, response: &R) -> Option<Duration>;
}

/// The pause of a 429 or 503 with `Retry-After`: the default of [`OutgoingLayer`](crate::OutgoingLayer).
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryAfter;

impl<B> DemandedPause<Response<B>> for RetryAfter {
    fn pause(&self, response: &Response<B>) -> Option<Duration> {
        let header = response.headers().get(RETRY_AFTER)?;
        retry_after(response.status().as_u16(), header.to_str().ok()?)
    }
}

impl<R, F: Fn(&R) -> Option<Duration> + Send + Sync + 'static> DemandedPause<R> for F {
    fn pause(&self, response: &R) -> Option<Duration> {
        self(response)
    }
}
