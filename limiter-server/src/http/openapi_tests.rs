//! The description of the routes is compared with what they read and write.

use std::collections::BTreeSet;

use axum::body::to_bytes;
use axum::http::{Request, StatusCode};
use rate_limited::{Limiter, RuleSet};
use serde::Deserialize;
use serde_json::{Value, json};
use tower_service::Service;

use super::body::{BatchBody, ChargeBody, CheckBody, EnterBody, LeaveBody, RefundBody, SettleBody, TargetOnlyBody};
use super::*;
use crate::server::Server;

fn description() -> Value {
    serde_json::from_str(ops::OPENAPI).expect("JSON")
}

fn properties(description: &Value, schema: &str) -> BTreeSet<String> {
    let properties = description["components"]["schemas"][schema]["properties"].as_object();
    properties.unwrap_or_else(|| panic!("{schema} has properties")).keys().cloned().collect()
}

/// The fields that a body may have, as its error about another one lists them.
fn fields_of<'b, T: Deserialize<'b>>() -> BTreeSet<String> {
    let error = serde_json::from_str::<T>(r#"{"no such field":0}"#).err().expect("an unknown field").to_string();
    let (_, expected) = error.split_once("expected ").expect("the known fields");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn each_route_and_method_is_described() {
    let description = description();
    let described: BTreeSet<_> = description["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().expect("methods").keys().map(move |method| format!("{method} {path}"))
        })
        .collect();
    // The answer to HEAD is that of GET without its body.
    let of_entry = |entry: &'static RouteEntry| {
        let methods = entry.methods.iter().filter(|method| **method != Method::HEAD);
        methods.map(|method| format!("{} {}", method.as_str().to_ascii_lowercase(), entry.path))
    };
    let routes: BTreeSet<_> = ROUTES.iter().flat_map(of_entry).collect();
    assert_eq!(described, routes);
    for (place, entry) in ROUTES.iter().enumerate() {
        assert_eq!(entry.route as usize, place, "{}", entry.path);
        let of_path = description["paths"][entry.path].as_object().expect("methods");
        for operation in of_path.values() {
            let security = match entry.right {
                Right::Anyone => json!([]),
                Right::Caller => json!([{}, { "token": [] }]),
                Right::Operator => json!([{ "token": [] }]),
            };
            assert_eq!(operation["security"], security, "{}", entry.path);
        }
    }
}

#[test]
fn each_field_of_a_body_is_described() {
    let description = description();
    let cases = [
        ("Check", fields_of::<CheckBody<'_>>()),
        ("TargetOnly", fields_of::<TargetOnlyBody<'_>>()),
        ("Charge", fields_of::<ChargeBody<'_>>()),
        ("Settle", fields_of::<SettleBody<'_>>()),
        ("Refund", fields_of::<RefundBody<'_>>()),
        ("Enter", fields_of::<EnterBody<'_>>()),
        ("Leave", fields_of::<LeaveBody<'_>>()),
        ("Batch", fields_of::<BatchBody<'_>>()),
    ];
    for (schema, fields) in cases {
        assert_eq!(properties(&description, schema), fields, "{schema}");
    }
}

/// Returns the part of the description that a reference names, or else the part itself.
fn resolved<'d>(description: &'d Value, part: &'d Value) -> &'d Value {
    match part["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
        Some(pointer) => description.pointer(pointer).unwrap_or_else(|| panic!("there is {pointer}")),
        None => part,
    }
}

/// Checks an answer: it has each field that is required, and none that is not described.
fn check_answer(description: &Value, schema: &Value, answer: &Value) {
    let schema = resolved(description, schema);
    if let Some(choices) = schema["anyOf"].as_array() {
        let has_required = |choice: &&Value| {
            let required = resolved(description, choice)["required"].as_array();
            required.is_some_and(|names| names.iter().all(|name| answer.get(name.as_str().expect("a name")).is_some()))
        };
        let choice = choices.iter().find(has_required).unwrap_or_else(|| panic!("{answer} is one of {choices:?}"));
        return check_answer(description, choice, answer);
    }
    match answer {
        Value::Object(fields) => {
            for required in schema["required"].as_array().into_iter().flatten() {
                assert!(fields.contains_key(required.as_str().expect("a name")), "{required} is in {answer}");
            }
            for (name, value) in fields {
                let described = &schema["properties"][name];
                assert!(
                    described.is_object() || schema["additionalProperties"] != false,
                    "{name} of {answer} is described"
                );
                check_answer(description, described, value);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| check_answer(description, &schema["items"], item)),
        _ => {}
    }
}

#[tokio::test]
async fn each_answer_is_as_described() {
    let rules: RuleSet = "[rules.a]\nlimit = \"3/h\"\n[rules.erp]\nlimit = \"1 concurrent\"".parse().expect("rules");
    let limiter = Limiter::builder().url("memory:").rules(rules).receipt_secret([7; 32]).build().expect("valid");
    let server = Server::new(limiter).allow_limits().token("0123456789abcdef").expect("a token").metrics(String::new);
    let (mut router, description) = (server.into_router(), description());
    let mut send = async |method: &str, path: &str, body: Value| {
        let request = Request::builder().method(method).uri(path).header("authorization", "Bearer 0123456789abcdef");
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = router.call(request.body(body).expect("a request")).await.unwrap_or_else(|never| match never {});
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.expect("a body");
        let path = path.split('?').next().unwrap_or(path);
        let operation = &description["paths"][path][method.to_ascii_lowercase()];
        // A method that a path does not have is described beside the others.
        let operation = operation.as_object().map_or_else(
            || description["paths"][path].as_object().and_then(|methods| methods.values().next()).expect("a method"),
            |_| operation,
        );
        let described = resolved(&description, &operation["responses"][parts.status.as_str()]);
        assert!(described.is_object(), "{} of {path} is described", parts.status);
        let kind = parts.headers["content-type"].to_str().expect("ASCII").split(';').next().expect("a type").to_owned();
        let schema = &described["content"][&kind]["schema"];
        assert!(schema.is_object(), "{kind} of {} of {path} is described", parts.status);
        for name in ["retry-after", "ratelimit", "ratelimit-policy"] {
            let is_described = described["headers"]
                .as_object()
                .is_some_and(|fields| fields.keys().any(|field| field.eq_ignore_ascii_case(name)));
            let is_problem = kind == "application/problem+json";
            assert!(
                is_described || is_problem || !parts.headers.contains_key(name),
                "{name} of {} of {path}",
                parts.status
            );
        }
        if kind == "text/plain" {
            return (parts.status, Value::Null);
        }
        let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
        if path != "/openapi.json" {
            check_answer(&description, schema, &answer);
        }
        (parts.status, answer)
    };
    let (_, first) = send("POST", "/v1/check", json!({"rule": "a", "receipt": true})).await;
    let (_, second) = send("POST", "/v1/check", json!({"rule": "a", "receipt": true})).await;
    send("POST", "/v1/settle", json!({"rule": "a", "receipt": first["receipt"], "actual": 2})).await;
    let used = send("POST", "/v1/settle", json!({"rule": "a", "receipt": first["receipt"], "actual": 2})).await.0;
    send("POST", "/v1/refund", json!({"rule": "a", "receipt": second["receipt"]})).await;
    send("POST", "/v1/charge", json!({"rule": "a", "cost": 2})).await;
    let denied = send("POST", "/v1/check", json!({"rule": "a"})).await.0;
    send("POST", "/v1/peek", json!({"rule": "a"})).await;
    send("GET", "/v1/auth?rule=a", Value::Null).await;
    send("POST", "/v1/auth?rule=a", Value::Null).await;
    let batch = json!({"checks": [{"rule": "a"}, {"rule": "b"}, {"key": ["a"], "limit": "1/h"}]});
    send("POST", "/v1/batch", batch).await;
    let (_, entered) = send("POST", "/v1/enter", json!({"rule": "erp"})).await;
    send("POST", "/v1/enter", json!({"rule": "erp"})).await;
    send("POST", "/v1/enter", json!({"slot": entered["slot"]})).await;
    send("POST", "/v1/leave", json!({"slot": entered["slot"]})).await;
    let ended = send("POST", "/v1/leave", json!({"slot": entered["slot"]})).await.0;
    send("POST", "/v1/reset", json!({"rule": "a"})).await;
    let unknown = send("POST", "/v1/check", json!({"rule": "b"})).await.0;
    let wrong = send("POST", "/v1/check", json!({})).await.0;
    let unusable = send("POST", "/v1/check", json!({"rule": "erp"})).await.0;
    let method = send("GET", "/v1/check", Value::Null).await.0;
    let statuses = [used, denied, ended, unknown, wrong, unusable, method];
    assert_eq!(statuses.map(|status| status.as_u16()), [409, 429, 404, 404, 400, 422, 405]);
    for entry in ROUTES.iter().filter(|entry| entry.methods.contains(&Method::HEAD)) {
        assert_eq!(send("GET", entry.path, Value::Null).await.0, StatusCode::OK, "{}", entry.path);
    }
}
