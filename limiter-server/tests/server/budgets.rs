//! Charges, receipts and refunds.

use serde_json::json;

use crate::support::{Connection, RULES, run, server};

#[tokio::test]
async fn a_call_is_settled_by_its_receipt_once() {
    let address = run(server(RULES)).await;
    let mut connection = Connection::open(address).await;
    let check = r#"{"rule":"tokens","values":{"org":"acme"},"cost":500,"receipt":true}"#;
    let receipt = connection.post("/v1/check", check).await.json()["receipt"].as_str().expect("a receipt").to_owned();
    let settle = json!({"rule": "tokens", "values": {"org": "acme"}, "receipt": receipt, "actual": 620}).to_string();
    // Another server has another secret here.
    let mut other = Connection::open(run(server(RULES)).await).await;
    assert_eq!(other.post("/v1/settle", &settle).await.problem(), (404, "foreign-receipt".to_owned()));
    // Another connection of the same server may use it.
    let mut second = Connection::open(address).await;
    let settled = second.post("/v1/settle", &settle).await;
    assert_eq!((settled.status, &settled.json()["remaining"]), (200, &json!(380)));
    assert_eq!(connection.post("/v1/settle", &settle).await.problem(), (409, "used-receipt".to_owned()));
    let other_key = json!({"rule": "tokens", "values": {"org": "b"}, "receipt": receipt}).to_string();
    assert_eq!(connection.post("/v1/refund", &other_key).await.problem(), (404, "foreign-receipt".to_owned()));
}

#[tokio::test]
async fn a_refund_gives_all_back() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    let check = r#"{"rule":"tokens","values":{"org":"acme"},"cost":1000,"receipt":true}"#;
    let receipt = connection.post("/v1/check", check).await.json()["receipt"].clone();
    assert_eq!(connection.post("/v1/check", check).await.status, 429);
    let refund = json!({"rule": "tokens", "values": {"org": "acme"}, "receipt": receipt}).to_string();
    let refunded = connection.post("/v1/refund", &refund).await;
    assert_eq!((refunded.status, refunded.json()), (200, json!({"refunded": true})));
    assert_eq!(connection.post("/v1/check", check).await.status, 200);
}

#[tokio::test]
async fn a_charge_counts_beyond_the_limit() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    let charge = r#"{"rule":"tokens","values":{"org":"acme"},"cost":1100}"#;
    let charged = connection.post("/v1/charge", charge).await;
    let body = charged.json();
    assert_eq!((charged.status, &body["remaining"], &body["overdrawn"]), (200, &json!(0), &json!(100)), "{body}");
    assert_eq!((&body["limit"], &body["source"], &body["uncounted"]), (&json!("1000/h"), &json!("store"), &json!(0)));
    assert_eq!(connection.post("/v1/check", r#"{"rule":"tokens","values":{"org":"acme"}}"#).await.status, 429);
}

#[tokio::test]
async fn a_postpaid_rule_has_a_receipt_and_takes_nothing_before() {
    let mut connection = Connection::open(run(server(RULES)).await).await;
    let mut receipts = Vec::new();
    for _ in 0..2 {
        let answer = connection.post("/v1/check", r#"{"rule":"later","cost":5}"#).await;
        receipts.push(answer.json()["receipt"].as_str().expect("a receipt").to_owned());
    }
    let settle = |receipt: &str| json!({"rule": "later", "receipt": receipt, "actual": 7}).to_string();
    assert_eq!(connection.post("/v1/settle", &settle(&receipts[0])).await.json()["overdrawn"], 2);
    assert_eq!(connection.post("/v1/check", r#"{"rule":"later"}"#).await.status, 429);
    assert_eq!(connection.post("/v1/settle", &settle(&receipts[1])).await.json()["overdrawn"], 9);
}
