//! The future of a response to an outgoing call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use limiter_core::service::{UntilDone, now, sleep};
use limiter_core::{Key, Limiter};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::choices::DemandedPause;
use super::cost::OutgoingCost;
use super::error::OutgoingError;
use super::hold::OutgoingHold;
use super::permission::{NotSent, Permission};
use super::{OnePermit, OutgoingLayer, UntilBodyEnds};
use crate::held_body::CallSlots;
use crate::settlement::Unsettled;

/// The future of a permit, for which a call waits.
pub(super) type PermitFuture = Pin<Box<dyn Future<Output = Result<Permission, NotSent>> + Send>>;
/// The future of a permit that is taken only if there is one now.
type TakeFuture = Pin<Box<dyn Future<Output = Result<Option<Permission>, NotSent>> + Send>>;
type GiveBackFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The most replies of the store for which a call pauses that has left its place.
const MAX_PAUSE_IN_REPLIES: u32 = 8;

/// The limiter, the key and the end of the wait of a call.
pub(super) struct OutgoingCall<K, P, C, H> {
    layer: OutgoingLayer<K, P, C, H>,
    limiter: Limiter,
    key: Key,
    deadline: Duration,
    /// The number of times that it has left a place because there was no permit.
    places_left: u32,
}

impl<K, P, C, H> OutgoingCall<K, P, C, H> {
    /// A call whose wait begins.
    pub(super) fn new(layer: OutgoingLayer<K, P, C, H>, limiter: Limiter, key: Key) -> Self {
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

    /// Returns the future that gives a permit back. The slots are free at once.
    fn give_back(&self, permission: Permission) -> GiveBackFuture {
        let (limit, limiter) = (Arc::clone(&self.layer.limit), self.limiter.clone());
        let Permission { allowed, slots } = permission;
        drop(slots);
        Box::pin(async move { limit.give_back(&limiter, &allowed).await })
    }

    /// Returns the call once it is sent, until it has its response.
    fn unanswered(&self, permission: Permission) -> Unanswered {
        let Self { layer, limiter, .. } = self;
        let Permission { allowed, slots } = permission;
        Unanswered { unsettled: layer.limit.unsettled(limiter, &layer.options, allowed).map(Box::new), slots }
    }

    /// Pauses the key if a response demands it. Returns the response, which holds the slots, and the settlement that it waits
    /// for.
    fn receive<T>(&self, response: T, unanswered: Unanswered) -> (H::Response, Option<UntilDone>)
    where
        P: DemandedPause<T>,
        C: OutgoingCost<T>,
        H: OutgoingHold<T>,
    {
        let Self { layer, limiter, key, .. } = self;
        if let Some(demanded) = layer.pause.pause(&response) {
            layer.limit.pause(limiter, key, demanded, layer.options.longest_pause);
        }
        let Unanswered { unsettled, slots } = unanswered;
        let settling = unsettled.and_then(|unsettled| unsettled.settle(layer.cost.actual_cost(&response)?));
        (layer.hold.hold(response, slots), settling)
    }
}

/// The obligations of a call from when it is sent until its response.
struct Unanswered {
    /// `None` unless the response settles the call.
    unsettled: Option<Box<Unsettled>>,
    slots: CallSlots,
}

pin_project! {
    /// The future of a response of [`Outgoing`](crate::Outgoing).
    ///
    /// Until the call has its permit, it holds a clone of the client that is not polled, and so no place of it. Then it
    /// polls the clone. If that is not ready, the permit goes back, and another one is taken when the clone is ready: so
    /// no permit is older than its call. An error of a poll is the client's.
    pub struct OutgoingFuture<S: Service<R>, K, P, R, C = OnePermit, H: OutgoingHold<S::Response> = UntilBodyEnds> {
        call: OutgoingCall<K, P, C, H>,
        #[pin]
        state: State<S, S::Future, R, H::Response>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, R, T> {
        /// The call waits for its permit, and has no place of the client.
        Waiting { permit: PermitFuture, call: Option<(S, R)> },
        /// The client is not ready for the call, whose permit goes back.
        Queueing { give_back: Option<GiveBackFuture>, call: Option<(S, R)> },
        /// The client is ready, and the call takes a permit if there is one now.
        Taking { take: TakeFuture, since: Duration, call: Option<(S, R)> },
        /// The client has the call. Its future keeps a place until the response has settled the call.
        Sent { #[pin] future: F, unanswered: Option<Unanswered>, settling: Option<(T, UntilDone)> },
        /// The client does not get the call.
        NotSent { reason: Option<NotSent> },
    }
}

impl<S: Service<R>, K, P, R, C, H: OutgoingHold<S::Response>> OutgoingFuture<S, K, P, R, C, H> {
    /// The future of a call that waits for its permit. `client` gets it then, and need not be ready.
    pub(super) fn waiting(call: OutgoingCall<K, P, C, H>, permit: PermitFuture, client: S, request: R) -> Self {
        Self { call, state: State::Waiting { permit, call: Some((client, request)) } }
    }

    /// The future of a call that the client has.
    pub(super) fn sent(call: OutgoingCall<K, P, C, H>, permission: Permission, future: S::Future) -> Self {
        let unanswered = Some(call.unanswered(permission));
        Self { call, state: State::Sent { future, unanswered, settling: None } }
    }

    /// The future of a call that the client does not get.
    pub(super) fn not_sent(call: OutgoingCall<K, P, C, H>, reason: NotSent) -> Self {
        Self { call, state: State::NotSent { reason: Some(reason) } }
    }
}

impl<S, K, P, R, C, H> Future for OutgoingFuture<S, K, P, R, C, H>
where
    S: Service<R> + Clone,
    P: DemandedPause<S::Response>,
    C: OutgoingCost<S::Response>,
    H: OutgoingHold<S::Response>,
{
    type Output = Result<H::Response, OutgoingError<S::Error>>;

    /// # Panics
    /// If it is polled after it is ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut state = this.state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Waiting { permit, call } => match ready!(permit.as_mut().poll(context)) {
                    Ok(permission) => {
                        let (mut client, request) = call.take().expect("not polled after it was ready");
                        match client.poll_ready(context).map_err(OutgoingError::Inner)? {
                            Poll::Ready(()) => {
                                let unanswered = Some(this.call.unanswered(permission));
                                State::Sent { future: client.call(request), unanswered, settling: None }
                            }
                            Poll::Pending => {
                                let give_back = Some(this.call.give_back(permission));
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
                    Ok(Some(permission)) => {
                        let (mut client, request) = call.take().expect("not polled after it was ready");
                        let unanswered = Some(this.call.unanswered(permission));
                        State::Sent { future: client.call(request), unanswered, settling: None }
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
                StateProjection::Sent { future, unanswered, settling } => {
                    if settling.is_none() {
                        let answered = ready!(future.poll(context));
                        // After an error it is dropped here: the call holds nothing.
                        let unanswered = unanswered.take().expect("not polled after it was ready");
                        match this.call.receive(answered.map_err(OutgoingError::Inner)?, unanswered) {
                            (response, Some(begun)) => *settling = Some((response, begun)),
                            (response, None) => return Poll::Ready(Ok(response)),
                        }
                    }
                    if let Some((_, unfinished)) = settling {
                        ready!(Pin::new(unfinished).poll(context));
                    }
                    let (response, _) = settling.take().expect("not polled after it was ready");
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
