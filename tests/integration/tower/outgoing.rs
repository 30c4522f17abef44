//! The layer for clients: limits and pauses of outgoing calls.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use limiter_testkit::RedisServer;
use rate_limited::tower::{Outgoing, OutgoingError, OutgoingLayer, retry_after};
use rate_limited::{ErrorKind, Key, Limiter, ManualClock, OnError, Rule, RuleSet, Source};
use tokio::time::timeout;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{Echo, Served, limit, limiter};
use crate::deadlines::{WAIT_TIMEOUT, eventually};
use crate::support::builder_for;

const SECOND: Duration = Duration::from_secs(1);

/// A partner that answers each call with the status of its path, and with its body as `Retry-After`.
#[derive(Clone, Debug, Default)]
struct Partner(Served);

impl Service<Request<&'static str>> for Partner {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<&'static str>) -> Self::Future {
        self.0.0.fetch_add(1, Relaxed);
        let response = Response::builder().status(&request.uri().path()[1..]);
        let response = match *request.body() {
            "" => response,
            retry_after => response.header("retry-after", retry_after),
        };
        std::future::ready(Ok(response.body(()).expect("a response")))
    }
}

/// Returns the outcome of a call: the status of the response, or the time after which to call again.
async fn call<S, B>(client: &S, path: &str, body: &'static str) -> Result<u16, Duration>
where
    S: Service<Request<&'static str>, Response = Response<B>, Error = OutgoingError<Infallible>> + Clone,
{
    let request = Request::builder().uri(path).body(body).expect("a request");
    match timeout(WAIT_TIMEOUT, client.clone().oneshot(request)).await.expect("a response") {
        Ok(response) => Ok(response.status().as_u16()),
        Err(OutgoingError::Denied(denied)) => Err(denied.retry_after()),
        Err(error) => panic!("{error:?}"),
    }
}

type Client = Outgoing<Partner>;

fn client(max: &str, limiter: &Limiter, partner: &Partner) -> (OutgoingLayer, Client) {
    let layer = OutgoingLayer::new("partner", limit(max)).limiter(limiter.clone());
    (layer.clone(), layer.layer(partner.clone()))
}

/// Polls a future once, which must not be ready.
fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn calls_beyond_the_limit_are_not_sent() {
    let ((limiter, clock), partner) = (limiter(), Partner::default());
    let (layer, client) = client("2/10s", &limiter, &partner);
    assert_eq!([call(&client, "/200", "").await, call(&client, "/500", "").await], [Ok(200), Ok(500)]);
    assert_eq!(call(&client, "/200", "").await, Err(10 * SECOND));
    assert_eq!(partner.0.count(), 2);
    // A clone counts with it, and so does another client of the layer.
    clock.advance(10 * SECOND);
    let other = layer.layer(partner.clone());
    assert_eq!([call(&other, "/200", "").await, call(&client.clone(), "/200", "").await], [Ok(200), Ok(200)]);
    assert!(call(&other, "/200", "").await.is_err());
}

#[tokio::test]
async fn a_call_waits_for_its_permit() {
    let ((limiter, clock), partner) = (limiter(), Partner::default());
    let (layer, _) = client("1/10s", &limiter, &partner);
    let client = layer.wait(10 * SECOND).layer(partner.clone());
    assert_eq!(call(&client, "/200", "").await, Ok(200));
    let mut waiting = Box::pin(call(&client, "/200", ""));
    assert!(is_pending(&mut waiting));
    assert_eq!(partner.0.count(), 1);
    clock.advance(10 * SECOND);
    assert_eq!(waiting.await, Ok(200));
}

#[tokio::test]
async fn a_429_pauses_its_key_and_no_other() {
    let ((limiter, clock), partner) = (limiter(), Partner::default());
    let (layer, _) = client("100/10s", &limiter, &partner);
    let layer =
        layer.key_by(|request: &Request<&'static str>| Key::new("partner:").part(request.uri().query().unwrap_or("")));
    let client = layer.layer(partner.clone());
    for (status, header, expected) in
        [("/429", "30", 30), ("/503", "Fri, 31 Dec 9999 23:59:59 GMT", 300), ("/429", "315360000", 300)]
    {
        let before = partner.0.count();
        assert!(call(&client, &format!("{status}?a"), header).await.is_ok());
        assert_eq!(call(&client, "/200?a", "").await, Err(expected * SECOND), "{header}");
        assert_eq!(call(&client, "/200?b", "").await, Ok(200));
        assert_eq!(partner.0.count(), before + 2);
        clock.advance(expected * SECOND - Duration::from_millis(1));
        assert_eq!(call(&client, "/200?a", "").await, Err(Duration::from_millis(1)));
        clock.advance(Duration::from_millis(1));
        assert_eq!(call(&client, "/200?a", "").await, Ok(200));
    }
}

#[tokio::test]
async fn other_responses_pause_nothing() {
    let ((limiter, _), partner) = (limiter(), Partner::default());
    let (_, client) = client("100/10s", &limiter, &partner);
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (status, header) in
        [("/429", ""), ("/429", "soon"), ("/429", "0"), ("/429", past), ("/503", "-1"), ("/500", "30"), ("/200", "30")]
    {
        assert!(call(&client, status, header).await.is_ok());
        assert_eq!(call(&client, "/200", "").await, Ok(200), "{status} {header}");
    }
}

#[tokio::test]
async fn the_longest_pause_is_an_option() {
    let ((limiter, clock), partner) = (limiter(), Partner::default());
    let (layer, _) = client("100/10s", &limiter, &partner);
    let client = layer.longest_pause(7 * SECOND).wait(8 * SECOND).layer(partner.clone());
    assert_eq!(call(&client, "/429", "99999999999999999999").await, Ok(429));
    let mut waiting = Box::pin(call(&client, "/200", ""));
    assert!(is_pending(&mut waiting));
    clock.advance(7 * SECOND);
    assert_eq!(waiting.await, Ok(200));
    let without = OutgoingLayer::new("partner", limit("100/10s")).limiter(limiter).longest_pause(Duration::ZERO);
    let without = without.layer(partner);
    assert_eq!([call(&without, "/429", "30").await, call(&without, "/200", "").await], [Ok(429), Ok(200)]);
}

/// The permit of the call that waited is free again, since the call is not sent.
#[tokio::test]
async fn a_pause_during_the_wait_for_a_permit_holds_for_the_waiting_call() {
    let ((limiter, clock), partner) = (limiter(), Partner::default());
    let (layer, _) = client("2/10s", &limiter, &partner);
    let client = layer.clone().wait(60 * SECOND).layer(partner.clone());
    assert_eq!([call(&client, "/200", "").await, call(&client, "/200", "").await], [Ok(200), Ok(200)]);
    let mut waiting = Box::pin(call(&client, "/200", ""));
    let mut pausing = Box::pin(call(&client, "/429", "20"));
    assert!(is_pending(&mut waiting) && is_pending(&mut pausing));
    clock.advance(10 * SECOND);
    // The first call in the queue is not polled, so the later one passes it.
    clock.advance(Duration::from_millis(20));
    assert_eq!(pausing.await, Ok(429));
    assert!(is_pending(&mut waiting));
    let left = limiter.peek(&Key::new("partner"), &limit("2/10s")).await.expect("decides").remaining();
    assert_eq!((left, partner.0.count()), (1, 3));
    clock.advance(20 * SECOND);
    assert_eq!(waiting.await, Ok(200));
    // A pause that is longer than the rest of the wait is a denial at once.
    assert_eq!(call(&client, "/429", "61").await, Ok(429));
    assert_eq!(call(&client, "/200", "").await, Err(61 * SECOND));
}

#[tokio::test]
async fn a_paused_call_is_a_denial_of_its_rule() {
    let denials = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&denials);
    let limiter = Limiter::builder()
        .on_denied(move |denied| seen.lock().expect("no panic").push((denied.name().to_owned(), denied.source())))
        .build()
        .expect("builds");
    let (_, client) = client("100/10s", &limiter, &Partner::default());
    assert_eq!(call(&client, "/429", "30").await, Ok(429));
    assert!(call(&client, "/200", "").await.is_err());
    assert_eq!(*denials.lock().expect("no panic"), [("partner".to_owned(), Source::DeniedUntil)]);
}

#[tokio::test]
async fn settings_by_name_apply_to_outgoing_calls() {
    let ((limiter, _), partner) = (limiter(), Partner::default());
    let (_, client) = client("1/10s", &limiter, &partner);
    limiter.set_rules(RuleSet::new().rule("partner", Rule::new().limit(limit("3/10s")))).expect("valid");
    let calls = [call(&client, "/200", "").await, call(&client, "/200", "").await, call(&client, "/200", "").await];
    assert_eq!(calls, [Ok(200), Ok(200), Ok(200)]);
    assert!(call(&client, "/200", "").await.is_err());
}

#[tokio::test]
async fn failures_are_apart_from_those_of_the_client() {
    let failing = || Limiter::builder().failing(ErrorKind::Unavailable).build().expect("builds");
    let broken = service_fn(|()| async { Err::<(), _>(std::io::Error::other("refused")) });
    let layer = |policy| OutgoingLayer::new("partner", limit("1/10s")).limiter(failing()).on_error(policy);
    let layer = |policy| layer(policy).pause_by(|(): &()| None).hold_by(|(), _| ());
    let raised = layer(OnError::Raise).layer(broken).oneshot(()).await.expect_err("the limiter fails");
    assert!(matches!(&raised, OutgoingError::Failed(error) if error.kind() == ErrorKind::Unavailable), "{raised:?}");
    let inner = layer(OnError::Open).layer(broken).oneshot(()).await.expect_err("the client fails");
    assert!(matches!(&inner, OutgoingError::Inner(error) if error.to_string() == "refused"), "{inner:?}");
    assert_eq!((inner.to_string(), inner.denied().is_none()), ("refused".to_owned(), true));
    let closed = layer(OnError::Closed).layer(broken).oneshot(()).await.expect_err("denied");
    assert!(closed.denied().is_some_and(|denied| denied.source() == Source::Policy), "{closed:?}");
}

#[tokio::test]
async fn other_types_of_response_have_a_pause_of_their_own() {
    let (limiter, clock) = limiter();
    let client = service_fn(|status: u16| async move { Ok::<_, Infallible>(status) });
    let layer = OutgoingLayer::new("partner", limit("9/10s")).limiter(limiter);
    let layer = layer.pause_by(|status: &u16| retry_after(*status, "5")).hold_by(|status: u16, _| status);
    let client = layer.layer(client);
    assert_eq!(client.clone().oneshot(200).await.ok(), Some(200));
    assert_eq!(client.clone().oneshot(503).await.ok(), Some(503));
    let denied = client.clone().oneshot(200).await.expect_err("paused");
    assert_eq!(denied.denied().map(|denied| denied.retry_after()), Some(5 * SECOND));
    clock.advance(5 * SECOND);
    assert_eq!(client.oneshot(200).await.ok(), Some(200));
}

/// A client that was ready may hold a place in a pool. That one gets the call, not its clone.
#[tokio::test]
async fn the_client_that_was_ready_gets_the_call() {
    #[derive(Debug, Default)]
    struct NeedsReady(bool);

    impl Clone for NeedsReady {
        fn clone(&self) -> Self {
            Self(false)
        }
    }

    impl Service<()> for NeedsReady {
        type Response = Response<()>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<()>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.0 = true;
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            assert!(self.0, "not ready");
            std::future::ready(Ok(Response::new(())))
        }
    }

    let mut client = OutgoingLayer::new("partner", limit("9/10s")).limiter(limiter().0).layer(NeedsReady::default());
    for _ in 0..3 {
        poll_fn(|context| client.poll_ready(context)).await.expect("ready");
        assert!(client.call(()).await.is_ok());
    }
}

#[tokio::test]
async fn a_dropped_call_that_waits_takes_no_permit_and_is_not_sent() {
    let ((limiter, clock), is_sent) = (limiter(), Arc::new(AtomicBool::new(false)));
    let sent = Arc::clone(&is_sent);
    let client = service_fn(move |is_late: bool| {
        sent.fetch_or(is_late, Relaxed);
        async move { if is_late { pending().await } else { Ok::<_, Infallible>(Response::new(())) } }
    });
    let client = OutgoingLayer::new("partner", limit("1/10s")).limiter(limiter).wait(60 * SECOND).layer(client);
    assert!(client.clone().oneshot(false).await.is_ok());
    let mut dropped = Box::pin(client.clone().oneshot(true));
    assert!(is_pending(&mut dropped));
    drop(dropped);
    clock.advance(10 * SECOND);
    assert!(client.oneshot(false).await.is_ok());
    assert!(!is_sent.load(Relaxed));
}

#[tokio::test]
async fn two_processes_keep_the_limit_of_a_partner_together() {
    let (server, served) = (RedisServer::start(), Served::default());
    let prefix = limiter_testkit::unique("outgoing");
    let clients = join_all((0..2).map(|_| async {
        let limiter = builder_for(&server).prefix(&prefix).connect().await.expect("connects");
        let layer = OutgoingLayer::new("partner", limit("20/h")).limiter(limiter);
        layer.layer(Echo { served: served.clone() })
    }))
    .await;
    let calls = clients.iter().flat_map(|client| (0..30).map(|_| client.clone().oneshot(Request::new(String::new()))));
    let sent = join_all(calls).await.into_iter().filter(Result::is_ok).count();
    assert_eq!((sent, served.count()), (20, 20));
}

#[tokio::test]
async fn a_response_gives_the_permit_of_its_call_back() {
    let ((limiter, _), partner) = (limiter(), Partner::default());
    let layer = OutgoingLayer::new("partner", limit("2/10s")).limiter(limiter);
    let client = layer.refund_if(|response: &Response<()>| response.status() == 304).layer(partner.clone());
    let mut seen = Vec::new();
    for path in ["/304", "/304", "/304", "/200", "/304", "/200", "/304"] {
        seen.push(call(&client, path, "").await);
    }
    assert_eq!(seen, [Ok(304), Ok(304), Ok(304), Ok(200), Ok(304), Ok(200), Err(10 * SECOND)]);
}

/// The points of a call are in the body of its request.
fn points_of(response: &Response<()>) -> u32 {
    let points = response.headers().get("retry-after").and_then(|points| points.to_str().ok());
    points.and_then(|points| points.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_call_is_charged_the_points_that_its_response_states() {
    let ((limiter, clock), partner) = (limiter(), Partner::default());
    let layer = OutgoingLayer::new("partner", limit("10/10s")).limiter(limiter.clone());
    let client = layer.charge_if(points_of).wait(9 * SECOND).layer(partner.clone());
    let key = Key::new("partner");
    let seen = [call(&client, "/200", "9").await, call(&client, "/200", "").await, call(&client, "/200", "5").await];
    assert_eq!(seen, [Ok(200); 3]);
    assert_eq!(limiter.charge(&key, &limit("10/10s"), 0).await.expect("counts").overdrawn(), 4);
    assert_eq!(call(&client, "/200", "").await, Err(10 * SECOND));
    clock.advance(SECOND);
    // Not longer than its wait.
    let mut waiting = Box::pin(call(&client, "/200", "1"));
    assert!(is_pending(&mut waiting));
    clock.advance(8 * SECOND);
    assert!(is_pending(&mut waiting));
    clock.advance(SECOND);
    assert_eq!(waiting.await, Ok(200));
    assert_eq!(limiter.charge(&key, &limit("10/10s"), 0).await.expect("counts").remaining(), 9);
}

/// Each call costs more than the limit. Only one is sent before the first charge, since the place of the client is free
/// after it.
#[tokio::test]
async fn a_limit_of_concurrency_bounds_calls_that_are_charged_afterwards() {
    let clock = ManualClock::new();
    let builder = Limiter::builder().slow(SECOND).deadline(9 * SECOND).clock(clock.clone());
    let (limiter, partner) = (builder.build().expect("builds"), Partner::default());
    let layer = OutgoingLayer::new("partner", limit("10/1h")).limiter(limiter).charge_if(points_of).wait(60 * SECOND);
    let client = layer.layer(ConcurrencyLimit::new(partner.clone(), 1));
    let mut calls = Box::pin(join_all((0..9).map(|_| call(&client, "/200", "11"))));
    let seen = poll_fn(|context| {
        let polled = calls.as_mut().poll(context);
        if polled.is_pending() {
            clock.advance(SECOND);
            context.waker().wake_by_ref();
        }
        polled
    })
    .await;
    assert_eq!((seen.iter().filter(|seen| seen.is_ok()).count(), partner.0.count()), (1, 1));
}

#[tokio::test]
async fn the_charge_of_a_response_that_is_dropped_is_counted() {
    let clock = ManualClock::new();
    let builder = Limiter::builder().slow(SECOND).deadline(9 * SECOND).clock(clock.clone());
    let (limiter, partner) = (builder.build().expect("builds"), Partner::default());
    let layer = OutgoingLayer::new("partner", limit("10/1h")).limiter(limiter.clone()).charge_if(points_of);
    let client = layer.layer(partner.clone());
    let mut dropped = Box::pin(call(&client, "/200", "7"));
    assert!(is_pending(&mut dropped));
    clock.advance(SECOND);
    assert!(is_pending(&mut dropped));
    assert_eq!(partner.0.count(), 1);
    drop(dropped);
    eventually("counted", async || {
        clock.advance(SECOND);
        let (key, limit) = (Key::new("partner"), limit("10/1h"));
        let mut peek = Box::pin(limiter.peek(&key, &limit));
        assert!(is_pending(&mut peek));
        clock.advance(SECOND);
        peek.await.expect("decides").remaining() == 3
    })
    .await;
}
