//! The future of a response to an outgoing call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use limiter_core::service::{now, sleep};
use limiter_core::{Allowed, Key, Limiter};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::OutgoingLayer;
use super::choices::DemandedPause;
use super::error::OutgoingError;
use super::permission::NotSent;

/// The future of a permit, for which a call waits.
pub(super) type PermitFuture = Pin<Box<dyn Future<Output = Result<Allowed, NotSent>> + Send>>;
/// The future of a permit that is taken only if there is one now.
type TakeFuture = Pin<Box<dyn Future<Output = Result<Option<Allowed>, NotSent>> + Send>>;
type GiveBackFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The most replies of the store for which a call pauses that has left its place.
const MAX_PAUSE_IN_REPLIES: u32 = 8;

/// The limiter, the key and the end of the wait of a call.
pub(super) struct OutgoingCall<K, P> {
    layer: OutgoingLayer<K, P>,
    limiter: Limiter,
    key: Key,
    deadline: Duration,
    /// The number of times that it has left a place because there was no permit.
    places_left: u32,
}

impl<K, P> OutgoingCall<K, P> {
    /// A call whose wait begins.
    pub(super) fn new(layer: OutgoingLayer<K, P>, limiter: Limiter, key: Key) -> Self {
        let deadline = now(&limiter).saturating_add(layer.options.wait);
        Self { layer, limiter, key, deadline, places_left: 0 }
    }

    /// Returns the future of the permit.
    pub(super) fn permit(&self) -> PermitFuture {
        self.permit_after(Duration::ZERO)
    }

    /// Returns the future of the permit of a call that has just left a place. `reply_time` is the time in which the store
    /// has replied that there is no permit.
    ///
    /// The permit may be on its way back from a call that found this place taken, and takes the place now. If both went
    /// on at once, each could leave what the other one needs, again and again. So from the second time on the call lets
    /// others use the place first.
    fn permit_again(&mut self, reply_time: Duration) -> PermitFuture {
        let pause = reply_time * self.places_left.min(MAX_PAUSE_IN_REPLIES);
        self.places_left += 1;
        self.permit_after(pause.min(self.deadline.saturating_sub(now(&self.limiter))))
    }

    fn permit_after(&self, pause: Duration) -> PermitFuture {
        let Self { layer, limiter, key, deadline, .. } = self;
        let (limit, options) = (Arc::clone(&layer.limit), layer.options.clone());
        let (limiter, key, deadline) = (limiter.clone(), key.clone(), *deadline);
        Box::pin(async move {
            if !pause.is_zero() {
                sleep(&limiter, pause).await.map_err(NotSent::Failed)?;
            }
            limit.permit(&limiter, &key, &options, deadline).await
        })
    }

    /// Returns the future of a permit that is free now.
    fn take(&self) -> TakeFuture {
        let Self { layer, limiter, key, .. } = self;
        let (limit, options) = (Arc::clone(&layer.limit), layer.options.clone());
        let (limiter, key) = (limiter.clone(), key.clone());
        Box::pin(async move { limit.take(&limiter, &key, &options).await })
    }

    /// Returns the future that gives a permit back.
    fn give_back(&self, allowed: Allowed) -> GiveBackFuture {
        let (limit, limiter) = (Arc::clone(&self.layer.limit), self.limiter.clone());
        Box::pin(async move { limit.give_back(&limiter, &allowed).await })
    }
}

pin_project! {
    /// The future of a response of [`Outgoing`](crate::Outgoing).
    ///
    /// Until the call has its permit, it holds a clone of the client that is not polled, and so no place of it. Then it
    /// polls the clone. If that is not ready, the permit goes back, and another one is taken when the clone is ready: so
    /// no permit is older than its call. An error of a poll is the client's.
    pub struct OutgoingFuture<S: Service<R>, K, P, R> {
        call: OutgoingCall<K, P>,
        #[pin]
        state: State<S, S::Future, R>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, R> {
        /// The call waits for its permit, and has no place of the client.
        Waiting { permit: PermitFuture, call: Option<(S, R)> },
        /// The client is not ready for the call, whose permit goes back.
        Queueing { give_back: Option<GiveBackFuture>, call: Option<(S, R)> },
        /// The client is ready, and the call takes a permit if there is one now.
        Taking { take: TakeFuture, since: Duration, call: Option<(S, R)> },
        /// The client has the call.
        Sent { #[pin] future: F },
        /// The client does not get the call.
        NotSent { reason: Option<NotSent> },
    }
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
        let mut state = this.state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Waiting { permit, call } => match ready!(permit.as_mut().poll(context)) {
                    Ok(allowed) => {
                        let (mut client, request) = call.take().expect("not polled after it was ready");
                        match client.poll_ready(context).map_err(OutgoingError::Inner)? {
                            Poll::Ready(()) => State::Sent { future: client.call(request) },
                            Poll::Pending => {
                                let give_back = Some(this.call.give_back(allowed));
                                State::Queueing { give_back, call: Some((client, request)) }
                            }
                        }
                    }
                    Err(reason) => State::NotSent { reason: Some(reason) },
                },
                StateProjection::Queueing { give_back, call } => {
                    let (client, _) = call.as_mut().expect("not polled after it was ready");
                    let is_ready = client.poll_ready(context).map_err(OutgoingError::Inner)?.is_ready();
                    if let Some(unfinished) = give_back {
                        ready!(unfinished.as_mut().poll(context));
                        *give_back = None;
                    }
                    if !is_ready {
                        return Poll::Pending;
                    }
                    State::Taking { take: this.call.take(), since: now(&this.call.limiter), call: call.take() }
                }
                StateProjection::Taking { take, since, call } => match ready!(take.as_mut().poll(context)) {
                    Ok(Some(_)) => {
                        let (mut client, request) = call.take().expect("not polled after it was ready");
                        State::Sent { future: client.call(request) }
                    }
                    Ok(None) => {
                        let reply_time = now(&this.call.limiter).saturating_sub(*since);
                        // The clone that was ready is dropped, so its place is free.
                        let (ready_client, request) = call.take().expect("not polled after it was ready");
                        let client = ready_client.clone();
                        State::Waiting { permit: this.call.permit_again(reply_time), call: Some((client, request)) }
                    }
                    Err(reason) => State::NotSent { reason: Some(reason) },
                },
                StateProjection::Sent { future } => {
                    let response = ready!(future.poll(context)).map_err(OutgoingError::Inner)?;
                    let OutgoingCall { layer, limiter, key, .. } = &*this.call;
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
