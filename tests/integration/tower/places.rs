//! Places of the inner service: a request that waits, or whose decision is on its way, holds none.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response};
use rate_limited::tower::{Header, RateLimitLayer};
use rate_limited::{Key, Limiter, ManualClock};
use tokio::task::unconstrained;
use tokio::time::timeout;
use tower::limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer};
use tower::load_shed::error::Overloaded;
use tower::util::BoxCloneService;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use super::{Served, limit, limiter, send};
use crate::deadlines::WAIT_TIMEOUT;

mod outgoing;

const SECOND: Duration = Duration::from_secs(1);

type Inner = BoxCloneService<Request<String>, Response<String>, Infallible>;

/// A service with this number of places. A request to `/stay` never leaves its place.
fn places(number: usize) -> Inner {
    let service = service_fn(|request: Request<String>| async move {
        match request.uri().path() {
            "/stay" => pending().await,
            _ => Ok::<_, Infallible>(Response::new(request.into_body())),
        }
    });
    BoxCloneService::new(ConcurrencyLimit::new(service, number))
}

fn request_to(path: &str, client: &str) -> Request<String> {
    Request::get(path).header("x-client", client).body(String::new()).expect("a request")
}

fn request(client: &str) -> Request<String> {
    request_to("/", client)
}

/// One request of a client in 10 s. Others wait.
fn waiting_layer(limiter: &Limiter) -> RateLimitLayer<Header> {
    let layer = RateLimitLayer::new("api", limit("1/10s")).key(Header::new("x-client"));
    layer.limiter(limiter.clone()).wait(30 * SECOND)
}

/// Sends a request to a clone of a service. The response must come within [`WAIT_TIMEOUT`].
fn start<S, B>(
    service: &S,
    request: Request<B>,
) -> Pin<Box<impl Future<Output = Result<S::Response, S::Error>> + use<S, B>>>
where
    S: Service<Request<B>> + Clone,
{
    let response = service.clone().oneshot(request);
    Box::pin(async { timeout(WAIT_TIMEOUT, response).await.expect("a response") })
}

/// Polls a future once, which must not be ready.
fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    poll_once(future).is_pending()
}

/// Polls a future once. The budget of the test's task does not apply, which many polls would use up.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(&mut unconstrained(future)).poll(&mut Context::from_waker(Waker::noop()))
}

/// A client over its limit held the place of the inner service until its permit came, and blocked all others.
#[tokio::test]
async fn a_request_that_waits_for_its_permit_holds_no_place() {
    let (limiter, clock) = limiter();
    let service = waiting_layer(&limiter).layer(places(1));
    assert_eq!(send(&service, request("a")).await.status(), 200);
    let mut waiting: Vec<_> = (0..3).map(|_| start(&service, request("a"))).collect();
    assert!(waiting.iter_mut().all(is_pending));
    // Another client is served while the clock stands still.
    let mut other = start(&service, request("b"));
    assert!(poll_once(&mut other).is_ready());
    for waiting in waiting {
        clock.advance(10 * SECOND);
        assert_eq!(waiting.await.expect("infallible").status(), 200);
    }
}

#[tokio::test]
async fn requests_hold_no_place_while_a_slow_store_decides() {
    let clock = ManualClock::new();
    let delay = Duration::from_millis(90);
    let limiter = Limiter::builder().slow(delay).clock(clock.clone()).build().expect("builds");
    let layer = RateLimitLayer::new("api", limit("20/10s")).key(Header::new("x-client")).limiter(limiter);
    let service = layer.layer(places(2));
    let mut requests: Vec<_> = (0..20).map(|_| start(&service, request("a"))).collect();
    assert!(requests.iter_mut().all(is_pending));
    // All are decided after one delay of the store, although two places serve twenty requests.
    clock.advance(delay);
    for request in requests {
        assert_eq!(request.await.expect("infallible").status(), 200);
    }
}

#[tokio::test]
async fn a_request_whose_key_takes_a_while_holds_no_place() {
    let (limiter, _) = limiter();
    let key = rate_limited::tower::key_async(|_| pending::<Option<String>>());
    let service = RateLimitLayer::new("api", limit("1/10s")).key(key).limiter(limiter).layer(places(1));
    let mut unkeyed: Vec<_> = (0..2).map(|_| start(&service, request("a"))).collect();
    assert!(unkeyed.iter_mut().all(is_pending));
    let mut next = service.clone();
    assert!(poll_fn(|context| Poll::Ready(next.poll_ready(context))).await.is_ready());
}

/// The place is free although the handle of the service lives on, as that of a client does.
#[tokio::test]
async fn the_handle_that_a_request_was_sent_by_keeps_no_place() {
    let (limiter, _) = limiter();
    let service = waiting_layer(&limiter).layer(places(1));
    let mut handle = service.clone();
    assert_eq!(handle.ready().await.expect("infallible").call(request("a")).await.expect("infallible").status(), 200);
    let mut waiting = handle.ready().await.expect("infallible").call(request("a"));
    assert!(poll_once(&mut start(&service, request("b"))).is_ready());
    // A future that was never polled holds none, either.
    assert!(is_pending(&mut Pin::new(&mut waiting)));
}

/// A request that is decided when the service is called uses the place that it has: it does not queue a second time.
#[tokio::test]
async fn a_request_that_is_decided_at_once_keeps_its_place() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("9/10s")).key(Header::new("x-client")).limiter(limiter);
    let layers = [layer.clone(), layer.clone().wait(SECOND), layer.limit(limit("20/1m"))];
    for layer in layers {
        let mut service = layer.layer(places(1));
        let mut queued = start(&service, request("b"));
        service.ready().await.expect("infallible");
        assert!(is_pending(&mut queued));
        assert_eq!(service.call(request("a")).await.expect("infallible").status(), 200);
        assert_eq!(queued.await.expect("infallible").status(), 200);
    }
}

#[tokio::test]
async fn a_permitted_request_waits_for_a_place_and_leaves_the_queue_when_it_is_dropped() {
    let (limiter, clock) = limiter();
    let service = waiting_layer(&limiter).layer(places(1));
    assert_eq!(send(&service, request("a")).await.status(), 200);
    let mut waiting: Vec<_> = (0..2).map(|_| start(&service, request("a"))).collect();
    assert!(waiting.iter_mut().all(is_pending));
    let mut busy = start(&service, request_to("/stay", "b"));
    assert!(is_pending(&mut busy));
    for _ in 0..2 {
        clock.advance(10 * SECOND);
        assert!(waiting.iter_mut().all(is_pending));
    }
    // One leaves, then the place becomes free: the other one gets it.
    drop(waiting.remove(0));
    drop(busy);
    let response = waiting.remove(0).await.expect("infallible");
    assert_eq!(response.status(), 200);
    assert!(response.headers().contains_key("ratelimit"));
}

#[tokio::test]
async fn load_shedding_outside_sees_a_full_service_and_no_waiting_requests() {
    let (limiter, _) = limiter();
    let layers = ServiceBuilder::new().load_shed().layer(waiting_layer(&limiter));
    let service = layers.service(places(1).map_err(|never: Infallible| -> BoxError { match never {} }));
    let send = |request| start(&service, request);
    assert_eq!(send(request("a")).await.expect("served").status(), 200);
    let mut waiting = send(request("a"));
    assert!(is_pending(&mut waiting));
    assert_eq!(send(request("b")).await.expect("served").status(), 200);
    let mut busy = send(request_to("/stay", "c"));
    assert!(is_pending(&mut busy));
    assert!(send(request("d")).await.expect_err("the service is full").is::<Overloaded>());
    drop(busy);
    assert_eq!(send(request("d")).await.expect("served").status(), 200);
}

#[tokio::test]
async fn a_buffer_outside_is_full_while_the_service_is_and_goes_on_while_requests_wait() {
    let (limiter, _) = limiter();
    let layers = ServiceBuilder::new().buffer(1).layer(waiting_layer(&limiter));
    let service = layers.service(places(1));
    let send = |request| start(&service, request);
    assert_eq!(send(request("a")).await.expect("served").status(), 200);
    let mut waiting = send(request("a"));
    assert!(is_pending(&mut waiting));
    assert_eq!(send(request("b")).await.expect("served").status(), 200);
    let mut busy = send(request_to("/stay", "c"));
    assert!(is_pending(&mut busy));
    // One request is with the buffer's worker, and one in the buffer. There is no room for a third one.
    let mut others: Vec<_> = ["d", "e"].map(|client| send(request(client))).into();
    for other in &mut others {
        while is_pending(other) && poll_fn(|context| Poll::Ready(service.clone().poll_ready(context).is_ready())).await
        {
            tokio::task::yield_now().await;
        }
    }
    assert!(service.clone().poll_ready(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(busy);
    for other in others {
        assert_eq!(other.await.expect("served").status(), 200);
    }
}

/// A limit of concurrency outside bounds the requests that wait.
#[tokio::test]
async fn a_concurrency_limit_outside_counts_requests_that_wait() {
    let (limiter, clock) = limiter();
    let layers = ServiceBuilder::new().concurrency_limit(2).layer(waiting_layer(&limiter)).concurrency_limit(1);
    let service = layers.service(places(9));
    let send = |request| start(&service, request);
    assert_eq!(send(request("a")).await.expect("infallible").status(), 200);
    let mut waiting = send(request("a"));
    assert!(is_pending(&mut waiting));
    assert_eq!(send(request("b")).await.expect("infallible").status(), 200);
    let mut second = send(request("b"));
    assert!(is_pending(&mut second));
    assert!(is_pending(&mut send(request("c"))));
    clock.advance(10 * SECOND);
    assert_eq!(waiting.await.expect("infallible").status(), 200);
    assert_eq!(second.await.expect("infallible").status(), 200);
}

#[tokio::test]
async fn layers_of_axum_share_places_and_waiting_requests_hold_none() {
    let (limiter, clock) = limiter();
    let layers = ServiceBuilder::new().layer(waiting_layer(&limiter)).layer(GlobalConcurrencyLimitLayer::new(2));
    let app = Router::new().route("/", get(|| async {})).layer(layers);
    let send = |client| start(&app, request(client).map(Body::from));
    assert_eq!(send("a").await.expect("infallible").status(), 200);
    let mut waiting = [send("a"), send("a")];
    assert!(waiting.iter_mut().all(is_pending));
    let Poll::Ready(answer) = poll_once(&mut send("b")) else { panic!("the other client waits") };
    assert_eq!(answer.expect("infallible").status(), 200);
    for waiting in waiting {
        clock.advance(10 * SECOND);
        assert_eq!(waiting.await.expect("infallible").status(), 200);
    }
}

/// A service that fails once `is_broken` is set, when it is polled ready.
#[derive(Clone, Debug, Default)]
struct Breakable {
    is_broken: Arc<AtomicBool>,
    served: Served,
}

impl Service<Request<String>> for Breakable {
    type Response = Response<String>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Response<String>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(if self.is_broken.load(Relaxed) { Err("broken") } else { Ok(()) })
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        self.served.0.fetch_add(1, Relaxed);
        std::future::ready(Ok(Response::new(String::new())))
    }
}

#[tokio::test]
async fn the_error_of_a_service_that_was_polled_after_the_decision_is_the_answer() {
    let ((limiter, clock), inner) = (limiter(), Breakable::default());
    let service = waiting_layer(&limiter).layer(inner.clone());
    assert!(service.clone().oneshot(request("a")).await.is_ok());
    let mut waiting = start(&service, request("a"));
    assert!(is_pending(&mut waiting));
    inner.is_broken.store(true, Relaxed);
    clock.advance(10 * SECOND);
    assert_eq!(waiting.await.expect_err("the service is broken"), "broken");
    assert_eq!(service.oneshot(request("b")).await.expect_err("the service is broken"), "broken");
    assert_eq!(inner.served.count(), 1);
    // As for any error of the service, the permit stays taken.
    let key = Key::new("api").text(":x-client:").part("a");
    assert_eq!(limiter.peek(&key, &limit("1/10s")).await.expect("decides").remaining(), 0);
}
