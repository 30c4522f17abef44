//! The client whose calls are limited.

use std::fmt::{self, Debug};
use std::task::{Context, Poll};

use limiter_core::private::current;
use tower_service::Service;

use super::choices::{DemandedPause, OutgoingKey};
use super::cost::OutgoingCost;
use super::error::OutgoingError;
use super::future::{OutgoingCall, OutgoingFuture};
use super::hold::OutgoingHold;
use super::{OneKey, OnePermit, OutgoingLayer, RetryAfter, UntilBodyEnds};
use crate::decision_future::poll_once;

/// A client whose calls are limited: [`OutgoingLayer`] makes it.
pub struct Outgoing<S, K = OneKey, P = RetryAfter, C = OnePermit, H = UntilBodyEnds> {
    inner: S,
    layer: OutgoingLayer<K, P, C, H>,
}

impl<S, K, P, C, H> Outgoing<S, K, P, C, H> {
    pub(super) fn new(inner: S, layer: OutgoingLayer<K, P, C, H>) -> Self {
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

impl<S, K, P, C, H, R> Service<R> for Outgoing<S, K, P, C, H>
where
    S: Service<R> + Clone,
    K: OutgoingKey<R>,
    P: DemandedPause<S::Response>,
    C: OutgoingCost<S::Response>,
    H: OutgoingHold<S::Response>,
{
    type Response = H::Response;
    type Error = OutgoingError<S::Error>;
    type Future = OutgoingFuture<S, K, P, R, C, H>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(OutgoingError::Inner)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let key = self.layer.key.key(&request).into_owned();
        // The scope is that of the caller. The future may be polled elsewhere.
        let limiter = self.layer.options.limiter.clone().unwrap_or_else(|| limiter_core::Limiter::clone(&current()));
        let call = OutgoingCall::new(self.layer.clone(), limiter, key);
        let mut permit = call.permit();
        match poll_once(&mut permit) {
            Poll::Ready(Ok(permission)) => OutgoingFuture::sent(call, permission, self.inner.call(request)),
            Poll::Ready(Err(reason)) => {
                self.drop_ready_client();
                OutgoingFuture::not_sent(call, reason)
            }
            Poll::Pending => {
                self.drop_ready_client();
                OutgoingFuture::waiting(call, permit, self.inner.clone(), request)
            }
        }
    }
}

impl<S: Clone, K, P, C, H> Outgoing<S, K, P, C, H> {
    /// Replaces the client that was ready by a clone. It may hold a place that others wait for.
    fn drop_ready_client(&mut self) {
        self.inner = self.inner.clone();
    }
}

impl<S: Clone, K, P, C, H> Clone for Outgoing<S, K, P, C, H> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, K, P, C, H> Debug for Outgoing<S, K, P, C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("layer", &self.layer).finish_non_exhaustive()
    }
}
