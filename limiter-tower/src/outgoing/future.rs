//! The future of a response to an outgoing call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use limiter_core::{Key, Limiter};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::OutgoingLayer;
use super::choices::DemandedPause;
use super::error::OutgoingError;
use super::permission::NotSent;

type PermitFuture = Pin<Box<dyn Future<Output = Result<(), NotSent>> + Send>>;

/// The limiter and the key of a call.
struct OutgoingCall<K, P> {
    layer: OutgoingLayer<K, P>,
    limiter: Limiter,
    key: Key,
}

pin_project! {
    /// The future of a response of [`Outgoing`](crate::Outgoing).
    pub struct OutgoingFuture<S: Service<R>, K, P, R> {
        call: OutgoingCall<K, P>,
        #[pin]
        state: State<S, S::Future, R>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, R> {
        /// The call has no permit yet.
        Waiting { permit: PermitFuture, call: Option<(S, R)> },
        /// The client has the call.
        Sent { #[pin] future: F },
    }
}

impl<S: Service<R>, K, P, R> OutgoingFuture<S, K, P, R> {
    pub(super) fn new(layer: OutgoingLayer<K, P>, limiter: Limiter, key: Key, call: (S, R)) -> Self {
        let (limit, options) = (Arc::clone(&layer.limit), layer.options.clone());
        let (waiting, waiting_key) = (limiter.clone(), key.clone());
        let permit = Box::pin(async move { limit.permit(&waiting, &waiting_key, &options).await });
        let call_of = OutgoingCall { layer, limiter, key };
        Self { call: call_of, state: State::Waiting { permit, call: Some(call) } }
    }
}

impl<S, K, P, R> Future for OutgoingFuture<S, K, P, R>
where
    S: Service<R>,
    P: DemandedPause<S::Response>,
{
    type Output = Result<S::Response, OutgoingError<S::Error>>;

    /// # Panics
    /// If it is polled after it is ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let OutgoingCall { layer, limiter, key } = this.call;
        let mut state = this.state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Waiting { permit, call } => match ready!(permit.as_mut().poll(context)) {
                    Ok(()) => {
                        let (mut client, request) = call.take().expect("not polled after it was ready");
                        State::Sent { future: client.call(request) }
                    }
                    Err(NotSent::Denied(denied)) => return Poll::Ready(Err(OutgoingError::Denied(denied))),
                    Err(NotSent::Failed(error)) => return Poll::Ready(Err(OutgoingError::Failed(error))),
                },
                StateProjection::Sent { future } => {
                    let response = ready!(future.poll(context)).map_err(OutgoingError::Inner)?;
                    if let Some(demanded) = layer.pause.pause(&response) {
                        layer.limit.pause(limiter, key, demanded, layer.options.longest_pause);
                    }
                    return Poll::Ready(Ok(response));
                }
            };
            state.set(next);
        }
    }
}
