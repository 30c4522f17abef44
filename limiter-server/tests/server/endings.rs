//! The end of a server, and of connections.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::support::{Connection, RULES, run, run_until, server};

/// Much longer than a step takes, also on a busy machine.
const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn an_ending_server_is_not_ready_closes_connections_and_answers_what_runs() {
    let rules = "[rules.erp]\nlimit = \"1 concurrent\"";
    let (end, ended) = oneshot::channel::<()>();
    let server = server(rules).max_wait(Duration::from_secs(5));
    let (address, task) = run_until(server, async move {
        let _ = ended.await;
    })
    .await;
    let mut waiting = Connection::open(address).await;
    let mut idle = Connection::open(address).await;
    let mut other = Connection::open(address).await;
    assert_eq!(idle.get("/readyz").await.json()["ready"], true);
    assert_eq!(idle.post("/v1/enter", r#"{"rule":"erp"}"#).await.status, 200);
    // It waits for longer than the server is draining.
    waiting.send("POST /v1/enter HTTP/1.1", r#"{"rule":"erp","wait_ms":2500}"#).await;
    assert_eq!(other.get("/healthz").await.field("connection"), "");
    let began = Instant::now();
    end.send(()).expect("the server runs");
    let not_ready = loop {
        let mut connection = Connection::open(address).await;
        let received = connection.get("/readyz").await;
        if received.status != 200 {
            break received;
        }
    };
    assert_eq!(
        (not_ready.status, &not_ready.json()["ready"], not_ready.field("connection")),
        (503, &false.into(), "close")
    );
    assert_eq!(other.get("/healthz").await.field("connection"), "close");
    assert!(other.is_closed_within(LONG).await);
    let answered = waiting.receive().await.expect("what runs is answered");
    assert_eq!(answered.status, 429);
    assert!(waiting.is_closed_within(LONG).await && idle.is_closed_within(LONG).await);
    task.await.expect("no panic");
    assert!(began.elapsed() < LONG);
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_wait() {
    let rules = "[rules.erp]\nlimit = \"1 concurrent\"";
    let server = server(rules).max_wait(Duration::from_secs(60)).max_calls(1);
    let address = run(server).await;
    let mut connection = Connection::open(address).await;
    assert_eq!(connection.post("/v1/enter", r#"{"rule":"erp"}"#).await.status, 200);
    let mut waiting = Connection::open(address).await;
    waiting.send("POST /v1/enter HTTP/1.1", r#"{"rule":"erp","wait_ms":60000}"#).await;
    // It has the only place of a call.
    let peek = r#"{"rule":"nothing"}"#;
    while connection.post("/v1/peek", peek).await.status != 503 {
        tokio::task::yield_now().await;
    }
    drop(waiting);
    let began = Instant::now();
    while connection.post("/v1/peek", peek).await.status == 503 {
        assert!(began.elapsed() < LONG, "the wait goes on without its client");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_in_one_packet_are_answered_in_order() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    let request = "GET /v1/auth?rule=two HTTP/1.1\r\nhost: a\r\n\r\n";
    connection.write(request.repeat(3)).await;
    for status in [200, 200, 429] {
        assert_eq!(connection.receive().await.expect("a response").status, status);
    }
}

#[tokio::test]
async fn a_head_without_an_end_or_without_bounds_is_refused() {
    let address = run(server(RULES)).await;
    let mut connection = Connection::open(address).await;
    connection.write(format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(100))).await;
    connection.write("\r\n").await;
    assert!(connection.receive().await.is_none_or(|received| received.status == 431));
    let mut connection = Connection::open(address).await;
    connection.write("no HTTP at all\r\n\r\n").await;
    assert!(connection.receive().await.is_none_or(|received| received.status == 400));
}
