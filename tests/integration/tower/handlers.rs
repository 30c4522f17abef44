//! Fields about the limits that decide inside of a handler: those of attributes and of direct calls.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use http::{Request, Response};
use limiter_testkit::RedisServer;
use rate_limited::http::Fields;
use rate_limited::tower::{Everyone, OutgoingLayer, RateLimitFieldsLayer, RateLimitLayer};
use rate_limited::{Denied, Key, Limiter, ManualClock, Mode, Rule, RuleSet, rate_limited};
use tokio::task::yield_now;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{Served, counted, field, limit, request_of};
use crate::support::builder_for;

/// A limiter in memory whose clock stands still.
fn limiter() -> Limiter {
    Limiter::builder().clock(ManualClock::new()).build().expect("builds")
}

#[rate_limited(key = "search:{id}", name = "search", limits = ["2/1s", "1000/1d"])]
async fn search(id: u64) -> Result<String, Denied> {
    Ok(format!("result {id}"))
}

#[rate_limited(key = "render", limit = "7/1m", fallback = "busy".to_owned())]
fn render(text: &str) -> String {
    format!("<p>{text}")
}

/// A handler without any type or argument for fields.
async fn page(Path(id): Path<u64>) -> Result<String, Denied> {
    Ok(render(&search(id).await?))
}

/// A handler that hides the denial from its client.
async fn cached(Path(id): Path<u64>) -> String {
    search(id).await.unwrap_or_else(|_| "from the cache".to_owned())
}

fn app(layer: RateLimitFieldsLayer) -> Router {
    Router::new().route("/pages/{id}", get(page)).route("/cached/{id}", get(cached)).layer(layer)
}

async fn send(app: &Router, path: &str) -> Response<Body> {
    let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
    app.clone().oneshot(request).await.expect("infallible")
}

const SEARCH: &str = r#""search-1s";q=2;w=1, "search-1d";q=1000;w=86400"#;

#[tokio::test]
async fn answers_of_annotated_handlers_have_the_limits_that_decided() {
    for builder in [Limiter::builder(), builder_for(RedisServer::timeless())] {
        let limiter = builder.clock(ManualClock::new()).connect().await.expect("a store");
        limiter
            .scope(async {
                let app = app(RateLimitFieldsLayer::new());
                for left in [1, 0] {
                    let answer = send(&app, "/pages/1").await;
                    assert_eq!(answer.status(), 200);
                    let policies = format!(r#"{SEARCH}, "render";q=7;w=60"#);
                    assert_eq!(field(&answer, "ratelimit-policy"), [policies]);
                    let [day, minute] = [998 + left, 5 + left];
                    let quotas =
                        format!(r#""search-1s";r={left};t=1, "search-1d";r={day};t=86400, "render";r={minute};t=60"#);
                    assert_eq!(field(&answer, "ratelimit"), [quotas]);
                }
                // The response of the denial has its own fields, which are not repeated.
                let denied = send(&app, "/pages/1").await;
                assert_eq!(denied.status(), 429);
                assert_eq!(field(&denied, "ratelimit-policy"), [SEARCH]);
                assert_eq!(field(&denied, "ratelimit"), [r#""search-1s";r=0;t=1, "search-1d";r=998;t=86400"#]);
                assert_eq!(field(&denied, "retry-after"), ["1"]);
                // The handler makes an answer of it.
                let answer = send(&app, "/cached/1").await;
                assert_eq!((answer.status().as_u16(), field(&answer, "retry-after").len()), (200, 0));
                assert_eq!(field(&answer, "ratelimit"), [r#""search-1s";r=0;t=1, "search-1d";r=998;t=86400"#]);
            })
            .await;
    }
}

#[tokio::test]
async fn a_layer_shows_the_rules_and_fields_that_it_was_given() {
    limiter()
        .scope(async {
            let answer = send(&app(RateLimitFieldsLayer::new().only(["render"])), "/pages/1").await;
            assert_eq!(field(&answer, "ratelimit-policy"), [r#""render";q=7;w=60"#]);
            let answer = send(&app(RateLimitFieldsLayer::new().only(["other"])), "/pages/2").await;
            assert_eq!(field(&answer, "ratelimit-policy"), [""; 0]);
            let answer = send(&app(RateLimitFieldsLayer::new().fields(Fields::Legacy)), "/pages/3").await;
            // The limit with the least permits left.
            let numbers = ["limit", "remaining"].map(|name| field(&answer, &format!("x-ratelimit-{name}")));
            assert_eq!(numbers, [["2"], ["1"]]);
            let answer = send(&app(RateLimitFieldsLayer::new().fields(Fields::None)), "/pages/4").await;
            assert_eq!(field(&answer, "ratelimit"), [""; 0]);
        })
        .await;
}

/// Sends a request to a service whose handler is a function, and returns the fields of its answer.
async fn quotas<H: Future<Output = Response<String>>>(
    layer: impl Layer<HandlerService<H>, Service: Service<Request<String>, Response = Response<String>, Error = Infallible>>,
    handler: fn() -> H,
) -> Vec<String> {
    let service = layer.layer(HandlerService(handler));
    let answer = service.oneshot(request_of("192.0.2.1")).await.expect("infallible");
    field(&answer, "ratelimit").into_iter().map(str::to_owned).collect()
}

struct HandlerService<H>(fn() -> H);

impl<H: Future<Output = Response<String>>> Service<Request<String>> for HandlerService<H> {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Answering<H>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        Answering(Box::pin((self.0)()))
    }
}

struct Answering<H>(std::pin::Pin<Box<H>>);

impl<H: Future<Output = Response<String>>> Future for Answering<H> {
    type Output = Result<Response<String>, Infallible>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context).map(Ok)
    }
}

fn ok() -> Response<String> {
    Response::new(String::new())
}

#[tokio::test]
async fn direct_calls_and_waits_of_a_handler_are_seen_and_the_last_of_a_limit_counts() {
    limiter()
        .scope(async {
            let seen = quotas(RateLimitFieldsLayer::new(), || async {
                let limiter = Limiter::current();
                for key in ["a", "b", "b", "b"] {
                    let decision = limiter.named("items").check(&Key::new(key), &limit("9/1h")).await;
                    assert!(decision.expect("decides").is_allowed());
                    yield_now().await;
                }
                let _ = limiter.named("sync").check_blocking(&Key::new("sync"), &limit("8/1h"));
                let _ = limiter.named("wait").wait(&Key::new("wait"), &limit("7/1h"), std::time::Duration::ZERO).await;
                // A peek decides about nothing.
                let _ = limiter.named("peek").peek(&Key::new("a"), &limit("6/1h")).await;
                ok()
            })
            .await;
            let expected = [r#""items";r=6;t=3600, "sync";r=7;t=3600, "wait";r=6;t=3600"#];
            assert_eq!(seen, expected);
        })
        .await;
}

#[tokio::test]
async fn what_is_decided_elsewhere_or_counts_nothing_is_not_seen() {
    let limiter = limiter();
    let shadow = Rule::new().mode(Mode::Shadow);
    limiter.set_rules(RuleSet::new().rule("shadow", shadow).rule("off", Rule::new().mode(Mode::Off))).expect("valid");
    limiter
        .scope(async {
            let seen = quotas(RateLimitFieldsLayer::new(), || async {
                let limiter = Limiter::current();
                let in_task = limiter.clone();
                let spawned = tokio::spawn(async move { in_task.check(&Key::new("task"), &limit("9/1h")).await });
                assert!(spawned.await.expect("no panic").expect("decides").is_allowed());
                for rule in ["shadow", "off"] {
                    assert!(limiter.named(rule).check(&Key::new("a"), &limit("9/1h")).await.is_ok());
                }
                let partner = OutgoingLayer::new("partner", limit("9/1h")).limiter(limiter);
                let partner = partner.layer(service_fn(|_: Request<String>| ready(Ok::<_, Infallible>(ok()))));
                assert!(partner.oneshot(Request::new(String::new())).await.is_ok());
                ok()
            })
            .await;
            assert_eq!(seen, [""; 0]);
        })
        .await;
}

#[tokio::test]
async fn a_layer_for_requests_writes_its_own_limits_once() {
    let limiter = limiter();
    let layer = RateLimitLayer::new("api", limit("5/s")).limit(limit("9/1h")).limiter(limiter.clone()).key(Everyone);
    let own = r#""api-1s";r=4;t=1, "api-1h";r=8;t=3600"#;
    let inside = RateLimitFieldsLayer::new().layer(counted(&layer, &Served::default()));
    let answer = inside.oneshot(request_of("192.0.2.1")).await.expect("infallible");
    assert_eq!(field(&answer, "ratelimit"), [own]);
    // Its `wait`, a denial, and a decision by a shared store are its own as well.
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let limiter = builder.connect().await.expect("a store");
        let layer = RateLimitLayer::new("slow", limit("1/1h")).limiter(limiter).key(Everyone);
        for layer in [layer.clone().wait(std::time::Duration::from_millis(1)), layer] {
            for _ in 0..2 {
                let inside = RateLimitFieldsLayer::new().layer(counted(&layer, &Served::default()));
                let answer = inside.oneshot(request_of("192.0.2.1")).await.expect("infallible");
                assert_eq!(field(&answer, "ratelimit").len(), 1, "{answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn of_nested_layers_the_innermost_has_a_decision() {
    limiter()
        .scope(async {
            let middle = tower::layer::layer_fn(|inner: tower::util::BoxCloneSyncService<_, _, _>| {
                service_fn(move |request: Request<String>| {
                    let inner = inner.clone();
                    async move {
                        let check = async |name: &str| {
                            Limiter::current().named(name).check(&Key::new(name), &limit("9/1h")).await
                        };
                        assert!(check("before").await.is_ok());
                        let answer = inner.oneshot(request).await;
                        assert!(check("after").await.is_ok() && check("inner").await.is_ok());
                        answer
                    }
                })
            });
            let inner = RateLimitFieldsLayer::new().layer(service_fn(|_: Request<String>| async {
                assert!(Limiter::current().named("inner").check(&Key::new("inner"), &limit("9/1h")).await.is_ok());
                Ok::<_, Infallible>(ok())
            }));
            let inner = tower::util::BoxCloneSyncService::new(inner);
            let outer = RateLimitFieldsLayer::new().layer(middle.layer(inner));
            let answer = outer.oneshot(request_of("192.0.2.1")).await.expect("infallible");
            // The inner layer has written its limit already.
            let lines = [r#""inner";r=8;t=3600"#, r#""before";r=8;t=3600, "after";r=8;t=3600"#];
            assert_eq!(field(&answer, "ratelimit"), lines);
        })
        .await;
}

/// Makes one decision in the scope's limiter, and polls on as `then` does.
async fn after_a_decision(then: impl Future<Output = Response<String>>) -> Response<String> {
    assert!(Limiter::current().named("lost").check(&Key::new("a"), &limit("9/1h")).await.is_ok());
    then.await
}

fn poll_in_scope<F: Future>(limiter: &Limiter, future: &mut std::pin::Pin<&mut F>) -> Poll<F::Output> {
    limiter.scope_sync(|| future.as_mut().poll(&mut Context::from_waker(Waker::noop())))
}

/// Asserts that a request on this thread has its own decision alone.
fn assert_nothing_is_left(limiter: &Limiter) {
    let mut seen = pin!(quotas(RateLimitFieldsLayer::new(), || async {
        assert!(Limiter::current().named("next").check(&Key::new("b"), &limit("9/1h")).await.is_ok());
        ok()
    }));
    let Poll::Ready(seen) = poll_in_scope(limiter, &mut seen) else { panic!("nothing waits") };
    assert_eq!(seen, [r#""next";r=8;t=3600"#]);
    limiter.reset_blocking(&Key::new("b"), &limit("9/1h")).expect("a store in memory");
    // Outside of a layer nothing collects, so a decision has not all limits.
    let (one, other, hour) = (Key::new("one"), Key::new("other"), limit("99/1h"));
    let decision = limiter.check_all_blocking(&[(&one, &hour, 1), (&other, &hour, 1)]).expect("decides");
    assert_eq!(decision.limits().count(), 1);
}

#[test]
fn a_handler_that_panics_leaves_nothing_to_other_requests() {
    let limiter = limiter();
    {
        let mut panicking =
            pin!(quotas(RateLimitFieldsLayer::new(), || after_a_decision(async { panic!("a handler") })));
        assert!(catch_unwind(AssertUnwindSafe(|| poll_in_scope(&limiter, &mut panicking))).is_err());
        assert_nothing_is_left(&limiter);
    }
    assert_nothing_is_left(&limiter);
    // A layer inside of this one may answer in its place.
    let mut caught = pin!(quotas(RateLimitFieldsLayer::new(), || {
        let mut panicking = Box::pin(after_a_decision(async { panic!("a handler") }));
        poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| panicking.as_mut().poll(context))) {
            Ok(polled) => polled,
            Err(_) => Poll::Ready(ok()),
        })
    }));
    let Poll::Ready(seen) = poll_in_scope(&limiter, &mut caught) else { panic!("nothing waits") };
    assert_eq!(seen, [r#""lost";r=7;t=3600"#]);
}

#[test]
fn a_handler_that_is_dropped_leaves_nothing_to_other_requests() {
    let limiter = limiter();
    {
        let mut waiting = pin!(quotas(RateLimitFieldsLayer::new(), || after_a_decision(pending())));
        assert!(poll_in_scope(&limiter, &mut waiting).is_pending());
        assert_nothing_is_left(&limiter);
        assert!(poll_in_scope(&limiter, &mut waiting).is_pending());
    }
    assert_nothing_is_left(&limiter);
}

/// Two requests whose polls alternate on one thread.
#[test]
fn requests_on_one_thread_do_not_mix() {
    let limiter = limiter();
    async fn steps(rule: &'static str, limit: &'static str) -> Response<String> {
        for _ in 0..3 {
            assert!(Limiter::current().named(rule).check(&Key::new(rule), &super::limit(limit)).await.is_ok());
            yield_once().await;
        }
        ok()
    }
    let mut one = pin!(quotas(RateLimitFieldsLayer::new(), || steps("one", "9/1h")));
    let mut two = pin!(quotas(RateLimitFieldsLayer::new(), || steps("two", "5/1m")));
    for _ in 0..3 {
        assert!(poll_in_scope(&limiter, &mut one).is_pending() && poll_in_scope(&limiter, &mut two).is_pending());
    }
    let (one, two) = (poll_in_scope(&limiter, &mut one), poll_in_scope(&limiter, &mut two));
    assert_eq!(one, Poll::Ready(vec![r#""one";r=6;t=3600"#.to_owned()]));
    assert_eq!(two, Poll::Ready(vec![r#""two";r=2;t=60"#.to_owned()]));
}

async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[tokio::test]
async fn redirects_of_handlers_have_no_fields() {
    limiter()
        .scope(async {
            let seen = quotas(RateLimitFieldsLayer::new(), || async {
                let mut answer = after_a_decision(ready(ok())).await;
                *answer.status_mut() = http::StatusCode::SEE_OTHER;
                answer
            })
            .await;
            assert_eq!(seen, [""; 0]);
        })
        .await;
}
