//! Layers with limits of calls at once: slots that the body of a response holds.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use futures_util::{FutureExt, StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use rate_limited::tower::{CallSlots, Everyone, HeldBody, OutgoingError, OutgoingLayer, RateLimitLayer};
use rate_limited::{Denied, Limiter, Mode, Rule, RuleSet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::timeout;
use tower::limit::ConcurrencyLimit;
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use super::limit;
use crate::deadlines::{WAIT_TIMEOUT, eventually};
use crate::support::{LONG_DEADLINE, with_every_limiter};

with_every_limiter!(
    a_request_holds_its_slot_until_its_body_has_ended,
    a_body_that_is_dropped_or_fails_frees_its_slot,
    a_request_that_ends_without_an_answer_frees_its_slot,
    a_denied_request_holds_nothing,
    a_request_waits_for_one_slot,
    a_rule_adds_slots_at_run_time,
    a_rule_in_shadow_mode_denies_nothing,
    a_call_holds_its_slot_until_the_body_of_its_response_has_ended,
    a_call_that_waits_for_a_place_holds_no_slot,
);

type Inner = BoxCloneService<Request<Body>, Response<Body>, &'static str>;

/// A service that answers with two frames, unless the path of a request says otherwise.
fn service() -> Inner {
    BoxCloneService::new(service_fn(|request: Request<Body>| {
        let path = request.into_parts().0.uri.path().to_owned();
        assert_ne!(path, "/panic", "as the test demands");
        async move {
            match path.as_str() {
                "/panic-later" => panic!("as the test demands"),
                "/fail" => Err("an error"),
                "/never" => pending().await,
                "/broken-body" => Ok(Response::new(frames([Ok("one"), Err("broken")]))),
                _ => Ok(Response::new(frames([Ok("one"), Ok("two")]))),
            }
        }
    }))
}

fn frames(frames: [Result<&'static str, &'static str>; 2]) -> Body {
    Body::from_stream(stream::iter(frames))
}

fn to(path: &str) -> Request<Body> {
    Request::builder().uri(path).body(Body::empty()).expect("a request")
}

fn layer(max: &str, limiter: &Limiter) -> RateLimitLayer<Everyone> {
    RateLimitLayer::new("at once", limit(max)).key(Everyone).limiter(limiter.clone())
}

async fn answer<S, B>(service: &S, path: &str) -> Response<B>
where
    S: Service<Request<Body>, Response = Response<B>, Error: std::fmt::Debug> + Clone,
{
    timeout(WAIT_TIMEOUT, service.clone().oneshot(to(path))).await.expect("an answer").expect("no failure")
}

/// Sends a request whose answer is dropped at once.
async fn status<S, B>(service: &S) -> u16
where
    S: Service<Request<Body>, Response = Response<B>, Error: std::fmt::Debug> + Clone,
{
    answer(service, "/").await.status().as_u16()
}

fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

async fn a_request_holds_its_slot_until_its_body_has_ended(limiter: Limiter) {
    let service = layer("1 concurrent", &limiter).layer(service());
    for _ in 0..3 {
        let mut answer = answer(&service, "/").await;
        assert_eq!((answer.status().as_u16(), status(&service).await), (200, 429));
        for text in ["one", "two"] {
            let frame = answer.frame().await.expect("a frame").expect("no failure");
            assert_eq!(frame.into_data().expect("data"), text);
            assert_eq!(status(&service).await, 429);
        }
        assert!(answer.frame().await.is_none());
        assert_eq!(status(&service).await, 200);
        drop(answer);
    }
}

async fn a_body_that_is_dropped_or_fails_frees_its_slot(limiter: Limiter) {
    let service = layer("1 concurrent", &limiter).layer(service());
    drop(answer(&service, "/").await);
    let (_, body) = answer(&service, "/").await.into_parts();
    assert_eq!(status(&service).await, 429);
    drop(body);
    let mut broken = answer(&service, "/broken-body").await;
    assert!(broken.frame().await.is_some_and(|frame| frame.is_ok()));
    assert_eq!(status(&service).await, 429);
    assert!(broken.frame().await.is_some_and(|frame| frame.is_err()));
    assert_eq!(status(&service).await, 200);
    let inside = answer(&service, "/").await.into_body().into_inner();
    assert_eq!(status(&service).await, 200);
    drop(inside);
}

/// The future of the answer is alive while the slot is free.
async fn a_request_that_ends_without_an_answer_frees_its_slot(limiter: Limiter) {
    let service = layer("1 concurrent", &limiter).layer(service());
    let mut failing = Box::pin(service.clone().call(to("/fail")));
    assert_eq!(failing.as_mut().await.expect_err("a failure"), "an error");
    assert_eq!(status(&service).await, 200);
    for path in ["/panic", "/panic-later"] {
        let panicking = async { service.clone().oneshot(to(path)).await.map(drop) };
        assert!(AssertUnwindSafe(panicking).catch_unwind().await.is_err());
        assert_eq!(status(&service).await, 200);
    }
    let never = tokio::spawn(service.clone().oneshot(to("/never")));
    eventually("held", async || status(&service).await == 429).await;
    never.abort();
    assert!(never.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(status(&service).await, 200);
    drop(failing);
}

async fn a_denied_request_holds_nothing(limiter: Limiter) {
    let at_once = layer("2 concurrent", &limiter).layer(service());
    let service = layer("2 concurrent", &limiter).limit(limit("1/1h")).layer(service());
    let first = answer(&service, "/").await;
    // Slots come first, so that the window denies requests which had one.
    let denied = [answer(&service, "/").await, answer(&service, "/").await];
    assert_eq!(denied.each_ref().map(Response::status), [StatusCode::TOO_MANY_REQUESTS; 2]);
    let second = answer(&at_once, "/").await;
    let third = answer(&at_once, "/").await;
    assert_eq!([first.status(), second.status()], [StatusCode::OK; 2]);
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    drop((first, second));
    assert_eq!(status(&at_once).await, 200);
    drop((denied, third));
}

async fn a_request_waits_for_one_slot(limiter: Limiter) {
    let layer = layer("2 concurrent", &limiter);
    let (waiting, service) = (layer.clone().wait(LONG_DEADLINE).layer(service()), layer.layer(service()));
    let (one, two) = (answer(&service, "/").await, answer(&service, "/").await);
    let (mut next, mut gone) = (Box::pin(answer(&waiting, "/")), Box::pin(answer(&waiting, "/")));
    assert!(is_pending(&mut next) && is_pending(&mut gone));
    drop(gone);
    drop((one, two));
    // The one that has waited holds one slot, so there is another.
    let next = next.await;
    let other = answer(&service, "/").await;
    assert_eq!([next.status(), other.status()], [StatusCode::OK; 2]);
    assert_eq!(status(&service).await, 429);
    drop(next);
    assert_eq!(status(&service).await, 200);
    drop(other);
}

async fn a_rule_adds_slots_at_run_time(limiter: Limiter) {
    let service = layer("1000/1h", &limiter).layer(service());
    let rule = |rule: Rule| limiter.set_rules(RuleSet::new().rule("at once", rule)).expect("valid");
    let before = answer(&service, "/").await;
    rule(Rule::new().limit(limit("1 concurrent")).limit(limit("1000/1h")));
    // The one from before has no slot.
    let held = answer(&service, "/").await;
    assert_eq!((held.status().as_u16(), status(&service).await), (200, 429));
    rule(Rule::new());
    assert_eq!(status(&service).await, 200);
    rule(Rule::new().limit(limit("1 concurrent")));
    assert_eq!(status(&service).await, 429);
    drop(held);
    assert_eq!(status(&service).await, 200);
    drop(before);
}

async fn a_rule_in_shadow_mode_denies_nothing(limiter: Limiter) {
    let service = layer("1 concurrent", &limiter).layer(service());
    let mode = |mode| limiter.set_rules(RuleSet::new().rule("at once", Rule::new().mode(mode))).expect("valid");
    mode(Mode::Shadow);
    let (first, second) = (answer(&service, "/").await, answer(&service, "/").await);
    assert_eq!([first.status(), second.status()], [StatusCode::OK; 2]);
    // The first one has the slot.
    mode(Mode::Enforce);
    assert_eq!(status(&service).await, 429);
    drop(first);
    assert_eq!(status(&service).await, 200);
    drop(second);
}

type Client<S> = rate_limited::tower::Outgoing<S>;

/// A client of a partner, with its layer.
fn outgoing(limiter: &Limiter) -> OutgoingLayer {
    OutgoingLayer::new("partner", limit("1 concurrent")).limiter(limiter.clone())
}

/// Makes a call whose response is dropped at once. Returns whether it was sent.
async fn is_sent(client: &Client<Inner>) -> bool {
    match timeout(WAIT_TIMEOUT, client.clone().oneshot(to("/"))).await.expect("a response") {
        Ok(_) => true,
        Err(OutgoingError::Denied(_)) => false,
        Err(error) => panic!("{error:?}"),
    }
}

async fn a_call_holds_its_slot_until_the_body_of_its_response_has_ended(limiter: Limiter) {
    let client = outgoing(&limiter).layer(service());
    let mut response = answer(&client, "/").await;
    assert!(!is_sent(&client).await);
    while response.frame().await.is_some() {}
    assert!(is_sent(&client).await);
    drop(response);
    let mut failing = Box::pin(client.clone().call(to("/fail")));
    assert!(matches!(failing.as_mut().await, Err(OutgoingError::Inner("an error"))));
    assert!(is_sent(&client).await);
    let never = tokio::spawn(client.clone().oneshot(to("/never")));
    eventually("held", async || !is_sent(&client).await).await;
    never.abort();
    assert!(never.await.is_err_and(|error| error.is_cancelled()));
    assert!(is_sent(&client).await);
    drop(failing);
}

async fn a_call_that_waits_for_a_place_holds_no_slot(limiter: Limiter) {
    let layer = outgoing(&limiter);
    let (client, other) = (layer.clone().wait(LONG_DEADLINE).layer(service_of_one_place()), layer.layer(service()));
    let held = answer(&other, "/").await;
    let call = tokio::spawn(client.clone().oneshot(to("/")));
    yield_now().await;
    // Its slot comes while another handle has the only place, and goes back.
    let mut holder = client.clone();
    holder.ready().await.expect("ready");
    drop(held);
    let held = Mutex::new(None);
    eventually("free again", async || {
        *held.lock().expect("no panic") = other.clone().oneshot(to("/")).await.ok();
        held.lock().expect("no panic").is_some()
    })
    .await;
    // The place is free while another call has the slot: this one waits on, and is not denied.
    drop(holder);
    let mut place = client.clone();
    for _ in 0..3 {
        place.ready().await.expect("ready");
        place = client.clone();
    }
    assert!(!call.is_finished());
    drop(held);
    let response = timeout(WAIT_TIMEOUT, call).await.expect("a response").expect("no panic").expect("it is sent");
    assert!(!is_sent(&other).await);
    drop(response);
    assert!(is_sent(&other).await);
}

fn service_of_one_place() -> ConcurrencyLimit<Inner> {
    ConcurrencyLimit::new(service(), 1)
}

/// The attempt of a call that has its place, while another call has the slot.
#[tokio::test]
async fn a_call_that_leaves_its_place_for_want_of_a_slot_is_no_denial() {
    let denials = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&denials);
    let count = move |_: &Denied| {
        counted.fetch_add(1, Relaxed);
    };
    let limiter = Limiter::builder().on_denied(count).build().expect("builds");
    a_call_that_waits_for_a_place_holds_no_slot(limiter.clone()).await;
    let by_others = denials.load(Relaxed);
    let layer = outgoing(&limiter);
    let client = layer.clone().wait(LONG_DEADLINE).layer(service_of_one_place());
    let held = answer(&layer.layer(service()), "/").await;
    let mut call = Box::pin(client.clone().oneshot(to("/")));
    assert!(is_pending(&mut call));
    let mut holder = client.clone();
    holder.ready().await.expect("ready");
    drop(held);
    assert!(is_pending(&mut call));
    let held = answer(&layer.layer(service()), "/").await;
    drop(holder);
    assert!(is_pending(&mut call));
    drop(held);
    assert_eq!(call.await.expect("it is sent").status(), 200);
    assert_eq!(denials.load(Relaxed), by_others);
}

#[tokio::test]
async fn a_program_chooses_what_holds_the_slots_of_other_responses() {
    let limiter = Limiter::memory();
    let client = service_fn(|number: u32| ready(Ok::<_, Infallible>(number)));
    let layer = outgoing(&limiter).pause_by(|_: &u32| None);
    let holding = layer.clone().hold_by(|number: u32, slots: CallSlots| (number, slots)).layer(client);
    let until_response = layer.hold_by(|number: u32, _| number).layer(client);
    let (number, slots) = holding.clone().oneshot(7).await.expect("it is sent");
    assert_eq!(number, 7);
    assert!(until_response.clone().oneshot(8).await.is_err_and(|error| error.denied().is_some()));
    drop(slots);
    for _ in 0..2 {
        assert_eq!(until_response.clone().oneshot(9).await.expect("it is sent"), 9);
    }
}

#[tokio::test]
async fn a_body_that_may_hold_slots_is_as_the_one_inside() {
    let limiter = Limiter::memory();
    let texts = service_fn(|request: Request<Body>| {
        let text = if request.uri().path() == "/empty" { "" } else { "text" };
        ready(Ok::<_, Infallible>(Response::new(text.to_owned())))
    });
    for max in ["1 concurrent", "100/1h"] {
        let service = layer(max, &limiter).layer(texts);
        let body = answer(&service, "/").await.into_body();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(4), false));
        assert_eq!(body.collect().await.expect("a text").to_bytes(), "text");
        let empty = answer(&service, "/empty").await.into_body();
        assert_eq!((empty.size_hint().exact(), empty.is_end_stream()), (Some(0), true));
    }
    let trailers = http::HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("a"))]);
    let with_trailers = Body::from("text").with_trailers(ready(Some(Ok(trailers.clone()))));
    let collected = HeldBody::new(with_trailers, CallSlots::default()).collect().await.expect("a body");
    assert_eq!(collected.trailers(), Some(&trailers));
}

/// Layers around a layer get its body, and answer with it.
#[tokio::test]
async fn nested_layers_hold_their_slots_together() {
    let limiter = Limiter::memory();
    let text = service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new("text".to_owned()))));
    let inner = RateLimitLayer::new("inner", limit("1 concurrent")).key(Everyone).limiter(limiter.clone());
    let alone = inner.clone().layer(text);
    let nested = ServiceBuilder::new().layer(layer("1 concurrent", &limiter)).layer(inner).service(text);
    let held = answer(&nested, "/").await;
    assert_eq!((status(&nested).await, status(&alone).await), (429, 429));
    drop(held);
    assert_eq!((status(&nested).await, status(&alone).await), (200, 200));
}

/// A router of axum with a stream of events, and a client that leaves it.
#[tokio::test]
async fn a_stream_of_events_holds_its_slot_until_its_client_leaves() {
    let limiter = Limiter::memory();
    let events = || async {
        let events = stream::once(ready(Ok::<_, Infallible>(Event::default().data("first"))));
        Sse::new(events.chain(stream::pending()))
    };
    let app = Router::new().route("/", get(events)).layer(layer("1 concurrent", &limiter));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(axum::serve(listener, app.clone()).into_future());
    let mut connection = TcpStream::connect(address).await.expect("it listens");
    connection.write_all(b"GET / HTTP/1.1\r\nhost: app\r\n\r\n").await.expect("written");
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("data: first") {
        let length = timeout(WAIT_TIMEOUT, connection.read_buf(&mut read)).await.expect("an event").expect("read");
        assert_ne!(length, 0);
    }
    assert_eq!(status(&app).await, 429);
    drop(connection);
    eventually("free after its client has left", async || status(&app).await == 200).await;
    server.abort();
}
