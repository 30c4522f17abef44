//! A dashboard on a server of its own, requests to it, and limiters that have written to the server.

use axum::Router;
use axum::body::{Body, BodyDataStream, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use limiter_dashboard::Dashboard;
use limiter_testkit::{LiveLimiters, RedisServer};
use rate_limited::Limiter;
use serde_json::Value;
use tower::ServiceExt;

pub(crate) const TOKEN: &str = "7f1d8a02c7b94e35";

/// A key and a host that must not be seen without the token.
pub(crate) const SECRET_KEY: &str = "user:@secret-customer";
pub(crate) const SECRET_HOST: &str = "secret-host";

/// An answer with its body.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Asserts that the request had a result, and returns it.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        self.json()
    }
}

/// Returns a limiter that is not listed.
pub(crate) async fn limiter(server: &RedisServer) -> Limiter {
    Limiter::builder().url(server.url()).presence(false).connect().await.expect("a server")
}

/// Returns a dashboard with a token and an operator's URL.
pub(crate) async fn dashboard(server: &RedisServer) -> Dashboard {
    Dashboard::new(limiter(server).await).token(TOKEN).operator(server.url())
}

pub(crate) async fn router(server: &RedisServer) -> Router {
    dashboard(server).await.router().expect("a router")
}

/// Sends a request with these header fields. `Host` is a loopback address, if they have none.
pub(crate) async fn send(
    router: &Router,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: impl Into<Body>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if !fields.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:8088");
    }
    request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = router.clone().oneshot(request.body(body.into()).expect("a request")).await.expect("an answer");
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, 16 << 20).await.expect("a body");
    Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).expect("text") }
}

pub(crate) fn bearer() -> String {
    format!("Bearer {TOKEN}")
}

/// Reads with the token.
pub(crate) async fn get(router: &Router, path: &str) -> Answer {
    send(router, "GET", path, &[("authorization", &bearer())], Body::empty()).await
}

/// Writes with the token, as the page does.
pub(crate) async fn post(router: &Router, path: &str, body: &Value) -> Answer {
    let fields =
        [("authorization", &*bearer()), ("content-type", "application/json"), ("sec-fetch-site", "same-origin")];
    send(router, "POST", path, &fields, body.to_string()).await
}

/// Opens the stream of events, and returns its first parts until a state.
pub(crate) async fn first_state(router: &Router, fields: &[(&str, &str)]) -> (Value, Value) {
    let (_stream, session, state) = open_stream(router, fields).await.expect("a place");
    (session, state)
}

/// Opens the stream of events. Returns it with the session and the first state.
pub(crate) async fn open_stream(
    router: &Router,
    fields: &[(&str, &str)],
) -> Result<(BodyDataStream, Value, Value), StatusCode> {
    let mut request = Request::builder().uri("/api/events").header("host", "localhost");
    request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = router.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("an answer");
    if response.status() != StatusCode::OK {
        return Err(response.status());
    }
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response.into_body().into_data_stream();
    let mut event = async |name: &str| -> Value {
        let part = next(&mut stream).await.expect("an event");
        let text = part.strip_prefix(&format!("event: {name}\ndata: ")).expect("the name").trim_end().to_owned();
        serde_json::from_str(&text).expect("JSON")
    };
    let (session, state) = (event("session").await, event("state").await);
    Ok((stream, session, state))
}

/// Returns the next part of a stream.
pub(crate) async fn next(stream: &mut BodyDataStream) -> Option<String> {
    let part =
        std::future::poll_fn(|context| futures_core::Stream::poll_next(std::pin::Pin::new(&mut *stream), context))
            .await;
    part.map(|part| String::from_utf8(part.expect("no error").to_vec()).expect("text"))
}

/// Writes a heartbeat and activity as a limiter does, with a key and a host that are private.
pub(crate) fn write_fleet(server: &RedisServer, versions: &[&str]) {
    let inventory = r#"{"rule":"user","keys":["user:{id}"],"limits":["5/h"],"mode":"enforce","origin":"attribute"}"#;
    let member = |(number, version): (usize, &&str)| {
        format!("{number:016x} {SECRET_HOST} {} 0.1.0 951782399000 {version} up", 10 + number)
    };
    let limiters = LiveLimiters::on(server);
    limiters.beat_as(inventory, &versions.iter().enumerate().map(member).collect::<Vec<_>>());
    limiters.add_activity(&format!(
        "1 0000000000000001 {SECRET_HOST} 10 checkout\nr user 1000 a100+12 d40+30\nd 0 {SECRET_KEY} 30+20 0\n"
    ));
}
