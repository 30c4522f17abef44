//! `/v1/auth` as gateways call it.

use crate::support::{Connection, RULES, run, server};

fn names(received: &crate::support::Received) -> Vec<&str> {
    received.fields.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn an_answer_has_the_fields_of_the_layer_and_no_others() {
    let server = server(RULES).header("user_id=x-client-ip").expect("a header");
    let mut connection = Connection::open(run(server).await).await;
    let request =
        "GET /v1/auth?rule=search HTTP/1.1\r\nx-client-ip: 192.0.2.1\r\ncookie: a=b\r\nx-forwarded-for: 1.2.3.4";
    for _ in 0..2 {
        let allowed = connection.ask(request, "").await;
        assert_eq!((allowed.status, &*allowed.body), (200, r#"{"allowed":true}"#));
        assert_eq!(names(&allowed), ["content-length", "content-type", "ratelimit", "ratelimit-policy"]);
    }
    let denied = connection.ask(request, "").await;
    assert_eq!(denied.status, 429);
    assert_eq!(names(&denied), ["content-length", "content-type", "ratelimit", "ratelimit-policy", "retry-after"]);
    assert_eq!(denied.json()["allowed"], false);
    // nginx passes 401 and 403 on, and makes 500 of 429.
    let denied = connection.ask(&request.replace("rule=search", "rule=search&denied=403"), "").await;
    assert_eq!((denied.status, denied.field("retry-after").is_empty()), (403, false));
    let other = connection.ask(&request.replace("192.0.2.1", "192.0.2.2"), "").await;
    assert_eq!(other.status, 200, "another client has its own quota");
}

#[tokio::test]
async fn get_and_post_are_decided_and_no_body_is_read() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    assert_eq!(connection.get("/v1/auth?rule=two").await.status, 200);
    let address = run(server(RULES)).await;
    let mut connection = Connection::open(address).await;
    // The body never comes.
    connection.write("POST /v1/auth?rule=two HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n").await;
    assert_eq!(connection.receive().await.expect("a response").status, 200);
    let mut connection = Connection::open(address).await;
    connection.send("HEAD /v1/auth?rule=two HTTP/1.1\r\nconnection: close", "").await;
    assert_eq!(connection.receive_head().await, "HTTP/1.1 405 Method Not Allowed", "a HEAD must not count");
}

#[tokio::test]
async fn a_request_without_its_key_is_400() {
    let server = server(RULES).header("user_id=x-user-id").expect("a header");
    let mut connection = Connection::open(run(server).await).await;
    let cases = [
        ("/v1/auth?rule=search HTTP/1.1", 400, "missing-value"),
        ("/v1/auth?rule=search HTTP/1.1\r\nx-user-id:", 400, "missing-value"),
        ("/v1/auth?rule=search HTTP/1.1\r\nx-user-id: a\r\nx-user-id: b", 400, "repeated-value"),
        ("/v1/auth?rule=search&deny=403 HTTP/1.1\r\nx-user-id: a", 400, "invalid-query"),
        ("/v1/auth?rule=search&denied=200 HTTP/1.1\r\nx-user-id: a", 400, "invalid-query"),
        ("/v1/auth?rule=search&cost=x HTTP/1.1\r\nx-user-id: a", 400, "invalid-query"),
        ("/v1/auth HTTP/1.1", 400, "invalid-query"),
        ("/v1/auth?rule=serch HTTP/1.1", 404, "unknown-rule"),
        ("/v1/auth?rule=tokens HTTP/1.1", 422, "no-header-set"),
        ("/v1/auth?rule=unset HTTP/1.1\r\nx-user-id: a", 422, "rule-without-limit"),
    ];
    for (request, status, code) in cases {
        let received = connection.ask(&format!("GET {request}"), "").await;
        assert_eq!(received.problem(), (status, code.to_owned()), "{request}");
    }
    let denied = connection.get("/v1/auth?rule=shut").await;
    assert_eq!(
        (denied.status, denied.json()["retry_after_ms"].is_null(), denied.field("retry-after")),
        (429, true, "")
    );
}

#[tokio::test]
async fn a_cost_and_an_encoded_rule_are_read_from_the_query() {
    let rules = "[rules.\"user:{user.id}\"]\nlimit = \"5/h\"";
    let server = server(rules).header("user:{user.id}/user.id=x-user").expect("a header");
    let mut connection = Connection::open(run(server).await).await;
    let request = "GET /v1/auth?rule=user%3A%7Buser.id%7D&cost=3 HTTP/1.1\r\nx-user: a@b c";
    assert_eq!(connection.ask(request, "").await.status, 200);
    assert_eq!(connection.ask(request, "").await.status, 429, "two are left");
    assert_eq!(connection.ask(&request.replace("cost=3", "cost=2"), "").await.status, 200);
}
