//! Requests that have no answer: each has a problem text.

use rate_limited::{ErrorKind, Limiter};

use crate::support::{Connection, RULES, run, server};
use limiter_server::Server;

#[tokio::test]
async fn a_wrong_request_has_a_problem_with_what_to_write() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    let cases = [
        ("/v1/check", r#"{"rule":"serch"}"#, 404, "unknown-rule", "write `search`"),
        ("/v1/check", r#"{"rule":"search"}"#, 400, "missing-value", "add a value for `user_id`"),
        (
            "/v1/check",
            r#"{"rule":"search","values":{"user_id":"1","usr":"2"}}"#,
            400,
            "unknown-value",
            "write a value for each of `user_id`",
        ),
        ("/v1/check", r#"{"rule":"search","values":{"user_id":"1","user_id":"2"}}"#, 400, "repeated-value", ""),
        ("/v1/check", r#"{"rule":"search","values":{"user_id":null}}"#, 400, "invalid-json", ""),
        (
            "/v1/check",
            r#"{"rule":"unset","values":{"user_id":"1"}}"#,
            422,
            "rule-without-limit",
            "write its `limit` into the rules",
        ),
        (
            "/v1/check",
            r#"{"rule":"erp","values":{"tenant":"a"}}"#,
            422,
            "rule-holds-slots",
            "enter, and leave when the call has ended",
        ),
        ("/v1/check", r#"{"rule":"search","values":{"user_id":"1"},"wait_ms":1001}"#, 400, "wait-too-long", ""),
        (
            "/v1/check",
            r#"{"key":["a"],"limit":"5/10s"}"#,
            403,
            "limits-not-allowed",
            "name a rule, or start the server with `--allow-limits`",
        ),
        ("/v1/check", "", 400, "invalid-json", ""),
        ("/v1/check", "{\"rule\":", 400, "invalid-json", ""),
        ("/v1/check", "{}", 400, "invalid-target", ""),
        ("/v1/charge", r#"{"rule":"search","values":{"user_id":"1"}}"#, 400, "invalid-json", ""),
        (
            "/v1/settle",
            r#"{"rule":"search","values":{"user_id":"1"},"receipt":"x","actual":1}"#,
            400,
            "not-a-receipt",
            "",
        ),
        ("/v1/leave", r#"{"slot":"x"}"#, 400, "not-a-slot", ""),
        ("/v1/enter", r#"{"rule":"erp","values":{"tenant":"a"},"ttl_ms":999}"#, 400, "ttl-out-of-range", ""),
        ("/v1/chek", "{}", 404, "unknown-path", "write `/v1/check`"),
        ("/v2", "", 404, "unknown-path", ""),
    ];
    for (path, body, status, code, suggestion) in cases {
        let received = connection.post(path, body).await;
        assert_eq!(received.problem(), (status, code.to_owned()), "{path} {body}");
        let shown = received.json();
        assert_eq!(shown["suggestion"].as_str().unwrap_or_default(), suggestion, "{path} {body}: {shown}");
        assert!(shown["detail"].is_string() && shown["title"].is_string() && shown["type"] == "about:blank", "{shown}");
    }
    let placed = connection.post("/v1/check", "{\"rule\":\"search\",\n \"cots\":1}").await.json();
    assert_eq!((placed["line"].as_u64(), placed["column"].as_u64()), (Some(2), Some(7)), "{placed}");
}

#[tokio::test]
async fn methods_types_and_sizes_have_bounds() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    let received = connection.get("/v1/check").await;
    assert_eq!((received.problem().0, received.field("allow")), (405, "POST"));
    let received = connection.ask("DELETE /v1/auth?rule=two HTTP/1.1", "").await;
    assert_eq!((received.problem().0, received.field("allow")), (405, "GET, POST"));
    let form = "POST /v1/check HTTP/1.1\r\ncontent-type: application/x-www-form-urlencoded";
    assert_eq!(connection.ask(form, r#"{"rule":"two"}"#).await.problem().0, 415);
    let json = "POST /v1/check HTTP/1.1\r\ncontent-type: Application/JSON; charset=utf-8";
    assert_eq!(connection.ask(json, r#"{"rule":"two"}"#).await.status, 200);
    assert_eq!(connection.ask("POST /v1/check HTTP/1.1", r#"{"rule":"two"}"#).await.status, 200);
    let large = format!(r#"{{"rule":"{}"}}"#, "a".repeat(64 << 10));
    let received = connection.post("/v1/check", &large).await;
    assert_eq!(received.problem(), (413, "body-too-large".to_owned()));
    // The length of a body in chunks is not known before.
    let address = run(server(RULES)).await;
    let mut connection = Connection::open(address).await;
    connection.write("POST /v1/check HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for _ in 0..5 {
        connection.write(format!("4000\r\n{}\r\n", " ".repeat(0x4000))).await;
    }
    assert_eq!(connection.receive().await.expect("a response").problem().0, 413);
    let mut connection = Connection::open(address).await;
    let batch = format!(r#"{{"checks":[]}}{}"#, " ".repeat((1 << 20) - 13));
    assert_eq!(connection.post("/v1/batch", &batch).await.status, 200, "a batch may have 1 MB");
    let mut connection = Connection::open(address).await;
    connection.write("POST /v1/batch HTTP/1.1\r\nhost: a\r\ncontent-length: 10485760\r\n\r\n").await;
    assert_eq!(connection.receive().await.expect("a response").problem().0, 413, "10 MB are announced");
}

#[tokio::test]
async fn a_token_is_needed_for_calls_and_not_for_health() {
    let with_token = server(RULES).token("0123456789abcdef").expect("a token");
    let mut connection = Connection::open(run(with_token).await).await;
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/openapi.json", 200),
        ("/v1/rules", 401),
        ("/metrics", 401),
        ("/v1/auth?rule=two", 401),
    ] {
        assert_eq!(connection.get(path).await.status, status, "{path}");
    }
    let refused = connection.post("/v1/check", r#"{"rule":"two"}"#).await;
    assert_eq!((refused.problem().0, refused.field("www-authenticate")), (401, "Bearer"));
    let ask = "GET /v1/rules HTTP/1.1\r\nauthorization: Bearer ";
    assert_eq!(connection.ask(&format!("{ask}0123456789abcdeF"), "").await.status, 401);
    let rules = connection.ask(&format!("{ask}0123456789abcdef"), "").await;
    assert_eq!(rules.status, 200);
    let rules = rules.json();
    let search =
        rules["rules"].as_array().expect("rules").iter().find(|rule| rule["name"] == "search").expect("search");
    assert_eq!(
        (&search["values"][0], &search["limits"][0], &search["mode"]),
        (&"user_id".into(), &"2/h".into(), &"enforce".into())
    );
    // Without a token of the server the routes of operators have no caller.
    let mut connection = Connection::open(run(server(RULES)).await).await;
    assert_eq!(connection.get("/v1/rules").await.problem(), (403, "no-token-set".to_owned()));
    assert_eq!(connection.post("/v1/reset", r#"{"rule":"two"}"#).await.problem().0, 403);
    assert_eq!(connection.post("/v1/check", r#"{"rule":"two"}"#).await.status, 200);
}

#[tokio::test]
async fn a_failure_of_the_limiter_is_503_and_names_no_server() {
    let rules =
        "[rules.raise]\nlimit = \"1/h\"\non_error = \"raise\"\n[rules.closed]\nlimit = \"1/h\"\non_error = \"closed\"";
    let builder = Limiter::builder().failing(ErrorKind::Timeout).rules(rules.parse().expect("rules"));
    let mut connection = Connection::open(run(Server::new(builder.build().expect("valid"))).await).await;
    let raised = connection.post("/v1/check", r#"{"rule":"raise"}"#).await;
    assert_eq!((raised.problem(), raised.field("retry-after")), ((503, "undecided".to_owned()), "1"));
    // The policy `closed` is a decision: a gateway that admits after a 5xx must not admit this.
    let closed = connection.post("/v1/check", r#"{"rule":"closed"}"#).await;
    assert_eq!((closed.status, &closed.json()["source"]), (429, &"policy".into()));
    assert_eq!(connection.get("/v1/auth?rule=closed").await.status, 429);
    assert_eq!(connection.get("/v1/auth?rule=raise").await.status, 503);
}

#[tokio::test]
async fn calls_and_connections_beyond_the_most_get_503_at_once() {
    let address = run(server(RULES).max_calls(0).max_connections(1)).await;
    let mut first = Connection::open(address).await;
    assert_eq!(first.post("/v1/check", r#"{"rule":"two"}"#).await.problem(), (503, "too-many-calls".to_owned()));
    let mut second = Connection::open(address).await;
    assert_eq!(second.receive().await.expect("a response").problem(), (503, "too-many-connections".to_owned()));
    assert!(second.receive().await.is_none(), "it is closed");
    assert_eq!(first.get("/healthz").await.status, 200);
}
