//! The service: it decides about each request before the inner service gets it.

use std::fmt::{self, Debug};
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::answer::{Answer, ProblemAnswer};
use crate::client_ip::ClientIp;
use crate::decide::{Outcome, Start};
use crate::future::ResponseFuture;
use crate::key::RequestKey;
use crate::permit::pass;
use crate::shared::Shared;

/// A service whose requests are limited: [`RateLimitLayer`](crate::RateLimitLayer) makes it.
pub struct RateLimit<S, K = ClientIp, A = ProblemAnswer> {
    inner: S,
    shared: Arc<Shared<K, A>>,
}

impl<S, K, A> RateLimit<S, K, A> {
    pub(crate) fn new(inner: S, shared: Arc<Shared<K, A>>) -> Self {
        Self { inner, shared }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, A, B, C> Service<Request<B>> for RateLimit<S, K, A>
where
    S: Service<Request<B>, Response = Response<C>> + Clone,
    K: RequestKey,
    A: Answer<C> + Send + Sync + 'static,
{
    type Response = Response<C>;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, A, B, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        match self.shared.limit.start(&parts) {
            Start::Decided(Outcome::Pass(permit)) => {
                let (parts, steps) = pass(&self.shared.limit, permit, parts);
                ResponseFuture::passed(self.inner.call(Request::from_parts(parts, body)), steps)
            }
            Start::Decided(Outcome::Reject(rejected)) => {
                // The service that was ready may hold a place that others wait for. It is not called, so it is dropped.
                self.inner = self.inner.clone();
                ResponseFuture::answered(self.shared.answer(&parts, rejected))
            }
            Start::Undecided(prepared) => {
                // The service that was ready gets the request. Its clone may not be ready.
                let clone = self.inner.clone();
                let inner = mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(&self.shared, prepared, parts, (inner, body))
            }
        }
    }
}

impl<S: Clone, K, A> Clone for RateLimit<S, K, A> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S, K, A> Debug for RateLimit<S, K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("options", &self.shared.limit.options).finish_non_exhaustive()
    }
}
