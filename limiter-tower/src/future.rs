//! The future of an answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use limiter_core::service::UntilDone;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::answer::Answer;
use crate::decide::Outcome;
use crate::decision_future::DecisionFuture;
use crate::held_body::{CallSlots, HeldBody};
use crate::key::RequestKey;
use crate::permit::{AnswerSteps, pass};
use crate::shared::Shared;

pin_project! {
    /// The future of an answer of [`RateLimit`](crate::RateLimit).
    ///
    /// Until the request is decided it holds a clone of the inner service that is not polled, and so no place of it.
    /// Then it polls the clone until that is ready. An error of this poll is the future's.
    pub struct ResponseFuture<S: Service<Request<B>>, K, A, B, C> {
        #[pin]
        state: State<S, S::Future, K, A, B, C>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, K, A, B, C> {
        /// The limiter decides.
        Deciding { shared: Arc<Shared<K, A>>, decision: DecisionFuture, call: Option<(S, B)> },
        /// The inner service is not ready for the request.
        Passing { call: Option<Passing<S, B>> },
        /// The inner service has the request.
        Passed { #[pin] future: F, steps: Option<AnswerSteps> },
        /// The request is settled by its answer.
        Settling { settling: UntilDone, response: Option<Response<HeldBody<C>>> },
        /// The inner service does not get the request.
        Answered { response: Option<Response<C>> },
    }
}

/// A request that is decided, and the service that gets it.
struct Passing<S, B> {
    service: S,
    body: B,
    /// Boxed, since few requests wait here.
    head: Box<(Parts, AnswerSteps)>,
}

impl<S: Service<Request<B>>, K, A, B, C> ResponseFuture<S, K, A, B, C> {
    /// The future of a request that the inner service has.
    pub(crate) fn passed(future: S::Future, steps: AnswerSteps) -> Self {
        Self { state: State::Passed { future, steps: Some(steps) } }
    }

    /// The future of a request that the inner service does not get.
    pub(crate) fn answered(response: Response<C>) -> Self {
        Self { state: State::Answered { response: Some(response) } }
    }

    /// The future of a request that is not decided yet. `service` gets it when it is, and need not be ready.
    pub(crate) fn deciding(shared: Arc<Shared<K, A>>, decision: DecisionFuture, service: S, body: B) -> Self {
        Self { state: State::Deciding { shared, decision, call: Some((service, body)) } }
    }
}

impl<S, K, A, B, C> Future for ResponseFuture<S, K, A, B, C>
where
    S: Service<Request<B>, Response = Response<C>>,
    K: RequestKey,
    A: Answer<C>,
{
    type Output = Result<Response<HeldBody<C>>, S::Error>;

    /// # Panics
    /// If it is polled after it is ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Deciding { shared, decision, call } => {
                    let (parts, outcome) = ready!(decision.as_mut().poll(context));
                    match outcome {
                        Outcome::Pass(permit) => {
                            let (service, body) = call.take().expect("not polled after it was ready");
                            let head = Box::new(pass(&shared.limit, permit, parts));
                            State::Passing { call: Some(Passing { service, body, head }) }
                        }
                        Outcome::Reject(rejected) => {
                            State::Answered { response: Some(shared.answer(&parts, rejected)) }
                        }
                    }
                }
                StateProjection::Passing { call } => {
                    let mut passing = call.take().expect("not polled after it was ready");
                    if passing.service.poll_ready(context)?.is_pending() {
                        *call = Some(passing);
                        return Poll::Pending;
                    }
                    let Passing { mut service, body, head } = passing;
                    let (parts, steps) = *head;
                    State::Passed { future: service.call(Request::from_parts(parts, body)), steps: Some(steps) }
                }
                StateProjection::Passed { future, steps } => {
                    let answered = ready!(future.poll(context));
                    // After an error they are dropped here: the request is not open any more, and holds nothing.
                    let steps = steps.take().expect("not polled after it was ready");
                    match steps.apply(answered?) {
                        (response, Some(settling)) => State::Settling { settling, response: Some(response) },
                        (response, None) => return Poll::Ready(Ok(response)),
                    }
                }
                StateProjection::Settling { settling, response } => {
                    ready!(Pin::new(settling).poll(context));
                    return Poll::Ready(Ok(response.take().expect("not polled after it was ready")));
                }
                StateProjection::Answered { response } => {
                    let response = response.take().expect("not polled after it was ready");
                    return Poll::Ready(Ok(response.map(|body| HeldBody::new(body, CallSlots::default()))));
                }
            };
            state.set(next);
        }
    }
}
