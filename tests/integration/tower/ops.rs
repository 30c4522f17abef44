//! The routes for operators.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use limiter_testkit::RedisServer;
use rate_limited::axum::ops;
use rate_limited::{KeyMatch, Limiter, Mode, Rule, RuleSet};
use tower::ServiceExt;

use super::limit;
use crate::deadlines::eventually;
use crate::support::builder_for;

/// The status, the type and the text of an answer.
async fn answer(app: &Router, path: &str, token: Option<&str>) -> (u16, String, String) {
    let mut request = Request::builder().uri(path);
    if let Some(token) = token {
        request = request.header("authorization", token);
    }
    let request = request.body(Body::empty()).expect("a request");
    let response = app.clone().oneshot(request).await.expect("infallible");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let field =
        |name: &str| headers.get(name).map_or(String::new(), |value| value.to_str().expect("a text").to_owned());
    if status != 404 && path != "/" {
        assert_eq!(field("cache-control"), "no-store");
    }
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, field("content-type"), String::from_utf8(body.to_vec()).expect("a text"))
}

#[tokio::test]
async fn ready_follows_the_store_and_names_no_server() {
    let mut server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("a server");
    let app: Router = Router::new().route("/", get(async || "ok")).merge(ops(&limiter).into_router());
    let patient: Router = ops(&limiter).ready_if(|_| true).into_router();
    let up = (200, "application/json".to_owned(), r#"{"ready":true,"state":"up"}"#.to_owned());
    assert_eq!(answer(&app, "/ready", None).await, up);
    assert_eq!((answer(&app, "/", None).await.0, answer(&app, "/metrics", None).await.0), (200, 404));
    assert_eq!(answer(&app, "/limits", None).await.0, 404, "without a function that permits requests");
    server.kill();
    eventually("not ready", async || answer(&app, "/ready", None).await.0 == 503).await;
    let (_, _, body) = answer(&app, "/ready", None).await;
    assert!(
        body.starts_with(r#"{"ready":false,"state":""#) && !body.contains("redis") && !body.contains('/'),
        "{body}"
    );
    assert_eq!(answer(&patient, "/ready", None).await.0, 200);
}

#[tokio::test]
async fn metrics_and_limits_are_routes_of_the_program() {
    let limiter = Limiter::memory();
    let customer = KeyMatch::parts([("user", "customer 42")]);
    let rule = Rule::new().limit(limit("5/10s")).overriding(customer, Rule::new().mode(Mode::Deny));
    limiter.set_rules(RuleSet::new().rule("ops:{user}", rule)).expect("valid");
    let app: Router = ops(&limiter)
        .metrics(|| "decisions 1\n".to_owned())
        .limits(|parts| parts.headers.get("authorization").is_some_and(|token| token == "secret"))
        .into_router();
    let metrics = answer(&app, "/metrics", None).await;
    assert_eq!((metrics.0, &*metrics.2), (200, "decisions 1\n"));
    assert!(metrics.1.starts_with("text/plain"), "{metrics:?}");
    for token in [None, Some("other")] {
        let (status, _, body) = answer(&app, "/limits", token).await;
        assert!(status == StatusCode::FORBIDDEN.as_u16() && !body.contains("5/10s"), "{body}");
    }
    let (status, _, body) = answer(&app, "/limits", Some("secret")).await;
    assert_eq!(status, 200);
    let line = body.lines().find(|line| line.starts_with(r#"{"rule":"ops:{user}","#)).expect("its line");
    assert!(line.contains(r#""limits":["5/10s"]"#) && line.contains(r#""origin":"runtime""#), "{line}");
    assert!(!body.contains("customer 42"), "{body}");
}
