//! Answers of the layer: statuses, fields and bodies.

use std::time::Duration;

use rate_limited::http::Fields;
use rate_limited::tower::{Everyone, Missing, RateLimitLayer};
use rate_limited::{Allowed, Denied, Limiter, OnError};
use tower::{Layer, ServiceExt, service_fn};

use super::{Served, counted, field, limit, limiter, request, request_of, send, statuses};

#[tokio::test]
async fn a_denied_request_gets_429_with_fields_and_a_problem_and_the_service_does_not_get_it() {
    let (limiter, _) = limiter();
    let served = Served::default();
    let service = counted(&RateLimitLayer::new("api", limit("2/1m")).limiter(limiter), &served);
    for remaining in [1, 0] {
        let response = send(&service, request_of("192.0.2.1")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(field(&response, "ratelimit-policy"), [r#""api";q=2;w=60"#]);
        assert_eq!(field(&response, "ratelimit"), [format!(r#""api";r={remaining};t=60"#)]);
        assert_eq!(field(&response, "retry-after"), [""; 0]);
    }
    let response = send(&service, request_of("192.0.2.1")).await;
    assert_eq!(response.status(), 429);
    assert_eq!(field(&response, "ratelimit-policy"), [r#""api";q=2;w=60"#]);
    assert_eq!(field(&response, "ratelimit"), [r#""api";r=0;t=60"#]);
    assert_eq!(field(&response, "retry-after"), ["60"]);
    assert_eq!(field(&response, "content-type"), ["application/problem+json"]);
    assert_eq!(field(&response, "cache-control"), ["no-store"]);
    assert!(response.body().contains(r#""violated-policies":["api"],"retry_after_ms":60000"#), "{}", response.body());
    assert_eq!(served.count(), 2);
}

#[tokio::test]
async fn a_request_after_exactly_retry_after_is_allowed() {
    let (limiter, clock) = limiter();
    let service = counted(&RateLimitLayer::new("api", limit("1/10s")).limiter(limiter), &Served::default());
    assert_eq!(statuses(&service, [request_of("192.0.2.1")]).await, [200]);
    clock.advance(Duration::from_millis(2_500));
    let denied = send(&service, request_of("192.0.2.1")).await;
    let seconds = field(&denied, "retry-after")[0].parse().expect("seconds");
    assert_eq!(seconds, 8);
    clock.advance(Duration::from_secs(seconds));
    assert_eq!(statuses(&service, [request_of("192.0.2.1")]).await, [200]);
}

#[tokio::test]
async fn redirects_have_no_fields() {
    let (limiter, _) = limiter();
    let service = counted(&RateLimitLayer::new("api", limit("9/1m")).limiter(limiter), &Served::default());
    for (path, has_fields) in [("/200", true), ("/302", false), ("/304", false), ("/404", true), ("/500", true)] {
        let response = send(&service, request("192.0.2.1:1", path, &[])).await;
        assert_eq!(!field(&response, "ratelimit").is_empty(), has_fields, "{path}");
        assert_eq!(!field(&response, "ratelimit-policy").is_empty(), has_fields, "{path}");
    }
}

#[tokio::test]
async fn a_redirect_in_answer_to_a_denial_has_no_fields() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).denied(|_, _| {
        let response = http::Response::builder().status(303).header("location", "/busy");
        response.body(String::new()).expect("a response")
    });
    let service = counted(&layer, &Served::default());
    assert_eq!(statuses(&service, [request_of("192.0.2.1")]).await, [200]);
    let denied = send(&service, request_of("192.0.2.1")).await;
    assert_eq!(denied.status(), 303);
    assert_eq!((field(&denied, "ratelimit"), field(&denied, "retry-after")), (vec![], vec![]));
}

#[tokio::test]
async fn nested_layers_append_members_and_keep_the_first_of_other_fields() {
    let (limiter, _) = limiter();
    let inner = RateLimitLayer::new("inner", limit("1/1m")).limiter(limiter.clone());
    let outer = RateLimitLayer::new("outer", limit("9/1h")).limiter(limiter.clone()).key(Everyone);
    let service = outer.layer(counted(&inner, &Served::default()));
    for (status, r) in [(200, 0), (429, 0)] {
        let response = send(&service, request_of("192.0.2.1")).await;
        assert_eq!(response.status(), status);
        assert_eq!(field(&response, "ratelimit-policy"), [r#""inner";q=1;w=60"#, r#""outer";q=9;w=3600"#]);
        assert!(field(&response, "ratelimit")[0].starts_with(&format!(r#""inner";r={r}"#)));
        assert!(field(&response, "ratelimit")[1].starts_with(r#""outer";r="#));
    }
    let service = outer.fields(Fields::Legacy).layer(counted(&inner.fields(Fields::Legacy), &Served::default()));
    let response = send(&service, request_of("192.0.2.2")).await;
    assert_eq!(field(&response, "x-ratelimit-limit"), ["1"]);
    assert_eq!(field(&response, "x-ratelimit-remaining"), ["0"]);
}

#[tokio::test]
async fn without_fields_a_denial_has_retry_after_alone() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).fields(Fields::None);
    let service = counted(&layer, &Served::default());
    let names = |response: &http::Response<String>| {
        let names: Vec<_> = response.headers().keys().map(|name| name.as_str().to_owned()).collect();
        names
    };
    assert_eq!(names(&send(&service, request_of("192.0.2.1")).await), [""; 0]);
    assert_eq!(names(&send(&service, request_of("192.0.2.1")).await), ["content-type", "cache-control", "retry-after"]);
}

#[tokio::test]
async fn exempt_and_unlimited_requests_have_no_fields_and_no_permit() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).missing(Missing::Allow);
    let layer = layer.when(|parts| parts.uri.path() != "/200");
    let has_permit = |request: &http::Request<String>| request.extensions().get::<Allowed>().is_some();
    let service = layer.layer(service_fn(move |request: http::Request<String>| {
        let response = http::Response::new(has_permit(&request).to_string());
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    }));
    let of_unknown_peer = http::Request::builder().uri("/").body(String::new()).expect("a request");
    for request in [request("192.0.2.1:1", "/200", &[]), of_unknown_peer] {
        for _ in 0..2 {
            let response = service.clone().oneshot(request.clone()).await.expect("infallible");
            assert_eq!((response.status().as_u16(), &**response.body().get_ref()), (200, "false"));
            assert_eq!(response.headers().len(), 0);
        }
    }
    let limited = service.clone().oneshot(request_of("192.0.2.1")).await.expect("infallible");
    assert_eq!((limited.status().as_u16(), &**limited.body().get_ref()), (200, "true"));
}

#[tokio::test]
async fn own_answers_to_denials_keep_their_fields_and_get_the_others() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).denied(|parts, denied: &Denied| {
        let body = format!("{} of {}", parts.uri.path(), denied.name());
        let answer = http::Response::builder().status(420).header("retry-after", "7");
        answer.body(body).expect("an answer")
    });
    let service = counted(&layer, &Served::default());
    send(&service, request_of("192.0.2.1")).await;
    let denied = send(&service, request_of("192.0.2.1")).await;
    assert_eq!((denied.status().as_u16(), &**denied.body()), (420, "/ of api"));
    assert_eq!(field(&denied, "retry-after"), ["7"]);
    assert_eq!(field(&denied, "ratelimit"), [r#""api";r=0;t=60"#]);
}

#[tokio::test]
async fn failures_are_503_without_the_name_of_a_server() {
    for (policy, is_raised) in [(OnError::Raise, true), (OnError::Closed, false)] {
        let down = Limiter::builder().url("redis://127.0.0.1:1").build().expect("starts without its server");
        let layer = RateLimitLayer::new("api", limit("5/1m")).limiter(down).on_error(policy);
        let served = Served::default();
        let response = send(&counted(&layer, &served), request_of("192.0.2.1")).await;
        assert_eq!(response.status(), 503, "{policy:?}");
        assert!(response.body().contains("temporary-reduced-capacity"), "{}", response.body());
        assert!(!response.body().contains("127.0.0.1"), "{}", response.body());
        assert_eq!(field(&response, "retry-after").is_empty(), is_raised);
        assert_eq!(served.count(), 0);
        let custom = layer.denied(|_, _| http::Response::new("own".to_owned()));
        let response = send(&counted(&custom, &served), request_of("192.0.2.1")).await;
        let expected = if is_raised { (503, "") } else { (200, "own") };
        assert_eq!((response.status().as_u16(), &**response.body()), expected);
    }
}

#[tokio::test]
async fn an_open_policy_serves_without_fields() {
    let down = Limiter::builder().url("redis://127.0.0.1:1").build().expect("starts without its server");
    let layer = RateLimitLayer::new("api", limit("5/1m")).limiter(down).on_error(OnError::Open);
    let response = send(&counted(&layer, &Served::default()), request_of("192.0.2.1")).await;
    assert_eq!((response.status().as_u16(), response.headers().len()), (200, 0));
}

#[tokio::test]
async fn a_cost_above_the_limit_is_denied_without_a_time() {
    let (limiter, _) = limiter();
    let cost = |parts: &http::request::Parts| parts.headers["x-cost"].to_str().ok().and_then(|cost| cost.parse().ok());
    let cost = move |parts: &_| cost(parts).unwrap_or(u32::MAX);
    let layer = RateLimitLayer::new("api", limit("3/1m")).limiter(limiter).cost(cost);
    let service = counted(&layer, &Served::default());
    let denied = send(&service, request("192.0.2.1:1", "/", &[("x-cost", "4")])).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), [""; 0]);
    assert_eq!(field(&denied, "ratelimit"), [r#""api";r=3"#]);
    let free = send(&service, request("192.0.2.1:1", "/", &[("x-cost", "0")])).await;
    assert_eq!(field(&free, "ratelimit"), [r#""api";r=3;t=0"#]);
}

#[tokio::test]
async fn a_name_of_any_text_is_valid_in_the_fields() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("a \"b\" größe\n", limit("1/1m")).limiter(limiter);
    let service = counted(&layer, &Served::default());
    for _ in 0..2 {
        let response = send(&service, request_of("192.0.2.1")).await;
        assert_eq!(field(&response, "ratelimit-policy"), [r#""a \"b\" gr%C3%B6%C3%9Fe%0A";q=1;w=60"#]);
    }
}
