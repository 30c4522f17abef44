//! The client whose calls are limited.

use std::fmt::{self, Debug};
use std::mem;
use std::task::{Context, Poll};

use limiter_core::private::current;
use tower_service::Service;

use super::choices::{DemandedPause, OutgoingKey};
use super::error::OutgoingError;
use super::future::OutgoingFuture;
use super::{OneKey, OutgoingLayer, RetryAfter};

/// A client whose calls are limited: [`OutgoingLayer`] makes it.
pub struct Outgoing<S, K = OneKey, P = RetryAfter> {
    inner: S,
    layer: OutgoingLayer<K, P>,
}

impl<S, K, P> Outgoing<S, K, P> {
    pub(super) fn new(inner: S, layer: OutgoingLayer<K, P>) -> Self {
        Self { inner, layer }
    }

    /// Returns the inner client.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner client.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner client.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, P, R> Service<R> for Outgoing<S, K, P>
where
    S: Service<R> + Clone,
    K: OutgoingKey<R>,
    P: DemandedPause<S::Response>,
{
    type Response = S::Response;
    type Error = OutgoingError<S::Error>;
    type Future = OutgoingFuture<S, K, P, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(OutgoingError::Inner)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The client that was ready gets the call. Its clone may not be ready.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let key = self.layer.key.key(&request).into_owned();
        // The scope is that of the caller. The future may be polled elsewhere.
        let limiter = self.layer.options.limiter.clone().unwrap_or_else(|| current().clone());
        OutgoingFuture::new(self.layer.clone(), limiter, key, (inner, request))
    }
}

impl<S: Clone, K, P> Clone for Outgoing<S, K, P> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, K, P> Debug for Outgoing<S, K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("layer", &self.layer).finish_non_exhaustive()
    }
}
