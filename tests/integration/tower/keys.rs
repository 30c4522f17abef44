//! Keys of requests.

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use futures_util::FutureExt;
use http::{Request, StatusCode};
use rate_limited::tower::{
    ClientIp, Everyone, Extension, Header, MatchedPath, Method, Missing, PathParam, Peer, RateLimitLayer, RequestKey,
    key_async, key_fn,
};
use rate_limited::{Key, KeyMatch, Limiter, Mode, Rule, RuleSet};
use tower::{Layer, ServiceExt};

use super::{Served, counted, field, limit, limiter, request, request_of, send, statuses};

/// Returns whether the second of two requests is denied under a limit of one: whether both have one key.
async fn share(key: impl RequestKey, first: Request<String>, second: Request<String>) -> bool {
    let (limiter, _) = limiter();
    let service = counted(&RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).key(key), &Served::default());
    match statuses(&service, [first, second]).await[..] {
        [200, 429] => true,
        [200, 200] => false,
        ref other => panic!("{other:?}"),
    }
}

fn with_header(value: &'static str) -> Request<String> {
    request("192.0.2.1:1", "/", &[("x-api-key", value)])
}

#[derive(Clone)]
struct User {
    id: u64,
}

fn of_user(id: u64) -> Request<String> {
    let mut request = request_of("192.0.2.1");
    request.extensions_mut().insert(User { id });
    request
}

#[tokio::test]
async fn equal_keys_share_a_quota_and_others_do_not() {
    let ip = ClientIp::peer;
    assert!(share(ip(), request_of("192.0.2.1"), request_of("192.0.2.1")).await);
    assert!(!share(ip(), request_of("192.0.2.1"), request_of("192.0.2.2")).await);
    assert!(share(Everyone, request_of("192.0.2.1"), request_of("192.0.2.2")).await);
    let api_key = || Header::new("X-Api-Key");
    assert!(share(api_key(), with_header("a"), with_header("a")).await);
    assert!(!share(api_key(), with_header("a"), with_header("b")).await);
    let user = || Extension::new(|user: &User| user.id);
    assert!(share(user(), of_user(1), of_user(1)).await);
    assert!(!share(user(), of_user(1), of_user(2)).await);
    let mut post = request_of("192.0.2.1");
    *post.method_mut() = http::Method::POST;
    assert!(!share(Method, request_of("192.0.2.1"), post.clone()).await);
    assert!(share(Method, post.clone(), post).await);
    let path = || key_fn(|parts| Some(parts.uri.path().to_owned()));
    let to = |path: &str| request("192.0.2.1:1", path, &[]);
    assert!(share(path(), to("/200"), to("/200")).await);
    assert!(!share(path(), to("/200"), to("/")).await);
    let later = || {
        key_async(|parts| {
            let path = parts.uri.path().to_owned();
            async move {
                tokio::task::yield_now().await;
                Some(path)
            }
        })
    };
    assert!(share(later(), to("/200"), to("/200")).await);
    assert!(!share(later(), to("/200"), to("/")).await);
}

#[tokio::test]
async fn an_async_function_returns_any_value_with_a_text() {
    let by_number = || {
        key_async(|parts| {
            let number = parts.headers["x-api-key"].to_str().ok().and_then(|text| text.parse::<u16>().ok());
            std::future::ready(number)
        })
    };
    assert!(share(by_number(), with_header("7"), with_header("07")).await);
    assert!(!share(by_number(), with_header("7"), with_header("8")).await);
}

#[tokio::test]
async fn a_tuple_counts_by_all_its_pieces() {
    let key = || (ClientIp::peer(), Header::new("x-api-key"));
    let of = |peer, value: &'static str| request(peer, "/", &[("x-api-key", value)]);
    assert!(share(key(), of("192.0.2.1:1", "a"), of("192.0.2.1:2", "a")).await);
    assert!(!share(key(), of("192.0.2.1:1", "a"), of("192.0.2.2:1", "a")).await);
    assert!(!share(key(), of("192.0.2.1:1", "a"), of("192.0.2.1:1", "b")).await);
}

#[tokio::test]
async fn an_alternative_counts_where_the_first_key_finds_nothing() {
    let key = || Header::new("x-api-key").or(ClientIp::peer());
    assert!(share(key(), with_header("a"), with_header("a")).await);
    assert!(share(key(), request_of("192.0.2.1"), request_of("192.0.2.1")).await);
    assert!(!share(key(), request_of("192.0.2.1"), with_header("a")).await);
    // The header's text is another one than the address's.
    assert!(!share(key(), request_of("192.0.2.1"), with_header("192.0.2.1")).await);
    let nested = || (Method, key_async(|_| async { None::<String> }).or(Header::new("x-api-key")).or(Everyone));
    assert!(share(nested(), with_header("a"), with_header("a")).await);
    assert!(!share(nested(), with_header("a"), with_header("b")).await);
    assert!(share(nested(), request_of("192.0.2.1"), request_of("192.0.2.2")).await);
}

#[tokio::test]
async fn equal_results_of_two_functions_are_two_keys() {
    let is_get = |parts: &http::request::Parts| parts.method == http::Method::GET;
    let key = key_fn(move |parts| is_get(parts).then_some(1)).or(key_fn(|_| Some(1)));
    let mut post = request_of("192.0.2.1");
    *post.method_mut() = http::Method::POST;
    assert!(!share(key, request_of("192.0.2.1"), post).await);
}

/// A client chooses the value of a header. So it must not equal a value that another key found.
#[tokio::test]
async fn a_header_has_no_key_of_another_piece_whatever_its_name() {
    let address = || request_of("192.0.2.9");
    let with = |name: &'static str, value: &str| request("192.0.2.1:1", "/", &[(name, value)]);
    let admin = || key_fn(|_| Some("admin"));
    let ip = || Header::new("ip");
    assert!(!share(ip().or(ClientIp::peer()), with("ip", "192.0.2.9"), address()).await);
    let real_ip = |value| request("10.0.0.1:1", "/", &[("x-real-ip", value)]);
    let either = ClientIp::header("x-real-ip").or(ip());
    assert!(!share(either, real_ip("192.0.2.9"), request("10.0.0.1:1", "/", &[("ip", "192.0.2.9")])).await);
    assert!(!share((ip(), Everyone).or(ClientIp::peer()), with("ip", "192.0.2.9"), address()).await);
    assert!(!share(Header::new("key").or(admin()), with("key", "admin"), address()).await);
    let nested = key_fn(|_| None::<u8>).or(admin());
    assert!(!share(Header::new("key2").or(nested), with("key2", "admin"), address()).await);
    let user = Extension::new(|user: &User| user.id);
    assert!(!share(Header::new("extension").or(user), with("extension", "1"), of_user(1)).await);
    assert!(!share(Header::new("method").or(Method), with("method", "GET"), address()).await);
}

#[tokio::test]
async fn headers_of_several_lines_or_without_text_are_missing() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("9/1m")).limiter(limiter).key(Header::new("x-api-key"));
    let service = counted(&layer, &Served::default());
    let mut no_utf8 = request_of("192.0.2.1");
    let value = http::HeaderValue::from_bytes(&[0xff]).expect("a value");
    no_utf8.headers_mut().insert("x-api-key", value);
    let several = request("192.0.2.1:1", "/", &[("x-api-key", "a"), ("x-api-key", "b")]);
    let requests = [request_of("192.0.2.1"), with_header(""), several, no_utf8, with_header("größe")];
    assert_eq!(statuses(&service, requests).await, [400, 400, 400, 400, 200]);
}

#[tokio::test]
async fn requests_without_their_key_get_400_pass_or_share_a_quota() {
    let unknown = || Request::new(String::new());
    for (missing, expected) in
        [(Missing::Deny, [400, 400]), (Missing::Allow, [200, 200]), (Missing::Shared, [200, 429])]
    {
        let (limiter, _) = limiter();
        let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).missing(missing);
        let served = Served::default();
        let service = counted(&layer, &served);
        assert_eq!(statuses(&service, [unknown(), unknown()]).await, expected, "{missing:?}");
        let allowed: u32 = expected.iter().map(|status| u32::from(*status == 200)).sum();
        assert_eq!(served.count(), allowed);
        // The peer of a Unix socket has no address either.
        let mut unix = unknown();
        unix.extensions_mut().insert(Peer::unix());
        assert_eq!(statuses(&service, [unix]).await, [expected[1]], "{missing:?}");
    }
}

#[tokio::test]
async fn a_request_without_its_key_shares_no_quota_with_everyone() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).missing(Missing::Shared);
    let (by_address, everyone) =
        (counted(&layer, &Served::default()), counted(&layer.clone().key(Everyone), &Served::default()));
    assert_eq!(statuses(&by_address, [Request::new(String::new())]).await, [200]);
    assert_eq!(statuses(&everyone, [Request::new(String::new())]).await, [200]);
}

#[tokio::test]
async fn a_400_explains_itself_and_has_no_fields() {
    let (limiter, _) = limiter();
    let service = counted(&RateLimitLayer::new("api", limit("1/1m")).limiter(limiter), &Served::default());
    let response = send(&service, Request::new(String::new())).await;
    assert_eq!(field(&response, "content-type"), ["application/problem+json"]);
    assert!(response.body().contains("lacks the key"), "{}", response.body());
    assert_eq!(field(&response, "ratelimit"), [""; 0]);
}

#[tokio::test]
async fn a_panic_of_a_key_function_takes_no_permit() {
    let (limiter, _) = limiter();
    let key = key_fn(|parts| -> Option<u8> {
        assert_ne!(parts.uri.path(), "/500", "the function panics");
        Some(1)
    });
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter.clone());
    let service = counted(&layer.clone().key(key), &Served::default());
    let later = key_async(|parts| {
        let path = parts.uri.path().to_owned();
        async move {
            assert_ne!(path, "/500", "the future panics");
            Some("1".to_owned())
        }
    });
    let async_service = counted(&layer.key(later), &Served::default());
    let failing = || request("192.0.2.1:1", "/500", &[]);
    assert!(AssertUnwindSafe(async { send(&service, failing()).await }).catch_unwind().await.is_err());
    assert!(AssertUnwindSafe(async { send(&async_service, failing()).await }).catch_unwind().await.is_err());
    // Both functions return the same key.
    assert_eq!(statuses(&service, [request_of("192.0.2.1")]).await, [200]);
    assert_eq!(statuses(&async_service, [request_of("192.0.2.1")]).await, [429]);
}

#[tokio::test]
async fn axum_gives_the_route_and_the_peer() {
    use axum::extract::ConnectInfo;

    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).key((MatchedPath, ClientIp::peer()));
    let routes = Router::new().route("/users/{id}", get(|| async { "user" })).route("/", get(|| async { "root" }));
    let app = routes.route_layer(layer);
    let send = |path: &str, peer: &str| {
        let peer: std::net::SocketAddr = peer.parse().expect("an address");
        let request = Request::builder().uri(path).extension(ConnectInfo(peer));
        let request = request.body(Body::empty()).expect("a request");
        let app = app.clone();
        async move { app.oneshot(request).await.expect("infallible").status().as_u16() }
    };
    assert_eq!(send("/users/1", "192.0.2.1:1").await, 200);
    assert_eq!(send("/users/2", "192.0.2.1:2").await, 429, "the route is the same");
    assert_eq!(send("/", "192.0.2.1:1").await, 200);
    assert_eq!(send("/users/1", "192.0.2.2:1").await, 200);
    assert_eq!(send("/nowhere", "192.0.2.1:1").await, 404);
}

/// A layer can be made from a clone of another one.
#[tokio::test]
async fn clones_of_a_layer_and_of_its_services_count_together() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("3/1m")).limiter(limiter);
    let served = Served::default();
    let service = counted(&layer, &served);
    let services = [service.clone(), service, counted(&layer.clone(), &served), counted(&layer, &served)];
    let mut allowed = 0;
    for service in &services {
        allowed += u32::from(send(service, request_of("192.0.2.1")).await.status() == 200);
    }
    assert_eq!((allowed, served.count()), (3, 3));
    let buffered = tower::util::BoxCloneService::new(layer.layer(services[0].clone()));
    assert_eq!(buffered.oneshot(request_of("192.0.2.1")).await.expect("infallible").status(), 429);
}

#[test]
#[should_panic(expected = "`key` must have at most 1000 forms, got 1024: use fewer alternatives")]
fn a_key_of_too_many_alternatives_is_refused_when_it_is_set() {
    let four = || Header::new("a").or(Header::new("b")).or(Header::new("c")).or(Header::new("d"));
    let _ = RateLimitLayer::new("forms", limit("1/1m")).key((four(), four(), four(), four(), four()));
}

/// A method is the client's text: 40 invented ones gave 40 fresh quotas.
#[tokio::test]
async fn methods_that_are_not_standard_count_together_and_head_counts_as_get() {
    let of = |method: &str| {
        let mut request = request_of("192.0.2.1");
        *request.method_mut() = method.parse().expect("a method");
        request
    };
    assert!(share(Method, of("GET"), of("HEAD")).await);
    for other in ["PROPFIND", "get", "other", "X1"] {
        assert!(share(Method, of("ANYTHING"), of(other)).await, "{other}");
        assert!(!share(Method, of("GET"), of(other)).await, "{other}");
    }
    let standard = ["CONNECT", "DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
    for (index, method) in standard.into_iter().enumerate() {
        let next = standard[(index + 1) % standard.len()];
        assert!(!share(Method, of(method), of(next)).await, "{method}");
    }
}

fn tenants(limiter: Limiter, missing: Missing) -> Router {
    let layer = RateLimitLayer::new("tenants", limit("2/1m")).limiter(limiter).missing(missing);
    let handler = get(|| async { StatusCode::NO_CONTENT });
    let nested = Router::new().route("/{tenant}/data/{id}", handler.clone());
    let routes = Router::new().route("/{tenant}/data", handler.clone()).route("/health", handler).nest("/v1", nested);
    routes.route_layer(layer.key(PathParam::new("tenant")))
}

async fn statuses_of(app: &Router, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        let request = Request::get(*path).body(Body::empty()).expect("a request");
        statuses.push(app.clone().oneshot(request).await.expect("infallible").status().as_u16());
    }
    statuses
}

/// A key of `uri.path()` counts `/acme` and `/%61cme` apart, although the handler reads one tenant.
#[tokio::test]
async fn a_parameter_of_the_path_counts_as_the_handler_reads_it() {
    let app = tenants(limiter().0, Missing::Deny);
    let paths = ["/acme/data", "/%61cme/data", "/a%63me/data", "/v1/acm%65/data/7"];
    assert_eq!(statuses_of(&app, &paths).await, [204, 204, 429, 429]);
    // It is decoded once: this tenant's name is `%61cme`. Case and encoded slashes make other names.
    assert_eq!(statuses_of(&app, &["/%2561cme/data", "/Acme/data", "/acme%2f/data"]).await, [204; 3]);
    let key = |tenant: &str| Key::new("tenants").text(":tenant:").part(tenant);
    let (limiter, _) = limiter();
    statuses_of(&tenants(limiter.clone(), Missing::Deny), &["/%2561cme/data"]).await;
    assert_eq!(limiter.peek(&key("%61cme"), &limit("2/1m")).await.expect("decides").remaining(), 1);
    assert_eq!(limiter.peek(&key("acme"), &limit("2/1m")).await.expect("decides").remaining(), 2);
}

#[tokio::test]
async fn parameters_that_are_no_text_share_a_quota_and_are_never_exempt() {
    for missing in [Missing::Deny, Missing::Allow, Missing::Shared] {
        let app = tenants(limiter().0, missing);
        assert_eq!(statuses_of(&app, &["/%ff/data", "/a%fe/data", "/%c3/data"]).await, [204, 204, 429], "{missing:?}");
        assert_eq!(statuses_of(&app, &["/acme/data"]).await, [204]);
        let lacks = if missing == Missing::Deny { 400 } else { 204 };
        assert_eq!(statuses_of(&app, &["/health"]).await, [lacks], "{missing:?}");
    }
}

#[tokio::test]
async fn names_of_parameters_are_parts_of_overrides() {
    let (limiter, _) = limiter();
    let app = tenants(limiter.clone(), Missing::Deny);
    assert_eq!(statuses_of(&app, &["/acme/data"]).await, [204]);
    let deny = Rule::new().mode(Mode::Deny);
    let rule = Rule::new().overriding(KeyMatch::parts([("tenant", "acme")]), deny);
    limiter.set_rules(RuleSet::new().rule("tenants", rule)).expect("valid");
    assert_eq!(statuses_of(&app, &["/%61cme/data", "/other/data"]).await, [429, 204]);
}

#[test]
fn names_that_no_parameter_has_are_rejected() {
    for name in ["", "{tenant}", "*rest", ":tenant", "a/b"] {
        assert!(std::panic::catch_unwind(|| PathParam::new(name)).is_err(), "{name}");
    }
}

/// Outside of the routing the parameters are unknown.
#[tokio::test]
async fn a_layer_before_the_routing_finds_no_parameter() {
    let layer = RateLimitLayer::new("early", limit("2/1m")).limiter(limiter().0).key(PathParam::new("tenant"));
    let app = Router::new().route("/{tenant}/data", get(|| async {}));
    let request = Request::get("/acme/data").body(Body::empty()).expect("a request");
    assert_eq!(layer.layer(app).oneshot(request).await.expect("infallible").status(), 400);
}
