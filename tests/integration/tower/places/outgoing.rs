//! Outgoing calls and places of the client: a call that waits for one of the two holds none of the other.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use rate_limited::tower::{HeldBody, OutgoingError, OutgoingLayer};
use rate_limited::{Builder, Key, Limiter, ManualClock, OnError};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};

use super::{Breakable, SECOND, is_pending, places, poll_once, request, request_to, start};
use crate::tower::{Echo, Served, limit, limiter};

const TICK: Duration = Duration::from_millis(10);

fn outgoing(max: &str, limiter: &Limiter) -> OutgoingLayer<impl Fn(&Request<String>) -> Key + use<>> {
    let key =
        |request: &Request<String>| Key::new("partner:").part(request.headers()["x-client"].to_str().expect("text"));
    OutgoingLayer::new("partner", limit(max)).limiter(limiter.clone()).wait(30 * SECOND).key_by(key)
}

#[tokio::test]
async fn an_outgoing_call_that_waits_holds_no_place_of_the_client() {
    let (limiter, clock) = limiter();
    let client = outgoing("1/10s", &limiter).layer(places(1));
    let send = |request| start(&client, request);
    assert!(send(request("a")).await.is_ok());
    let mut waiting = send(request("a"));
    assert!(is_pending(&mut waiting));
    assert!(poll_once(&mut send(request("b"))).is_ready());
    clock.advance(10 * SECOND);
    assert!(waiting.await.is_ok());
}

#[tokio::test]
async fn an_outgoing_call_that_is_permitted_at_once_keeps_its_place() {
    let (limiter, _) = limiter();
    let mut client = outgoing("9/10s", &limiter).layer(places(1));
    let mut queued = start(&client, request("b"));
    client.ready().await.expect("ready");
    assert!(is_pending(&mut queued));
    assert!(client.call(request("a")).await.is_ok());
    assert!(queued.await.is_ok());
}

#[tokio::test]
async fn the_error_of_a_client_that_was_polled_after_the_permit_is_that_of_the_call() {
    let ((limiter, clock), inner) = (limiter(), Breakable::default());
    let client = outgoing("1/10s", &limiter).layer(inner.clone());
    assert!(client.clone().oneshot(request("a")).await.is_ok());
    let mut waiting = start(&client, request("a"));
    assert!(is_pending(&mut waiting));
    inner.is_broken.store(true, Relaxed);
    clock.advance(10 * SECOND);
    assert!(matches!(waiting.await, Err(OutgoingError::Inner("broken"))));
    assert_eq!(inner.served.count(), 1);
}

/// A pause that began while a call waited for a place of the client.
#[tokio::test]
async fn a_pause_overtakes_a_call_that_waits_for_a_place() {
    let (limiter, clock) = limiter();
    let partner = Echo { served: Served::default() };
    let answer = partner.clone().map_response(|mut response: Response<String>| {
        if response.status() == 429 {
            response.headers_mut().insert("retry-after", http::HeaderValue::from_static("15"));
        }
        response
    });
    let client = outgoing("2/10s", &limiter).layer(ConcurrencyLimit::new(answer, 1));
    let send = |request| start(&client, request);
    assert!(send(request("a")).await.is_ok() && send(request("a")).await.is_ok());
    let mut waiting = send(request("a"));
    assert!(is_pending(&mut waiting));
    // The permit comes while another handle has the only place, and goes back.
    let mut holder = client.clone();
    holder.ready().await.expect("ready");
    clock.advance(10 * SECOND);
    assert!(is_pending(&mut waiting));
    assert_eq!(remaining(&limiter, "2/10s").await, 2);
    let paused = holder.call(request_to("/429", "a")).await.expect("sent");
    assert_eq!((paused.status().as_u16(), partner.served.count()), (429, 3));
    assert!(is_pending(&mut waiting));
    assert_eq!((partner.served.count(), remaining(&limiter, "2/10s").await), (3, 1));
    clock.advance(15 * SECOND);
    assert!(waiting.await.is_ok());
    assert_eq!(partner.served.count(), 4);
}

async fn remaining(limiter: &Limiter, max: &str) -> u32 {
    let key = Key::new("partner:").part("a");
    limiter.peek(&key, &limit(max)).await.expect("decides").remaining()
}

/// A partner that records the time of each call. A call to `/stay` has no response.
#[derive(Clone)]
struct Timed {
    clock: ManualClock,
    times: Arc<Mutex<Vec<Duration>>>,
}

impl Timed {
    fn new(clock: &ManualClock) -> Self {
        Self { clock: clock.clone(), times: Arc::default() }
    }

    fn count(&self) -> usize {
        self.times.lock().expect("no panic").len()
    }

    /// Returns the largest number of calls in any window.
    fn most_in(&self, window: Duration) -> usize {
        let times = self.times.lock().expect("no panic");
        let in_window = |start| times.iter().filter(|time| (start..start + window).contains(*time)).count();
        times.iter().map(|start| in_window(*start)).max().unwrap_or(0)
    }
}

impl Service<Request<String>> for Timed {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        self.times.lock().expect("no panic").push(self.clock.now());
        Box::pin(async move {
            match request.uri().path() {
                "/stay" => std::future::pending().await,
                _ => Ok(Response::new(request.into_body())),
            }
        })
    }
}

/// A limiter that counts the denials and the admissions that its observers get.
fn observed(builder: Builder) -> (Limiter, ManualClock, Arc<[AtomicU32; 2]>) {
    let (clock, counts) = (ManualClock::new(), Arc::<[AtomicU32; 2]>::default());
    let (denials, admissions) = (Arc::clone(&counts), Arc::clone(&counts));
    let count = |counts: &[AtomicU32; 2], index: usize| {
        counts[index].fetch_add(1, Relaxed);
    };
    let builder = builder.clock(clock.clone()).on_denied(move |_| count(&denials, 0));
    let builder = builder.on_allowed(move |_| count(&admissions, 1));
    (builder.build().expect("builds"), clock, counts)
}

type Call<E> = Pin<Box<dyn Future<Output = Result<Response<HeldBody<String>>, E>>>>;

/// Moves the clock for `time` in steps, and polls the calls at each. Removes those that end, and returns the bodies of
/// their responses.
fn run<E: std::fmt::Debug>(calls: &mut Vec<Call<E>>, clock: &ManualClock, time: Duration) -> Vec<String> {
    let mut bodies = Vec::new();
    for _ in 0..time.as_millis() / TICK.as_millis() {
        clock.advance(TICK);
        // A call that ends may free a place for an earlier one.
        for _ in 0..2 {
            calls.retain_mut(|call| match poll_once(call) {
                Poll::Ready(response) => {
                    bodies.push(response.expect("a response").into_body().into_inner());
                    false
                }
                Poll::Pending => true,
            });
        }
    }
    bodies
}

/// Runs calls until a future has ended.
fn run_until<F: Future, E: std::fmt::Debug>(future: F, calls: &mut Vec<Call<E>>, clock: &ManualClock) -> F::Output {
    let mut future = Box::pin(future);
    loop {
        if let Poll::Ready(output) = poll_once(&mut future) {
            return output;
        }
        assert!(run(calls, clock, TICK).is_empty());
    }
}

fn with_body(client: &str, body: usize) -> Request<String> {
    request(client).map(|_| body.to_string())
}

/// Permits that were taken while all places were busy were used at once when one became free: 50 calls in one window.
#[tokio::test]
async fn calls_that_wait_for_a_place_keep_the_limit_when_they_are_sent() {
    let (limiter, clock, counts) = observed(Limiter::builder());
    let partner = Timed::new(&clock);
    let client = outgoing("10/1s", &limiter).layer(ConcurrencyLimit::new(partner.clone(), 1));
    for _ in 0..10 {
        assert!(start(&client, request("a")).await.is_ok());
    }
    let mut stuck = start(&client, request_to("/stay", "a"));
    assert!(is_pending(&mut stuck));
    let mut calls: Vec<Call<_>> = Vec::new();
    calls.extend((0..50).map(|number| -> Call<_> { start(&client, with_body("a", number)) }));
    assert!(calls.iter_mut().all(is_pending));
    for _ in 0..500 {
        clock.advance(TICK);
        assert!(is_pending(&mut stuck) && calls.iter_mut().all(is_pending));
    }
    // Calls that wait for a place leave the permits to others.
    assert_eq!((partner.count(), remaining(&limiter, "10/1s").await), (11, 10));
    drop(stuck);
    let mut bodies: Vec<usize> =
        run(&mut calls, &clock, 6 * SECOND).iter().map(|body| body.parse().expect("a number")).collect();
    assert_eq!(partner.most_in(SECOND), 10);
    bodies.sort_unstable();
    assert!(bodies.iter().copied().eq(0..50), "each call gets its own response: {bodies:?}");
    assert_eq!(counts[0].load(Relaxed), 0, "no call was denied");
}

/// One call had the place while the permit of the other one was on its way back, then the other way round, and so on.
#[tokio::test]
async fn a_call_with_the_place_and_one_with_the_permit_do_not_displace_each_other_forever() {
    const DELAY: Duration = Duration::from_millis(90);
    for offset in 0..10 {
        let (limiter, clock, counts) = observed(Limiter::builder().slow(DELAY));
        let partner = Timed::new(&clock);
        let client = outgoing("1/10s", &limiter).layer(ConcurrencyLimit::new(partner.clone(), 1));
        let (key, max) = (Key::new("partner:").part("a"), limit("1/10s"));
        let check = || limiter.check(&key, &max);
        let mut calls: Vec<Call<_>> = Vec::new();
        assert!(run_until(check(), &mut calls, &clock).expect("decides").is_allowed());
        calls.extend((0..2).map(|number| -> Call<_> { start(&client, with_body("a", number)) }));
        assert!(run(&mut calls, &clock, 2 * DELAY).is_empty());
        let mut stuck = start(&client, request_to("/stay", "b"));
        assert!(is_pending(&mut stuck));
        assert!(run(&mut calls, &clock, DELAY).is_empty() && is_pending(&mut stuck));
        assert_eq!(partner.count(), 1);
        // Both calls get the permit and give it back. Then it is taken.
        assert!(run(&mut calls, &clock, 11 * SECOND).is_empty());
        assert_eq!(counts[1].load(Relaxed), 4);
        let taken = run_until(check(), &mut calls, &clock).expect("decides").into_result().expect("allowed");
        // The first call gets the place, and leaves it to the second one. Then the permit comes back.
        drop(stuck);
        assert!(run(&mut calls, &clock, offset * TICK).is_empty());
        run_until(limiter.refund(&taken), &mut calls, &clock).expect("refunds");
        assert_eq!(run(&mut calls, &clock, 5 * SECOND).len(), 1, "offset {offset}");
        assert_eq!(run(&mut calls, &clock, 10 * SECOND).len(), 1, "offset {offset}");
        assert_eq!(partner.most_in(10 * SECOND), 1, "offset {offset}");
    }
}

#[tokio::test]
async fn a_call_whose_client_is_ready_takes_one_permit() {
    let (limiter, clock, counts) = observed(Limiter::builder());
    let client = outgoing("2/10s", &limiter).layer(places(1));
    assert!(start(&client, request("a")).await.is_ok() && start(&client, request("a")).await.is_ok());
    let mut waiting = start(&client, request("a"));
    assert!(is_pending(&mut waiting));
    clock.advance(10 * SECOND);
    assert!(waiting.await.is_ok());
    assert_eq!((remaining(&limiter, "2/10s").await, counts[1].load(Relaxed)), (1, 3));
}

#[tokio::test]
async fn the_wait_of_a_call_that_gave_its_permit_back_ends_at_its_time() {
    let (limiter, clock, counts) = observed(Limiter::builder());
    let client = outgoing("1/10s", &limiter).wait(15 * SECOND).layer(places(1));
    assert!(start(&client, request("a")).await.is_ok());
    let mut waiting = start(&client, request("a"));
    assert!(is_pending(&mut waiting));
    let mut holder = client.clone();
    holder.ready().await.expect("ready");
    clock.advance(10 * SECOND);
    assert!(is_pending(&mut waiting));
    // Another call takes the permit. The next one comes after the end of the wait.
    assert!(holder.call(request("a")).await.is_ok());
    let denied = waiting.await.expect_err("there is no permit in time");
    assert_eq!(denied.denied().map(|denied| denied.retry_after()), Some(10 * SECOND));
    assert_eq!(counts[0].load(Relaxed), 1, "the observers get one denial");
}

#[tokio::test]
async fn the_policy_decides_about_a_call_that_waited_for_a_place() {
    let (delay, deadline) = (Duration::from_millis(90), Duration::from_millis(50));
    let (limiter, clock, _) = observed(Limiter::builder().slow(delay).deadline(deadline));
    let client = outgoing("1/10s", &limiter).on_error(OnError::Open).layer(places(1));
    let mut calls: Vec<Call<_>> = vec![start(&client, with_body("a", 7))];
    assert!(calls.iter_mut().all(is_pending));
    let mut holder = client.clone();
    holder.ready().await.expect("ready");
    assert!(run(&mut calls, &clock, SECOND).is_empty());
    drop(holder);
    assert_eq!(run(&mut calls, &clock, SECOND), ["7"]);
}
