//! Permits of requests: what takes them, and what gives them back.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use rate_limited::tower::{Everyone, RateLimitLayer};
use rate_limited::{Allowed, Key, Limiter};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{Served, Text, counted, field, limit, limiter, request, request_of, send, statuses};

#[tokio::test]
async fn only_failed_requests_count_if_others_are_refunded() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("log-in", limit("2/1m")).limiter(limiter);
    let layer = layer.refund_if(|parts, status| parts.uri.path() != "/401" || status != 401);
    let service = counted(&layer, &Served::default());
    let to = |path: &str| request("192.0.2.1:1", path, &[]);
    let requests = [to("/200"), to("/200"), to("/200"), to("/401"), to("/200"), to("/401"), to("/200")];
    assert_eq!(statuses(&service, requests).await, [200, 200, 200, 401, 200, 401, 429]);
}

#[tokio::test]
async fn an_answer_with_a_refund_keeps_its_fields() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("2/1m")).limiter(limiter).refund_if(|_, _| true);
    let service = counted(&layer, &Served::default());
    for _ in 0..3 {
        let response = send(&service, request_of("192.0.2.1")).await;
        assert_eq!(field(&response, "ratelimit"), [r#""api";r=1;t=60"#]);
    }
}

#[tokio::test]
async fn a_refund_that_fails_leaves_the_answer_and_the_permit() {
    let limiter = Limiter::memory();
    let other = Limiter::memory();
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter.clone()).refund_if(|_, _| true);
    // The inner layer's permit is the one in the extensions; each layer refunds its own.
    let inner = RateLimitLayer::new("inner", limit("1/1m")).limiter(other.clone());
    let service = layer.layer(counted(&inner, &Served::default()));
    assert_eq!(statuses(&service, [request_of("192.0.2.1"), request_of("192.0.2.1")]).await, [200, 429]);
    let key = Key::new("api").text(":ip:").part("192.0.2.1");
    assert_eq!(limiter.peek(&key, &limit("1/1m")).await.expect("decides").remaining(), 1);
}

#[tokio::test]
async fn the_permit_is_in_the_extensions_of_the_request() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("2/1m")).limiter(limiter.clone());
    let service = layer.layer(service_fn(|request: Request<String>| async move {
        let allowed = request.extensions().get::<Allowed>().expect("a permit");
        Ok::<_, Infallible>(Response::new(format!("{} {}", allowed.name(), allowed.remaining())))
    }));
    assert_eq!(send_to(service, request_of("192.0.2.1")).await.body(), "api 1");
}

async fn send_to<S, B: Text>(service: S, request: Request<String>) -> Response<String>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible>,
{
    service.oneshot(request).await.expect("infallible").map(Text::into_text)
}

#[tokio::test]
async fn the_permit_of_a_client_that_disconnects_stays_taken() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).refund_if(|_, _| true);
    let never = layer.layer(service_fn(|_: Request<String>| pending::<Result<Response<String>, Infallible>>()));
    let mut call = Box::pin(never.oneshot(request_of("192.0.2.1")));
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(call);
    let service = counted(&layer, &Served::default());
    assert_eq!(statuses(&service, [request_of("192.0.2.1")]).await, [429]);
}

#[tokio::test]
async fn the_limits_of_a_layer_take_permits_together_or_not_at_all() {
    let (limiter, clock) = limiter();
    let layer = RateLimitLayer::new("api", limit("2/1s")).limit(limit("3/1m")).limiter(limiter);
    let service = counted(&layer, &Served::default());
    let three = || [request_of("192.0.2.1"), request_of("192.0.2.1"), request_of("192.0.2.1")];
    assert_eq!(statuses(&service, three()).await, [200, 200, 429]);
    clock.advance(Duration::from_secs(1));
    assert_eq!(statuses(&service, three()).await, [200, 429, 429]);
    let denied = send(&service, request_of("192.0.2.1")).await;
    assert_eq!(field(&denied, "ratelimit-policy"), [r#""api-1s";q=2;w=1, "api-1m";q=3;w=60"#]);
    assert!(denied.body().contains(r#""violated-policies":["api-1m"]"#), "{}", denied.body());
}

#[tokio::test]
async fn each_request_can_have_its_own_limit() {
    let (limiter, _) = limiter();
    let plan = |parts: &http::request::Parts| match parts.headers.contains_key("x-plan") {
        true => limit("3/1m"),
        false => limit("1/1m"),
    };
    let layer = RateLimitLayer::new("api", limit("9/1h")).limit_by(plan).limiter(limiter);
    let service = counted(&layer, &Served::default());
    let paying = || request("192.0.2.1:1", "/", &[("x-plan", "paid")]);
    let all = [request_of("192.0.2.1"), request_of("192.0.2.1"), paying(), paying(), paying()];
    // Both limits have one window, so their requests share one count.
    assert_eq!(statuses(&service, all).await, [200, 429, 200, 200, 429]);
    let denied = send(&service, paying()).await;
    assert_eq!(field(&denied, "ratelimit-policy"), [r#""api";q=3;w=60"#]);
}

#[tokio::test]
async fn a_request_waits_for_its_permit() {
    let limiter = Limiter::memory();
    let layer = RateLimitLayer::new("api", limit("1/20ms")).limiter(limiter).key(Everyone);
    let service = counted(&layer.clone().wait(Duration::from_secs(20)), &Served::default());
    let requests: Vec<_> = (0..5).map(|_| request_of("192.0.2.1")).collect();
    assert_eq!(statuses(&service, requests).await, [200; 5]);
    let hour = RateLimitLayer::new("hour", limit("1/1h")).limiter(Limiter::memory()).wait(Duration::from_millis(1));
    let service = counted(&hour, &Served::default());
    assert_eq!(statuses(&service, [request_of("192.0.2.1"), request_of("192.0.2.1")]).await, [200, 429]);
}

/// The service that was polled ready gets the request, not a clone of it.
#[tokio::test]
async fn the_service_that_was_ready_gets_the_request() {
    #[derive(Clone)]
    struct Ready(bool);
    impl Service<Request<String>> for Ready {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<String>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.0 = true;
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<String>) -> Self::Future {
            assert!(std::mem::take(&mut self.0), "called without being ready");
            std::future::ready(Ok(Response::new(String::new())))
        }
    }
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("9/1m")).limiter(limiter);
    let slow_key = rate_limited::tower::key_async(|_| async { Some("a".to_owned()) });
    let (mut direct, mut waiting) = (layer.layer(Ready(false)), layer.clone().key(slow_key).layer(Ready(false)));
    for _ in 0..3 {
        direct.ready().await.expect("infallible").call(request_of("192.0.2.1")).await.expect("infallible");
        waiting.ready().await.expect("infallible").call(request_of("192.0.2.1")).await.expect("infallible");
    }
}

/// A service that is ready may hold a place, as those of a concurrency limit do. A client whose requests are denied must
/// not keep places from others.
#[tokio::test]
async fn a_rejected_request_frees_the_place_of_the_service_that_was_ready() {
    #[derive(Debug, Default)]
    struct OnePlace {
        is_taken: Arc<AtomicBool>,
        has_place: bool,
    }
    impl OnePlace {
        fn leave(&mut self) {
            if std::mem::take(&mut self.has_place) {
                self.is_taken.store(false, Relaxed);
            }
        }
    }
    impl Clone for OnePlace {
        fn clone(&self) -> Self {
            Self { is_taken: Arc::clone(&self.is_taken), has_place: false }
        }
    }
    impl Drop for OnePlace {
        fn drop(&mut self) {
            self.leave();
        }
    }
    impl Service<Request<String>> for OnePlace {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<String>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.has_place = self.has_place || !self.is_taken.swap(true, Relaxed);
            if self.has_place { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn call(&mut self, _: Request<String>) -> Self::Future {
            self.leave();
            std::future::ready(Ok(Response::new(String::new())))
        }
    }
    let (limiter, _) = limiter();
    let now = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter);
    for layer in [now.clone(), now.limit(limit("9/1h"))] {
        let mut kept = layer.layer(OnePlace::default());
        let mut other = kept.clone();
        for request in [request_of("192.0.2.1"), request_of("192.0.2.1"), Request::new(String::new())] {
            kept.ready().await.expect("infallible").call(request).await.expect("infallible");
            let mut context = Context::from_waker(Waker::noop());
            assert!(Service::<Request<String>>::poll_ready(&mut other, &mut context).is_ready());
            other.get_mut().leave();
        }
    }
}

#[tokio::test]
async fn a_layer_without_a_limiter_uses_that_of_the_scope() {
    let service = counted(&RateLimitLayer::new("api", limit("1/1m")), &Served::default());
    let two = || [request_of("192.0.2.1"), request_of("192.0.2.1")];
    let in_scope = Limiter::memory().scope(statuses(&service, two())).await;
    let in_other = Limiter::memory().scope(statuses(&service, two())).await;
    assert_eq!((in_scope, in_other), (vec![200, 429], vec![200, 429]));
}
