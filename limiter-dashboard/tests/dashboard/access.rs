//! The requests that are refused: by tokens, hosts, other sites and bodies.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use limiter_testkit::RedisServer;
use serde_json::json;
use tower::ServiceExt;

use crate::support::{TOKEN, bearer, dashboard, get, post, router, send};

/// Each route that needs the token.
const PRIVATE: [(&str, &str); 13] = [
    ("GET", "/api/limiters"),
    ("GET", "/api/rules"),
    ("GET", "/api/rules/a"),
    ("POST", "/api/key"),
    ("GET", "/api/text"),
    ("POST", "/api/text/draft"),
    ("POST", "/api/text/check"),
    ("POST", "/api/text/publish"),
    ("POST", "/api/text/rollback"),
    ("GET", "/api/history"),
    ("GET", "/api/history/0"),
    ("GET", "/api/history/1"),
    ("GET", "/api/history/x"),
];

#[tokio::test]
async fn each_private_route_needs_the_token() {
    let server = RedisServer::start();
    let router = router(&server).await;
    for (method, path) in PRIVATE {
        let fields = [("content-type", "application/json")];
        let answer = send(&router, method, path, &fields, "{}").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
    for place in ["/api/text?token=7f1d8a02c7b94e35", "/api/text?access_token=7f1d8a02c7b94e35"] {
        let fields = [("cookie", "token=7f1d8a02c7b94e35")];
        assert_eq!(send(&router, "GET", place, &fields, Body::empty()).await.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(get(&router, "/api/text").await.status, StatusCode::OK);
    let without_token = crate::support::limiter(&server).await;
    let router = limiter_dashboard::Dashboard::new(without_token).router().expect("a router");
    assert_eq!(get(&router, "/api/text").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(send(&router, "GET", "/api/text", &[], Body::empty()).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn after_ten_wrong_tokens_an_address_gets_429() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let status = async |address: &str, token: &str| {
        let request = Request::builder().uri("/api/text").header("host", "localhost").header("authorization", token);
        let mut request = request.body(Body::empty()).expect("a request");
        let address: SocketAddr = address.parse().expect("an address");
        request.extensions_mut().insert(ConnectInfo(address));
        let answer = router.clone().oneshot(request).await.expect("an answer");
        (answer.status(), answer.headers().contains_key("retry-after"))
    };
    for number in 0..10 {
        let wrong = format!("Bearer 7f1d8a02c7b94e3{number}x");
        assert_eq!(status("192.0.2.1:1", &wrong).await, (StatusCode::UNAUTHORIZED, false));
    }
    assert_eq!(status("192.0.2.1:2", &bearer()).await, (StatusCode::TOO_MANY_REQUESTS, true));
    assert_eq!(status("192.0.2.2:1", &bearer()).await, (StatusCode::OK, false));
    // Without an address all clients are one.
    for _ in 0..10 {
        let fields = [("authorization", "Bearer wrong")];
        assert_eq!(send(&router, "GET", "/api/text", &fields, Body::empty()).await.status, StatusCode::UNAUTHORIZED);
    }
    let refused = get(&router, "/api/text").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.text.contains("try again in "), "{}", refused.text);
}

#[tokio::test]
async fn a_foreign_host_gets_403_and_a_named_one_does_not() {
    let server = RedisServer::start();
    let router = dashboard(&server).await.hosts(["limits.example.com"]).router().expect("a router");
    let status =
        async |fields: &[(&str, &str)], path: &str| send(&router, "GET", path, fields, Body::empty()).await.status;
    for path in ["/", "/dashboard.js", "/api/events", "/api/text", "/nothing"] {
        assert_eq!(status(&[("host", "evil.example.com")], path).await, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(status(&[("host", "localhost"), ("host", "evil.example.com")], path).await, StatusCode::FORBIDDEN);
    }
    for host in ["localhost:8088", "127.0.0.1", "[::1]:1", "limits.example.com:443"] {
        assert_eq!(status(&[("host", host)], "/").await, StatusCode::OK, "{host}");
    }
    // The authority of HTTP/2, and that of a proxy's request.
    assert_eq!(status(&[], "http://evil.example.com/").await, StatusCode::FORBIDDEN);
    assert_eq!(status(&[], "http://localhost/").await, StatusCode::OK);
    let request = Request::builder().uri("/").body(Body::empty()).expect("a request");
    let none = router.clone().oneshot(request).await.expect("an answer");
    assert_eq!(none.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn another_site_may_only_open_the_page() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let bearer = bearer();
    for site in ["cross-site", "same-site"] {
        let fields = [("authorization", &*bearer), ("sec-fetch-site", site)];
        assert_eq!(send(&router, "GET", "/api/text", &fields, Body::empty()).await.status, StatusCode::FORBIDDEN);
        let fields = [("authorization", &*bearer), ("sec-fetch-site", site), ("content-type", "application/json")];
        let answer = send(&router, "POST", "/api/text/publish", &fields, "{}").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        let link = [("sec-fetch-site", site), ("sec-fetch-mode", "navigate")];
        assert_eq!(send(&router, "GET", "/", &link, Body::empty()).await.status, StatusCode::OK);
        assert_eq!(send(&router, "POST", "/", &link, Body::empty()).await.status, StatusCode::FORBIDDEN);
    }
    let fields = [("authorization", &*bearer), ("sec-fetch-site", "none"), ("content-type", "application/json")];
    assert_eq!(send(&router, "POST", "/api/text/publish", &fields, "{}").await.status, StatusCode::FORBIDDEN);
    for site in ["same-origin", "none"] {
        let fields = [("authorization", &*bearer), ("sec-fetch-site", site)];
        assert_eq!(send(&router, "GET", "/api/text", &fields, Body::empty()).await.status, StatusCode::OK);
    }
    // There is no CORS.
    let fields = [("origin", "https://evil.example.com"), ("access-control-request-method", "POST")];
    let answer = send(&router, "OPTIONS", "/api/text/publish", &fields, Body::empty()).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")));
}

#[tokio::test]
async fn each_answer_has_the_fields_of_security() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";
    for (path, host) in [
        ("/", "localhost"),
        ("/uplot.js", "localhost"),
        ("/api/text", "localhost"),
        ("/no", "localhost"),
        ("/", "evil"),
    ] {
        for method in ["GET", "DELETE"] {
            let answer = send(&router, method, path, &[("host", host)], Body::empty()).await;
            for (field, value) in [
                ("content-security-policy", policy),
                ("x-content-type-options", "nosniff"),
                ("referrer-policy", "no-referrer"),
                ("cache-control", "no-store"),
            ] {
                let values: Vec<_> = answer.headers.get_all(field).iter().collect();
                assert_eq!(values, [value], "{method} {path} {host}");
            }
        }
    }
}

#[tokio::test]
async fn a_body_must_be_json_of_a_bounded_size() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let bearer = bearer();
    let status = async |kind: &str, body: String| {
        let fields = [("authorization", &*bearer), ("content-type", kind)];
        send(&router, "POST", "/api/text/publish", &fields, body).await.status
    };
    let change = json!({ "toml": "#", "if_version": 0, "who": "", "why": "" }).to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""] {
        assert_eq!(status(kind, change.clone()).await, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    for body in ["", "[]", "1", "{", "\"a\""] {
        assert_eq!(status("application/json", body.to_owned()).await, StatusCode::BAD_REQUEST, "{body}");
    }
    let large = json!({ "toml": "#".repeat(4 << 20), "if_version": 0 }).to_string();
    assert_eq!(status("application/json", large).await, StatusCode::PAYLOAD_TOO_LARGE);
    let long = json!({ "toml": "#".repeat((1 << 20) + 1), "if_version": 0 }).to_string();
    assert_eq!(status("application/json", long).await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(status("application/json; charset=utf-8", change).await, StatusCode::OK);
    // Without the token no body is read.
    let fields = [("content-type", "application/json")];
    let answer = send(&router, "POST", "/api/key", &fields, "#".repeat(4 << 20)).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    for body in [json!({ "key": 1 }), json!({ "key": "a", "parts": "b" }), json!({ "key": "a b" })] {
        let status = post(&router, "/api/key", &body).await.status;
        assert!(status.is_client_error(), "{body}: {status}");
    }
}

#[test]
fn debug_forms_contain_neither_token_nor_password() {
    let limiter = rate_limited::Limiter::builder().url("redis://127.0.0.1:1").build().expect("a limiter");
    let dashboard =
        limiter_dashboard::Dashboard::new(limiter).token(TOKEN).operator("redis://ann:pass-word@127.0.0.1:1");
    let text = format!("{dashboard:?}");
    assert!(!text.contains(TOKEN) && !text.contains("pass-word"), "{text}");
}
