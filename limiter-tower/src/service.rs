//! The service: it decides about each request before the inner service gets it.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::answer::{Answer, ProblemAnswer};
use crate::client_ip::ClientIp;
use crate::decide::Outcome;
use crate::decision_future::Begun;
use crate::future::ResponseFuture;
use crate::held_body::HeldBody;
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
    type Response = Response<HeldBody<C>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, A, B, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        match Begun::new(&self.shared, parts) {
            Begun::Decided(parts, Outcome::Pass(permit)) => {
                let (parts, steps) = pass(&self.shared.limit, permit, parts);
                ResponseFuture::passed(self.inner.call(Request::from_parts(parts, body)), steps)
            }
            Begun::Decided(parts, Outcome::Reject(rejected)) => {
                self.drop_ready_service();
                ResponseFuture::answered(self.shared.answer(&parts, rejected))
            }
            Begun::Deciding(decision) => {
                self.drop_ready_service();
                ResponseFuture::deciding(Arc::clone(&self.shared), decision, self.inner.clone(), body)
            }
        }
    }
}

impl<S: Clone, K, A> RateLimit<S, K, A> {
    /// Replaces the service that was ready by a clone. It may hold a place that others wait for.
    fn drop_ready_service(&mut self) {
        self.inner = self.inner.clone();
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
