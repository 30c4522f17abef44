//! Tests of the whole service, in this process and in memory.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use rate_limited::{Builder, HealthState, Limiter, ManualClock, RuleSet};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tower::ServiceExt;

use crate::denials::Denials;
use crate::handlers;

const LIMITS: &str = r#"
strict = true

[rules.quote]
limit = "2/10s"
on_error = "open"
override = [{ match = { user = "alice" }, limit = "4/10s" }]

[rules.order]
limit = "2/10s"
on_error = "closed"

[rules.order-all]
limit = "3/10s"
on_error = "closed"

[rules.login]
limit = "2/10s"
on_error = "closed"

[rules.report]
limit = "12/10s"
on_error = "open"
"#;

/// A service on a clock that the test moves.
struct Service {
    limiter: Limiter,
    router: Router,
    clock: ManualClock,
    directory: TempDir,
}

#[derive(Debug)]
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Service {
    fn new() -> Self {
        let clock = ManualClock::new();
        Self::with(Limiter::builder().clock(clock.clone()), clock)
    }

    /// Starts a service whose store cannot be reached.
    fn without_store() -> Self {
        Self::with(Limiter::builder().url("redis://127.0.0.1:1"), ManualClock::new())
    }

    fn with(builder: Builder, clock: ManualClock) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("limits.toml"), LIMITS).expect("a file of limits");
        let denials = Arc::new(Denials::default());
        let limiter = crate::limiter(builder, &directory.path().join("limits.toml"), &denials).expect("a limiter");
        Self { limiter, router: handlers::router(denials), clock, directory }
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, Body::empty()).await
    }

    async fn order(&self, user: &str) -> Reply {
        self.send(Method::POST, &format!("/order/{user}"), Body::empty()).await
    }

    async fn login(&self, account: &str, password: &str) -> Reply {
        self.send(Method::POST, "/login", json!({ "account": account, "password": password }).to_string()).await
    }

    async fn send(&self, method: Method, path: &str, body: impl Into<Body>) -> Reply {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(body.into()).expect("a request");
        let reply = self.limiter.scope(self.router.clone().oneshot(request)).await;
        let (parts, body) = reply.expect("infallible").into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body");
        let body = serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into());
        Reply { status: parts.status, headers: parts.headers, body }
    }

    fn limits_path(&self) -> PathBuf {
        self.directory.path().join("limits.toml")
    }

    /// Replaces a part of the file of limits, and waits until the service has read the file.
    async fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.limits_path()).expect("the file of limits");
        assert!(text.contains(from), "{from}");
        let before = self.file_state();
        fs::write(self.limits_path(), text.replacen(from, to, 1)).expect("the file of limits");
        until(|| self.file_state() != before).await;
    }

    /// Returns what the service has read of the file: its rules, and its mistakes.
    fn file_state(&self) -> String {
        format!("{:?} {:?}", self.limiter.rules(), self.limiter.rules_file_error())
    }

    /// Returns a rule as the list of limits shows it.
    async fn listed(&self, name: &str) -> Value {
        let list = self.get("/admin/limits").await.body;
        let rules = list.as_array().expect("a list");
        rules.iter().find(|rule| rule["name"] == name).expect("the rule").clone()
    }
}

/// Waits until a condition holds.
async fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it never happened");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// Returns limit, remaining and reset of the headers.
    fn limit_headers(&self) -> [Option<&str>; 3] {
        ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"].map(|name| self.header(name))
    }
}

#[tokio::test]
async fn quotes_are_limited_for_each_user() {
    let service = Service::new();
    let first = service.get("/quote/bob").await;
    assert_eq!((first.status, first.limit_headers()), (StatusCode::OK, [Some("2"), Some("1"), Some("10")]));
    assert_eq!(service.get("/quote/bob").await.limit_headers(), [Some("2"), Some("0"), Some("10")]);
    assert_eq!(service.get("/quote/bob").await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(service.get("/quote/carol").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_denial_states_whole_seconds_after_which_a_call_is_allowed() {
    let service = Service::new();
    service.get("/quote/bob").await;
    service.get("/quote/bob").await;
    service.clock.advance(Duration::from_millis(2_500));
    let denied = service.get("/quote/bob").await;
    assert_eq!(denied.header("retry-after"), Some("8"));
    let body = json!({ "error": "rate limited", "rule": "quote", "limit": "2/10s", "retry_after": 8 });
    assert_eq!(denied.body, body);
    service.clock.advance(Duration::from_millis(7_499));
    assert_eq!(service.get("/quote/bob").await.header("retry-after"), Some("1"));
    service.clock.advance(Duration::from_millis(1));
    assert_eq!(service.get("/quote/bob").await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_order_that_one_rule_denies_takes_nothing_of_the_other() {
    let service = Service::new();
    assert_eq!(service.order("bob").await.status, StatusCode::CREATED);
    assert_eq!(service.order("bob").await.status, StatusCode::CREATED);
    let by_user = service.order("bob").await;
    assert_eq!((by_user.status, &by_user.body["rule"]), (StatusCode::TOO_MANY_REQUESTS, &json!("order")));
    let last = service.order("carol").await;
    assert_eq!((last.status, last.limit_headers()), (StatusCode::CREATED, [Some("3"), Some("0"), Some("10")]));
    let by_all = service.order("carol").await;
    assert_eq!((by_all.status, &by_all.body["rule"]), (StatusCode::TOO_MANY_REQUESTS, &json!("order-all")));
}

#[tokio::test]
async fn only_failed_logins_count() {
    let service = Service::new();
    for _ in 0..5 {
        let reply = service.login("bob", "open sesame").await;
        assert_eq!((reply.status, reply.header("ratelimit-remaining")), (StatusCode::OK, Some("2")));
    }
    for remaining in ["1", "0"] {
        let reply = service.login("bob", "guess").await;
        assert_eq!((reply.status, reply.header("ratelimit-remaining")), (StatusCode::UNAUTHORIZED, Some(remaining)));
    }
    assert_eq!(service.login("bob", "open sesame").await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(service.login("carol", "open sesame").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_report_costs_as_many_permits_as_it_has_sections() {
    let service = Service::new();
    let reply = service.get("/report/ab").await;
    assert_eq!(reply.body, json!({ "sections": ["section a", "section b"] }));
    assert_eq!(reply.limit_headers(), [Some("12"), Some("10"), Some("10")]);
    assert_eq!(service.get("/report/ab").await.header("ratelimit-remaining"), Some("8"));
    // There are permits for its sections, but not for the ten that it takes first.
    assert_eq!(service.get("/report/ab").await.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_failing_limiter_allows_quotes_and_refuses_orders() {
    let service = Service::without_store();
    let quote = service.get("/quote/bob").await;
    assert_eq!((quote.status, quote.limit_headers()), (StatusCode::OK, [None; 3]));
    let order = service.order("bob").await;
    assert_eq!((order.status, order.body), (StatusCode::SERVICE_UNAVAILABLE, json!({ "error": "unavailable" })));
}

#[tokio::test]
async fn readiness_is_the_state_of_the_store_and_liveness_is_not() {
    let service = Service::new();
    let ready = service.get("/readyz").await;
    assert_eq!((ready.status, ready.body), (StatusCode::OK, json!({ "store": "up" })));

    let service = Service::without_store();
    until(|| service.limiter.health().state != HealthState::Connecting).await;
    let ready = service.get("/readyz").await;
    assert_eq!((ready.status, ready.body), (StatusCode::SERVICE_UNAVAILABLE, json!({ "store": "down" })));
    assert_eq!(service.get("/healthz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_single_user_may_have_a_limit_of_its_own() {
    let service = Service::new();
    for remaining in ["3", "2", "1", "0"] {
        assert_eq!(service.get("/quote/alice").await.header("ratelimit-remaining"), Some(remaining));
    }
    assert_eq!(service.get("/quote/alice").await.body["limit"], "4/10s");
}

#[tokio::test]
async fn a_blocked_user_gets_no_time_to_retry_after() {
    let service = Service::new();
    let rules: RuleSet =
        "rules.quote.override = [{ match = { user = \"eve\" }, mode = \"deny\" }]".parse().expect("rules");
    service.limiter.set_rules(rules).expect("rules");
    let blocked = service.get("/quote/eve").await;
    assert_eq!((blocked.status, blocked.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, None));
    assert_eq!(service.get("/quote/bob").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_changed_file_takes_effect_while_the_service_runs_and_counts_go_on() {
    let service = Service::new();
    service.get("/quote/bob").await;
    service.get("/quote/bob").await;
    service.edit("2/10s", "3/10s").await;
    assert_eq!(service.get("/quote/bob").await.limit_headers(), [Some("3"), Some("0"), Some("10")]);
    assert_eq!(service.get("/quote/bob").await.status, StatusCode::TOO_MANY_REQUESTS);
    service.edit("on_error = \"open\"", "on_error = \"open\"\nmode = \"off\"").await;
    let unlimited = service.get("/quote/bob").await;
    assert_eq!((unlimited.status, unlimited.limit_headers()), (StatusCode::OK, [None; 3]));
}

#[tokio::test]
async fn a_broken_file_keeps_the_limits_and_is_one_error_with_its_line() {
    let service = Service::new();
    service.edit("2/10s", "2/10parsecs").await;
    service.get("/quote/bob").await;
    assert_eq!(service.get("/quote/bob").await.limit_headers(), [Some("2"), Some("0"), Some("10")]);
    let error = service.limiter.rules_file_error().expect("an error").to_string();
    assert!(error.contains("line 5, column 9: ") && error.contains("2/10parsecs"), "{error}");
    assert_eq!(service.limiter.rules_file_errors(), 1);

    service.edit("2/10parsecs", "5/10s").await;
    assert_eq!(service.get("/quote/bob").await.header("ratelimit-limit"), Some("5"));
    fs::remove_file(service.limits_path()).expect("no file");
    until(|| service.limiter.rules_file_error().is_some()).await;
    assert_eq!(service.get("/quote/bob").await.header("ratelimit-limit"), Some("5"));
}

#[test]
fn a_file_needs_every_limit_and_may_have_no_other_rule() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("limits.toml");
    let start = |text: &str| {
        fs::write(&path, text).expect("the file of limits");
        crate::limiter(Limiter::builder(), &path, &Arc::default())
    };
    for (broken, message) in [
        (LIMITS.replace("order-all", "order-everyone"), "`order-everyone`"),
        (LIMITS.replace("login", "quote"), "duplicate"),
        (LIMITS.replacen("limit = \"2/10s\"", "", 1), "`quote`"),
    ] {
        let error = start(&broken).expect_err("broken").to_string();
        assert!(error.contains(message) && !error.contains('\n'), "{error}");
    }
    start(include_str!("../limits.toml")).expect("the file of the example");
}

#[tokio::test]
async fn a_rule_in_shadow_mode_only_counts() {
    let service = Service::new();
    service.edit("on_error = \"open\"", "on_error = \"open\"\nmode = \"shadow\"").await;
    for _ in 0..5 {
        let reply = service.get("/quote/bob").await;
        assert_eq!((reply.status, reply.limit_headers()), (StatusCode::OK, [None; 3]));
    }
    assert_eq!(service.listed("quote").await["denied_in_shadow"], 3);
    assert_eq!(service.get("/admin/top").await.body, json!([]));
}

#[tokio::test]
async fn an_order_that_is_denied_is_not_counted_in_shadow() {
    let service = Service::new();
    service.edit("limit = \"3/10s\"", "mode = \"shadow\"\nlimit = \"1/10s\"").await;
    for status in [StatusCode::CREATED, StatusCode::CREATED, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(service.order("bob").await.status, status);
    }
    assert_eq!(service.listed("order-all").await["denied_in_shadow"], 1);
}

#[tokio::test]
async fn all_limits_in_force_are_listed() {
    let service = Service::new();
    service.edit("2/10s", "7/min").await;
    let names = ["login", "order", "order-all", "quote", "report"];
    let listed = service.get("/admin/limits").await.body;
    assert_eq!(listed.as_array().expect("a list").iter().map(|rule| &rule["name"]).collect::<Vec<_>>(), names);
    let quote = json!({
        "name": "quote", "limits": ["7/min"], "mode": "enforce", "on_error": "open", "overrides": 1,
        "denied_in_shadow": 0,
    });
    assert_eq!(service.listed("quote").await, quote);
}

#[tokio::test]
async fn the_keys_with_the_most_denials_are_listed() {
    let service = Service::new();
    for _ in 0..4 {
        service.get("/quote/bob").await;
    }
    for _ in 0..3 {
        service.login("carol", "guess").await;
    }
    for user in ["a", "b", "c", "d", "e"] {
        service.order(user).await;
    }
    let top = json!([
        { "rule": "order-all", "user": null, "denials": 2 },
        { "rule": "quote", "user": "bob", "denials": 2 },
        { "rule": "login", "user": "carol", "denials": 1 },
    ]);
    assert_eq!(service.get("/admin/top").await.body, top);
}

#[test]
fn a_flood_of_keys_does_not_displace_the_most_denied_one() {
    let denials = Denials::default();
    for flood in 0..5_000 {
        denials.count("quote", Some("bob"));
        denials.count("quote", Some(&flood.to_string()));
    }
    let top = denials.top(usize::MAX);
    assert_eq!((top.len(), &top[0]), (1000, &(("quote".to_owned(), Some("bob".to_owned())), 5_000)));
}

#[tokio::test]
async fn a_server_answers_until_it_is_stopped() {
    let service = Service::new();
    service.limiter.install().expect("the only one"); // the server's tasks have no scope
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(crate::serve(listener, service.router, async {
        let _ = stopped.await;
    }));
    let mut client = TcpStream::connect(address).await.expect("a connection");
    client.write_all(b"GET /quote/bob HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.expect("a request");
    let mut reply = String::new();
    client.read_to_string(&mut reply).await.expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.contains("ratelimit-remaining: 1"), "{reply}");
    stop.send(()).expect("a server");
    server.await.expect("no panic").expect("no failure");
}
