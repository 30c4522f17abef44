//! The future of a response to an outgoing call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use limiter_core::private::now;
use limiter_core::{Allowed, Key, Limiter};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::OutgoingLayer;
use super::choices::DemandedPause;
use super::error::OutgoingError;
use super::permission::NotSent;

pub(super) type PermitFuture = Pin<Box<dyn Future<Output = Result<Allowed, NotSent>> + Send>>;

/// The limiter, the key and the end of the wait of a call.
pub(super) struct OutgoingCall<K, P> {
    layer: OutgoingLayer<K, P>,
    limiter: Limiter,
    key: Key,
    deadline: Duration,
}

impl<K, P> OutgoingCall<K, P> {
    /// A call whose wait begins.
    pub(super) fn new(layer: OutgoingLayer<K, P>, limiter: Limiter, key: Key) -> Self {
        let deadline = now(&limiter).saturating_add(layer.options.wait);
        Self { layer, limiter, key, deadline }
    }

    /// Returns the future of the permit. `overtaken` is a permit of this call, which goes back first.
    pub(super) fn permit(&self, overtaken: Option<Allowed>) -> PermitFuture {
        let Self { layer, limiter, key, deadline } = self;
        let (limit, options) = (Arc::clone(&layer.limit), layer.options.clone());
        let (limiter, key, deadline) = (limiter.clone(), key.clone(), *deadline);
        Box::pin(async move { limit.permit(&limiter, &key, &options, deadline, overtaken).await })
    }

    fn is_paused(&self) -> bool {
        self.layer.limit.is_paused(&self.limiter, &self.key)
    }
}

pin_project! {
    /// The future of a response of [`Outgoing`](crate::Outgoing).
    ///
    /// Until the call has its permit, it holds a clone of the client that is not polled, and so no place of it. Then it
    /// polls the clone until that is ready. An error of this poll is the client's.
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
        /// The client is not ready for the call.
        Sending { permitted: Option<Permitted<S, R>> },
        /// The client has the call.
        Sent { #[pin] future: F },
        /// The client does not get the call.
        NotSent { reason: Option<NotSent> },
    }
}

/// A call with its permit, and the client that gets it.
struct Permitted<S, R> {
    client: S,
    request: R,
    allowed: Allowed,
}

impl<S: Service<R>, K, P, R> OutgoingFuture<S, K, P, R> {
    /// The future of a call that waits for its permit. `client` gets it then, and need not be ready.
    pub(super) fn waiting(call: OutgoingCall<K, P>, permit: PermitFuture, client: S, request: R) -> Self {
        Self { call, state: State::Waiting { permit, call: Some((client, request)) } }
    }

    /// The future of a call that the client has.
    pub(super) fn sent(call: OutgoingCall<K, P>, future: S::Future) -> Self {
        Self { call, state: State::Sent { future } }
    }

    /// The future of a call that the client does not get.
    pub(super) fn not_sent(call: OutgoingCall<K, P>, reason: NotSent) -> Self {
        Self { call, state: State::NotSent { reason: Some(reason) } }
    }
}

impl<S, K, P, R> Future for OutgoingFuture<S, K, P, R>
where
    S: Service<R> + Clone,
    P: DemandedPause<S::Response>,
{
    type Output = Result<S::Response, OutgoingError<S::Error>>;

    /// # Panics
    /// If it is polled after it is ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let OutgoingCall { layer, limiter, key, .. } = &*this.call;
        let mut state = this.state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Waiting { permit, call } => match ready!(permit.as_mut().poll(context)) {
                    Ok(allowed) => {
                        let (client, request) = call.take().expect("not polled after it was ready");
                        State::Sending { permitted: Some(Permitted { client, request, allowed }) }
                    }
                    Err(reason) => State::NotSent { reason: Some(reason) },
                },
                StateProjection::Sending { permitted } => {
                    let mut next = permitted.take().expect("not polled after it was ready");
                    if next.client.poll_ready(context).map_err(OutgoingError::Inner)?.is_pending() {
                        *permitted = Some(next);
                        return Poll::Pending;
                    }
                    let Permitted { mut client, request, allowed } = next;
                    if this.call.is_paused() {
                        // The clone that was ready is dropped: the call waits again.
                        let client = client.clone();
                        State::Waiting { permit: this.call.permit(Some(allowed)), call: Some((client, request)) }
                    } else {
                        State::Sent { future: client.call(request) }
                    }
                }
                StateProjection::Sent { future } => {
                    let response = ready!(future.poll(context)).map_err(OutgoingError::Inner)?;
                    if let Some(demanded) = layer.pause.pause(&response) {
                        layer.limit.pause(limiter, key, demanded, layer.options.longest_pause);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjection::NotSent { reason } => {
                    return Poll::Ready(Err(match reason.take().expect("not polled after it was ready") {
                        NotSent::Denied(denied) => OutgoingError::Denied(denied),
                        NotSent::Failed(error) => OutgoingError::Failed(error),
                    }));
                }
            };
            state.set(next);
        }
    }
}
