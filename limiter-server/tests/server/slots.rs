//! Slots of calls that run.

use std::time::Duration;

use serde_json::json;

use crate::support::{Connection, RULES, run, server};

const ENTER: &str = r#"{"rule":"erp","values":{"tenant":"a"},"ttl_ms":60000}"#;

#[tokio::test]
async fn a_slot_is_held_renewed_and_left() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    let entered = connection.post("/v1/enter", ENTER).await;
    let body = entered.json();
    assert_eq!((entered.status, &body["allowed"], &body["ttl_ms"]), (200, &json!(true), &json!(60_000)));
    let slot = body["slot"].as_str().expect("a slot").to_owned();
    let denied = connection.post("/v1/enter", ENTER).await;
    assert_eq!((denied.status, denied.json().get("slot")), (429, None));
    let renewed = connection.post("/v1/enter", &json!({"slot": slot, "ttl_ms": 90_000}).to_string()).await;
    assert_eq!(renewed.json(), json!({"slot": slot, "ttl_ms": 90_000}));
    let with_rule = json!({"slot": slot, "rule": "erp"}).to_string();
    assert_eq!(connection.post("/v1/enter", &with_rule).await.problem(), (400, "invalid-target".to_owned()));
    let leave = json!({"slot": slot}).to_string();
    let left = connection.post("/v1/leave", &leave).await;
    assert_eq!((left.status, left.json()), (200, json!({"left": true})));
    assert_eq!(connection.post("/v1/leave", &leave).await.problem(), (404, "ended-slot".to_owned()));
    assert_eq!(connection.post("/v1/enter", &leave).await.problem(), (404, "ended-slot".to_owned()));
    let mut other = Connection::open(run(server(RULES)).await).await;
    assert_eq!(other.post("/v1/leave", &leave).await.problem(), (404, "foreign-slot".to_owned()));
    assert_eq!(connection.post("/v1/enter", ENTER).await.status, 200);
}

#[tokio::test]
async fn a_slot_that_is_never_left_ends_by_itself() {
    let mut connection = Connection::open(run(server(RULES).max_wait(Duration::from_secs(60))).await).await;
    let enter =
        |wait: u64| json!({"rule": "erp", "values": {"tenant": "a"}, "ttl_ms": 1000, "wait_ms": wait}).to_string();
    let first = connection.post("/v1/enter", &enter(0)).await.json();
    // This waits until the first one has ended.
    assert_eq!(connection.post("/v1/enter", &enter(60_000)).await.status, 200);
    let leave = json!({"slot": first["slot"]}).to_string();
    assert_eq!(connection.post("/v1/leave", &leave).await.problem(), (404, "ended-slot".to_owned()));
}

#[tokio::test]
async fn slots_beyond_the_most_get_503() {
    let mut connection = Connection::open(run(server(RULES).max_slots(1)).await).await;
    let enter = |tenant: &str| json!({"rule": "erp", "values": {"tenant": tenant}}).to_string();
    let slot = connection.post("/v1/enter", &enter("a")).await.json()["slot"].clone();
    assert_eq!(connection.post("/v1/enter", &enter("b")).await.problem(), (503, "too-many-slots".to_owned()));
    assert_eq!(connection.post("/v1/leave", &json!({"slot": slot}).to_string()).await.status, 200);
    assert_eq!(connection.post("/v1/enter", &enter("b")).await.status, 200);
}
