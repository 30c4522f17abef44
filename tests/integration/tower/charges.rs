//! Requests that take nothing, and are charged by their answer.

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response};
use limiter_testkit::RedisServer;
use rate_limited::tower::{ClientIp, Everyone, ProblemAnswer, RateLimitLayer, SettlingAnswer};
use rate_limited::{Allowed, Key, Limiter, ManualClock, Mode, OnError, Rule, RuleSet, Source};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{Served, Text, counted, field, limit, limiter, request, send, statuses};
use crate::deadlines::eventually;
use crate::support::{Subject, builder_for, on_every_store, poll_once};

type SettlingLayer = RateLimitLayer<ClientIp, SettlingAnswer<ProblemAnswer>>;

/// The layer of failed log-ins: at most 5 of a client in any 15 minutes.
fn log_ins(limiter: Limiter) -> SettlingLayer {
    let layer = RateLimitLayer::new("log-in", limit("5/15min")).limiter(limiter);
    layer.charge_if(|_, status| if status == 401 { 5 } else { 0 })
}

fn key() -> Key {
    Key::new("log-in").text(":ip:").part("192.0.2.1")
}

async fn remaining(limiter: &Limiter) -> u32 {
    limiter.peek(&key(), &limit("5/15min")).await.expect("decides").remaining()
}

/// A service that answers, with the status in the path of a request, once its gate is open.
#[derive(Clone, Debug)]
struct Gated {
    served: Served,
    gate: Arc<Semaphore>,
}

impl Gated {
    fn new() -> Self {
        Self { served: Served::default(), gate: Arc::new(Semaphore::new(0)) }
    }

    fn open(&self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }
}

impl Service<Request<String>> for Gated {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = futures_util::future::BoxFuture<'static, Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        self.served.0.fetch_add(1, Relaxed);
        let status: u16 = request.uri().path().trim_start_matches('/').parse().expect("a status");
        let gate = Arc::clone(&self.gate);
        Box::pin(async move {
            gate.acquire().await.expect("open").forget();
            Ok(Response::builder().status(status).body(String::new()).expect("a status"))
        })
    }
}

fn to(status: &str) -> Request<String> {
    request("192.0.2.1:1", &format!("/{status}"), &[])
}

/// Sends as many requests at once. The gate opens when all of them were decided: no more of them can reach the service.
async fn send_at_once(layer: &SettlingLayer, status: &'static str, count: u32, expected: u32) -> Vec<u16> {
    let gated = Gated::new();
    let service = layer.layer(gated.clone());
    let (mut requests, denied) = (JoinSet::new(), Served::default());
    for _ in 0..count {
        let (service, denied) = (service.clone(), denied.clone());
        requests.spawn(async move {
            let status = send(&service, to(status)).await.status().as_u16();
            if status == 429 {
                denied.0.fetch_add(1, Relaxed);
            }
            status
        });
    }
    eventually("decided", async || gated.served.count() + denied.count() == count).await;
    assert_eq!(gated.served.count(), expected, "the service has got another number of requests");
    gated.open();
    let statuses = requests.join_all().await;
    assert_eq!(gated.served.count(), expected, "the service has got more requests");
    statuses
}

async fn log_ins_at_once_pass_unless_they_are_wrong(subject: Subject) {
    let layer = log_ins(subject.limiter.clone());
    assert_eq!(send_at_once(&layer, "200", 20, 20).await, [200; 20]);
    let statuses = send_at_once(&layer, "401", 1_000, 20).await;
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(401), count(429)), (20, 980));
    // None passes until the window is over, right or wrong.
    for status in ["401", "200"] {
        assert_eq!(send_at_once(&layer, status, 30, 0).await, [429; 30]);
    }
    let service = counted(&layer, &Served::default());
    subject.clock.advance(Duration::from_secs(15 * 60) - Duration::from_millis(1));
    assert_eq!(statuses_of(&service, ["200"]).await, [429]);
    subject.clock.advance(Duration::from_millis(2));
    assert_eq!(statuses_of(&service, ["200", "401", "200"]).await, [200, 401, 429]);
}

on_every_store!(log_ins_at_once_pass_unless_they_are_wrong);

async fn statuses_of<S, B: Text, const N: usize>(service: &S, of: [&str; N]) -> Vec<u16>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    statuses(service, of.map(to)).await
}

/// Requests come all the time, and are answered in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_passes_its_limit_by_at_most_the_requests_that_are_open() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("log-in", limit("5/15min")).limiter(limiter);
    let layer = layer.charge_if(|_, status| u32::from(status == 401)).open_at_most(3);
    let served = Served::default();
    let service = {
        let served = served.clone();
        layer.layer(service_fn(move |_: Request<String>| {
            let served = served.clone();
            async move {
                served.0.fetch_add(1, Relaxed);
                tokio::task::yield_now().await;
                Ok::<_, Infallible>(Response::builder().status(401).body(String::new()).expect("a status"))
            }
        }))
    };
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let service = service.clone();
        clients.spawn(async move {
            for _ in 0..200 {
                send(&service, to("401")).await;
            }
        });
    }
    clients.join_all().await;
    // The fifth charge ends it, and two more requests may be open then.
    assert!((5..=7).contains(&served.count()), "{} passed", served.count());
}

#[tokio::test]
async fn a_request_beyond_the_open_ones_is_denied_for_a_second_without_the_store() {
    let (limiter, _) = limiter();
    let layer = log_ins(limiter.clone()).limit(limit("9/1h")).open_at_most(1);
    let gated = Gated::new();
    let service = layer.layer(gated.clone());
    let open = poll_once(vec![Box::pin(service.clone().oneshot(to("200")))]).await;
    let denied = send(&service, to("200")).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), ["1"]);
    assert_eq!(field(&denied, "ratelimit-policy"), [r#""log-in";q=5;w=900"#]);
    assert_eq!(field(&denied, "ratelimit"), [r#""log-in";r=0;t=1"#]);
    // Another client has places of its own, and so has another limiter.
    drop(poll_once(vec![Box::pin(service.clone().oneshot(request("192.0.2.2:1", "/200", &[])))]).await);
    let other = log_ins(super::limiter().0).open_at_most(1).layer(gated.clone());
    drop(poll_once(vec![Box::pin(other.oneshot(to("200")))]).await);
    // Another layer of this key has not.
    let again = log_ins(limiter).open_at_most(1).layer(gated.clone());
    assert_eq!(send(&again, to("200")).await.status(), 429);
    gated.open();
    drop(open);
    assert_eq!(statuses_of(&service, ["200", "200"]).await, [200, 200]);
}

#[tokio::test]
async fn a_denial_beyond_the_open_ones_says_where_it_is_from() {
    let (limiter, _) = limiter();
    let layer = log_ins(limiter).open_at_most(0).denied(|_, denied| {
        assert_eq!((denied.source(), denied.name()), (Source::DeniedUntil, "log-in"));
        Response::builder().status(418).body(String::new()).expect("a status")
    });
    assert_eq!(statuses_of(&counted(&layer, &Served::default()), ["200"]).await, [418]);
}

#[tokio::test]
async fn a_request_without_an_answer_frees_its_place_and_is_not_charged() {
    let (limiter, _) = limiter();
    let layer = log_ins(limiter.clone()).open_at_most(1);
    let broken = layer.layer(service_fn(|request: Request<String>| async move {
        match request.uri().path() {
            "/panic" => panic!("the service's own fault"),
            "/never" => std::future::pending().await,
            _ => Err::<Response<String>, _>("an error"),
        }
    }));
    for path in ["panic", "never", "error"].repeat(2) {
        let mut call = Box::pin(AssertUnwindSafe(broken.clone().oneshot(to(path))).catch_unwind());
        let polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
        match (path, polled) {
            ("panic", Poll::Ready(Err(_))) | ("never", Poll::Pending) | ("error", Poll::Ready(Ok(Err("an error")))) => {
            }
            (_, polled) => panic!("{path}: {polled:?}"),
        }
        if path != "error" {
            drop(call);
        }
        assert_eq!(remaining(&limiter).await, 5);
    }
    let layer = RateLimitLayer::new("log-in", limit("5/15min")).limiter(limiter).open_at_most(1);
    let layer = layer.charge_if(|_, status| if status == 500 { panic!("the function's own fault") } else { 1 });
    let service = counted(&layer, &Served::default());
    assert!(AssertUnwindSafe(service.clone().oneshot(to("500"))).catch_unwind().await.is_err());
    assert_eq!(statuses_of(&service, ["200"]).await, [200]);
}

/// A limiter on a store that takes a second of the clock for each call.
fn slow_limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let builder = Limiter::builder().slow(Duration::from_secs(1)).deadline(Duration::from_secs(9));
    (builder.clock(clock.clone()).build().expect("builds"), clock)
}

/// Returns the output of a future that the clock lets end.
async fn with_clock<F: Future>(clock: &ManualClock, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            clock.advance(Duration::from_secs(1));
            context.waker().wake_by_ref();
        }
        polled
    })
    .await
}

#[tokio::test]
async fn a_charge_is_counted_although_the_client_leaves_meanwhile() {
    for is_charged in [true, false] {
        let (limiter, clock) = slow_limiter();
        let layer = RateLimitLayer::new("log-in", limit("5/15min")).limiter(limiter.clone()).key(Everyone);
        let layer = match is_charged {
            true => layer.charge_if(|_, _| 2).open_at_most(1),
            false => layer.cost(|_| 2).refund_if(|_, _| true),
        };
        let served = Served::default();
        let service = counted(&layer, &served);
        let mut call = poll_once(vec![Box::pin(service.clone().oneshot(to("401")))]).await;
        clock.advance(Duration::from_secs(1));
        // The store has allowed the request, and the service has answered it. The change is on its way.
        call = poll_once(call).await;
        assert_eq!(served.count(), 1);
        if is_charged {
            assert_eq!(send(&service, to("401")).await.status(), 429, "the place is free before the charge");
        }
        drop(call);
        let left = if is_charged { 3 } else { 5 };
        eventually("counted", async || {
            let peeked = with_clock(&clock, limiter.peek(&Key::new("log-in"), &limit("5/15min"))).await;
            peeked.expect("decides").remaining() == left
        })
        .await;
        if is_charged {
            let mut next = Box::pin(service.oneshot(to("401")));
            assert_eq!(with_clock(&clock, next.as_mut()).await.expect("infallible").status(), 401);
        }
    }
}

/// Otherwise a request could be checked before the last charge of the open ones, and begin after it.
#[tokio::test]
async fn a_request_is_open_before_it_is_checked() {
    let (limiter, _) = slow_limiter();
    let service = counted(&log_ins(limiter).open_at_most(1), &Served::default());
    let first = poll_once(vec![Box::pin(service.clone().oneshot(to("401")))]).await;
    let second = service.oneshot(to("401")).now_or_never().expect("no store is called").expect("infallible");
    assert_eq!(second.status(), 429);
    drop(first);
}

#[tokio::test]
async fn the_next_request_finds_the_charge_counted() {
    let (limiter, clock) = slow_limiter();
    let layer = log_ins(limiter);
    let service = counted(&layer, &Served::default());
    let first = with_clock(&clock, send(&service, to("401"))).await;
    assert_eq!(field(&first, "ratelimit"), [r#""log-in";r=5;t=0"#]);
    assert_eq!(with_clock(&clock, send(&service, to("200"))).await.status(), 429);
}

#[tokio::test]
async fn all_limits_of_a_layer_are_charged() {
    let (limiter, clock) = limiter();
    let layer = RateLimitLayer::new("points", limit("10/1s")).limit(limit("15/1m")).limiter(limiter);
    let layer = layer.key(Everyone).limit_by(|_| limit("12/1s")).charge_if(|_, _| 8);
    let service = counted(&layer, &Served::default());
    assert_eq!(statuses_of(&service, ["200", "200", "200"]).await, [200, 200, 429]);
    clock.advance(Duration::from_secs(1));
    let denied = send(&service, to("200")).await;
    assert_eq!(field(&denied, "ratelimit-policy"), [r#""points-1s";q=12;w=1, "points-1m";q=15;w=60"#]);
}

#[tokio::test]
async fn a_request_that_is_charged_afterwards_waits_for_one_permit() {
    let (limiter, clock) = limiter();
    let layer = RateLimitLayer::new("points", limit("1/1m")).limiter(limiter).key(Everyone);
    let service = counted(&layer.charge_if(|_, _| 1).wait(Duration::from_secs(90)), &Served::default());
    for status in [200, 200, 200] {
        assert_eq!(with_clock(&clock, send(&service, to("200"))).await.status().as_u16(), status);
    }
    let (limiter, _) = super::limiter();
    let layer = RateLimitLayer::new("points", limit("1/1m")).limiter(limiter).key(Everyone);
    let service = counted(&layer.charge_if(|_, _| 2).wait(Duration::from_secs(59)), &Served::default());
    assert_eq!(statuses_of(&service, ["200", "200"]).await, [200, 429]);
}

#[tokio::test]
async fn the_modes_of_a_rule_hold_for_requests_that_are_charged_afterwards() {
    // The bound of open requests, the place of a second request, and what a charge leaves.
    for (mode, passes, left) in
        [(Mode::Enforce, false, 3), (Mode::Shadow, true, 1), (Mode::Off, true, 5), (Mode::Deny, false, 5)]
    {
        let (limiter, _) = limiter();
        limiter.set_rules(RuleSet::new().rule("log-in", Rule::new().mode(mode))).expect("valid");
        let layer = RateLimitLayer::new("log-in", limit("5/15min")).limiter(limiter.clone()).charge_if(|_, _| 2);
        let gated = Gated::new();
        let service = layer.open_at_most(1).layer(gated.clone());
        let mut open = vec![Box::pin(service.clone().oneshot(to("200")))];
        if mode != Mode::Deny {
            open = poll_once(open).await;
        }
        gated.open();
        assert_eq!(send(&service, to("200")).await.status() == 200, passes, "{mode:?}");
        for open in open {
            assert_eq!(open.await.expect("infallible").status() == 200, mode != Mode::Deny, "{mode:?}");
        }
        assert_eq!(remaining(&limiter).await, left, "{mode:?}");
    }
}

#[tokio::test]
async fn a_charge_that_fails_leaves_the_answer_and_frees_the_place() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Open).connect().await.expect("it is there");
    let kill = Mutex::new(Some(server));
    let layer = RateLimitLayer::new("log-in", limit("5/15min")).limiter(limiter).open_at_most(1);
    let service = counted(
        &layer.charge_if(move |_, _| {
            drop(kill.lock().expect("no panic").take());
            1
        }),
        &Served::default(),
    );
    let response = send(&service, to("401")).await;
    assert_eq!(response.status(), 401);
    assert!(field(&response, "ratelimit")[0].starts_with(r#""log-in";r=5;t="#));
    // The policy allows it. Its place is free.
    assert_eq!(statuses_of(&service, ["401", "401"]).await, [401, 401]);
}

#[tokio::test]
async fn the_last_settlement_that_is_set_holds() {
    let charged = |limiter: &Limiter| {
        let layer = RateLimitLayer::new("log-in", limit("5/15min")).limiter(limiter.clone());
        layer.refund_if(|_, _| true).charge_if(|_, _| 2)
    };
    let (limiter, _) = limiter();
    assert_eq!(statuses_of(&counted(&charged(&limiter), &Served::default()), ["200"]).await, [200]);
    assert_eq!(remaining(&limiter).await, 3);
    let (limiter, _) = super::limiter();
    let refunded = charged(&limiter).refund_if(|_, status| status == 200);
    assert_eq!(statuses_of(&counted(&refunded, &Served::default()), ["200", "401"]).await, [200, 401]);
    assert_eq!(remaining(&limiter).await, 4);
}

#[tokio::test]
async fn a_request_counts_what_its_answer_settles_it_to() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("log-in", limit("9/15min")).limiter(limiter.clone()).cost(|_| 3);
    let layer = layer.settle_if(|_, status| match status.as_u16() {
        200 => None,
        status => Some(u32::from(status) - 400),
    });
    let service = counted(&layer, &Served::default());
    let mut left = Vec::new();
    for status in ["200", "400", "401", "404", "404", "404"] {
        let status = statuses_of(&service, [status]).await[0];
        left.push((status, limiter.peek(&key(), &limit("9/15min")).await.expect("decides").remaining()));
    }
    // The last one is denied: less than its cost is left, although it would count less after its answer.
    assert_eq!(left, [(200, 6), (400, 6), (401, 5), (404, 1), (429, 1), (429, 1)]);
    let usage = limiter.charge(&key(), &limit("9/15min"), 0).await.expect("counts");
    assert_eq!((usage.remaining(), usage.overdrawn()), (1, 0));
}

#[tokio::test]
async fn a_request_that_needs_more_than_it_took_counts_beyond_the_limit() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("log-in", limit("5/15min")).limiter(limiter.clone()).settle_if(|_, _| Some(7));
    assert_eq!(statuses_of(&counted(&layer, &Served::default()), ["200", "200"]).await, [200, 429]);
    let usage = limiter.charge(&key(), &limit("5/15min"), 0).await.expect("counts");
    assert_eq!((usage.remaining(), usage.overdrawn()), (0, 2));
}

#[tokio::test]
async fn a_service_may_settle_its_request_itself() {
    for is_postpaid in [true, false] {
        let (limiter, _) = limiter();
        let layer = RateLimitLayer::new("log-in", limit("5/15min")).limiter(limiter.clone());
        let layer = if is_postpaid { layer.charge_if(|_, _| 1) } else { layer.settle_if(|_, _| Some(1)) };
        let service = {
            let limiter = limiter.clone();
            layer.layer(service_fn(move |request: Request<String>| {
                let limiter = limiter.clone();
                async move {
                    let allowed = request.extensions().get::<Allowed>().expect("a permit");
                    limiter.settle(allowed, 4).await.expect("settles");
                    Ok::<_, Infallible>(Response::new(String::new()))
                }
            }))
        };
        assert_eq!(statuses_of(&service, ["200"]).await, [200]);
        assert_eq!(remaining(&limiter).await, 1, "postpaid: {is_postpaid}");
    }
}

#[tokio::test]
async fn observers_get_the_decisions_about_requests_that_are_charged_afterwards() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (allowed, denied) = (Arc::clone(&seen), Arc::clone(&seen));
    let builder = Limiter::builder().clock(ManualClock::new());
    let builder = builder.on_allowed(move |decision| allowed.lock().expect("no panic").push(decision.source()));
    let builder = builder.on_denied(move |decision| denied.lock().expect("no panic").push(decision.source()));
    let layer = log_ins(builder.build().expect("builds"));
    let gated = Gated::new();
    let service = layer.open_at_most(1).layer(gated.clone());
    let open = poll_once(vec![Box::pin(service.clone().oneshot(to("401")))]).await;
    assert_eq!(send(&service, to("200")).await.status(), 429);
    gated.open();
    for open in open {
        assert_eq!(open.await.expect("infallible").status(), 401);
    }
    assert_eq!(send(&service, to("200")).await.status(), 429);
    let expected = [Source::Store, Source::DeniedUntil, Source::Store];
    assert_eq!(*seen.lock().expect("no panic"), expected);
}
