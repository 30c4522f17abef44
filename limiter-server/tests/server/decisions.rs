//! Decisions over HTTP: the answers and their fields.

use rate_limited::{Key, Limiter};
use serde_json::json;

use crate::support::{Connection, RULES, builder, run, server};
use limiter_server::Server;

#[tokio::test]
async fn a_check_is_allowed_until_the_limit_and_then_denied_with_its_fields() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    let check = r#"{"rule":"search","values":{"user_id":"42"}}"#;
    for remaining in [1, 0] {
        let allowed = connection.post("/v1/check", check).await;
        assert_eq!((allowed.status, allowed.field("content-type")), (200, "application/json"));
        let body = allowed.json();
        assert_eq!(body["allowed"], true, "{body}");
        assert_eq!(
            (&body["rule"], &body["source"], &body["retry_after_ms"]),
            (&json!("search"), &json!("store"), &json!(0))
        );
        let limit = &body["limits"][0];
        assert_eq!(
            (&limit["limit"], &limit["remaining"], &limit["retry_after_ms"]),
            (&json!("2/h"), &json!(remaining), &json!(0))
        );
        assert!(
            limit["reset_after_ms"].as_u64().is_some_and(|millis| (3_590_000..=3_600_001).contains(&millis)),
            "{body}"
        );
        assert_eq!(allowed.field("ratelimit-policy"), r#""search";q=2;w=3600"#);
        assert!(allowed.field("ratelimit").starts_with(&format!(r#""search";r={remaining};t=3"#)));
        assert_eq!(allowed.field("retry-after"), "");
    }
    let denied = connection.post("/v1/check", check).await;
    assert_eq!(denied.status, 429);
    let body = denied.json();
    let retry_after = body["retry_after_ms"].as_u64().expect("a time");
    assert_eq!((&body["allowed"], &body["limits"][0]["retry_after_ms"]), (&json!(false), &json!(retry_after)));
    let seconds: u64 = denied.field("retry-after").parse().expect("seconds");
    assert!((1..=3600).contains(&seconds) && retry_after <= seconds * 1000 + 1, "{denied:?}");
    assert!(denied.field("ratelimit").starts_with(r#""search";r=0;t="#));
    // Another value has its own quota. A number is the same value as its text.
    assert_eq!(connection.post("/v1/check", r#"{"rule":"search","values":{"user_id":43}}"#).await.status, 200);
    assert_eq!(connection.post("/v1/check", r#"{"rule":"search","values":{"user_id":42}}"#).await.status, 429);
    let never = connection.post("/v1/check", r#"{"rule":"search","values":{"user_id":"44"},"cost":3}"#).await;
    assert_eq!((never.status, &never.json()["retry_after_ms"], never.field("retry-after")), (429, &json!(null), ""));
}

#[tokio::test]
async fn an_answer_has_each_limit_of_a_rule() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    let answer = connection.post("/v1/check", r#"{"rule":"two","cost":2}"#).await;
    let body = answer.json();
    let limits: Vec<_> =
        body["limits"].as_array().expect("limits").iter().map(|limit| (&limit["limit"], &limit["remaining"])).collect();
    assert_eq!(limits, [(&json!("2/h"), &json!(0)), (&json!("5/d"), &json!(3))]);
    assert_eq!(answer.field("ratelimit-policy"), r#""two-1h";q=2;w=3600, "two-1d";q=5;w=86400"#);
}

#[tokio::test]
async fn a_peek_takes_nothing_and_a_reset_forgets() {
    let server = server(RULES).token("0123456789abcdef").expect("a token");
    let mut connection = Connection::open(run(server).await).await;
    let with_token = |path: &str| {
        format!("POST {path} HTTP/1.1\r\ncontent-type: application/json\r\nauthorization: Bearer 0123456789abcdef")
    };
    let call = r#"{"rule":"search","values":{"user_id":"42"}}"#;
    for _ in 0..3 {
        let peeked = connection.ask(&with_token("/v1/peek"), call).await;
        assert_eq!((peeked.status, &peeked.json()["limits"][0]["remaining"]), (200, &json!(2)));
    }
    for status in [200, 200, 429] {
        assert_eq!(connection.ask(&with_token("/v1/check"), call).await.status, status);
    }
    // A look that succeeds has the status 200, whatever it sees.
    let peeked = connection.ask(&with_token("/v1/peek"), call).await;
    assert_eq!((peeked.status, &peeked.json()["allowed"]), (200, &json!(false)));
    let reset = connection.ask(&with_token("/v1/reset"), call).await;
    assert_eq!((reset.status, reset.json()), (200, json!({"reset": true})));
    assert_eq!(connection.ask(&with_token("/v1/check"), call).await.status, 200);
}

#[tokio::test]
async fn a_wait_gets_the_permit_that_comes_back() {
    let rules = "[rules.short]\nlimit = \"1/300ms\"";
    let mut connection = Connection::open(run(server(rules)).await).await;
    assert_eq!(connection.post("/v1/check", r#"{"rule":"short"}"#).await.status, 200);
    assert_eq!(connection.post("/v1/check", r#"{"rule":"short","wait_ms":1000}"#).await.status, 200);
}

#[tokio::test]
async fn limits_of_a_caller_are_on_a_key_of_their_own() {
    let limiter = builder(RULES).build().expect("valid");
    let mut connection = Connection::open(run(Server::new(limiter.clone()).allow_limits()).await).await;
    let own = r#"{"key":["user:","42"],"limit":"1/h"}"#;
    let allowed = connection.post("/v1/check", own).await;
    assert_eq!((allowed.status, allowed.json().get("rule").is_some()), (200, false), "{allowed:?}");
    assert_eq!(connection.post("/v1/check", own).await.status, 429);
    assert_eq!(connection.post("/v1/check", r#"{"key":["user:","43"],"limit":"1/h"}"#).await.status, 200);
    let several = r#"{"key":["all"],"limits":["1/h",{"limit":"5/d","algorithm":"token_bucket","burst":7}]}"#;
    assert_eq!(connection.post("/v1/check", several).await.json()["limits"].as_array().map(Vec::len), Some(2));
    let limit = "1/h".parse().expect("a limit");
    let of_program = limiter.check(&Key::new("user:").part(42), &limit).await.expect("memory");
    assert!(of_program.is_allowed(), "a key of a program counts apart");
}

#[tokio::test]
async fn a_batch_is_answered_in_order_with_a_status_for_each() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    let checks: Vec<_> = [
        json!({"rule": "search", "values": {"user_id": "1"}}),
        json!({"rule": "serch"}),
        json!({"rule": "search", "values": {"user_id": "1"}, "cost": 2}),
        json!({"rule": "search", "values": {"user_id": "2"}, "receipt": true}),
        json!({}),
        json!({"rule": "search", "values": {"user_id": "1"}, "cost": -1}),
        json!("no check"),
    ]
    .into();
    let batch = connection.post("/v1/batch", &json!({ "checks": checks }).to_string()).await;
    assert_eq!(batch.status, 200, "{batch:?}");
    let body = batch.json();
    let statuses: Vec<_> =
        body["answers"].as_array().expect("answers").iter().map(|answer| answer["status"].as_u64()).collect();
    assert_eq!(statuses, [200, 404, 429, 200, 400, 400, 400].map(Some), "{body}");
    assert_eq!(body["answers"][1]["suggestion"], "write `search`");
    assert!(body["answers"][3]["receipt"].as_str().is_some_and(|receipt| receipt.starts_with("rl1-")));
    let many: Vec<_> =
        (0..1_000).map(|user| json!({"rule": "search", "values": {"user_id": format!("b{user}")}})).collect();
    let batch = connection.post("/v1/batch", &json!({ "checks": many }).to_string()).await;
    let answers = batch.json()["answers"].as_array().expect("answers").clone();
    assert!(answers.len() == 1_000 && answers.iter().all(|answer| answer["allowed"] == true));
    let too_many = vec![json!({"rule": "search"}); 1_001];
    let batch = connection.post("/v1/batch", &json!({ "checks": too_many }).to_string()).await;
    assert_eq!(batch.problem(), (400, "batch-too-long".to_owned()));
}

#[tokio::test]
async fn a_rule_in_shadow_mode_allows_and_shows_it() {
    let rules = "[rules.trial]\nlimit = \"1/h\"\nmode = \"shadow\"\n[rules.off]\nlimit = \"1/h\"\nmode = \"off\"";
    let mut connection = Connection::open(run(server(rules)).await).await;
    assert_eq!(connection.post("/v1/check", r#"{"rule":"trial"}"#).await.json().get("shadowed"), None);
    let second = connection.post("/v1/check", r#"{"rule":"trial"}"#).await;
    assert_eq!((second.status, &second.json()["shadowed"], second.field("ratelimit")), (200, &json!(true), ""));
    let off = connection.post("/v1/check", r#"{"rule":"off"}"#).await;
    assert_eq!((off.status, &off.json()["source"]), (200, &json!("mode")));
}

#[tokio::test]
async fn a_plan_has_its_own_limit() {
    let rules = "[plans.free]\nlimit = \"1/h\"\n[plans.pro]\nlimit = \"3/h\"\n[rules.api]\nkey = \"api:{user}\"\nplans = [\"free\", \"pro\"]";
    let mut connection = Connection::open(run(server(rules)).await).await;
    let mut check = async |plan: &str| {
        let body = json!({"rule": "api", "values": {"user": "42"}, "plan": plan}).to_string();
        connection.post("/v1/check", &body).await.status
    };
    assert_eq!([check("free").await, check("free").await], [200, 429]);
    // An upgrade keeps what was used.
    assert_eq!([check("pro").await, check("pro").await, check("pro").await], [200, 200, 429]);
}

#[tokio::test]
async fn a_mounted_router_decides_as_well() {
    let limiter = Limiter::builder().url("memory:").rules("[rules.a]\nlimit = \"1/h\"".parse().expect("rules"));
    let router = Server::new(limiter.build().expect("valid")).into_router();
    let app = axum::Router::new().nest("/limits", router);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut connection = Connection::open(address).await;
    for status in [200, 429] {
        assert_eq!(connection.post("/limits/v1/check", r#"{"rule":"a"}"#).await.status, status);
    }
}
