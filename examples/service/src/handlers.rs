//! The routes of the service.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rate_limited::ErrorKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::gate::{Call, Gate, Permit};
use crate::reply::Rejection;
use crate::rules::{REPORT_COST, Rule};

/// Returns the routes.
pub(crate) fn router(gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/quote/{user}", get(quote))
        .route("/order/{user}", post(order))
        .route("/login", post(login))
        .route("/report/{tenant}", get(report))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/admin/limits", get(limits))
        .route("/admin/top", get(top))
        .with_state(gate)
}

async fn quote(State(gate): State<Arc<Gate>>, Path(user): Path<String>) -> Result<(Permit, Json<Value>), Rejection> {
    let rules = gate.rules();
    let permit = gate.admit(&[Call::of_user("quote", &rules.quote, &user)]).await?;
    Ok((permit, Json(json!({ "price": 42 }))))
}

async fn order(
    State(gate): State<Arc<Gate>>,
    Path(user): Path<String>,
) -> Result<(StatusCode, Permit, Json<Value>), Rejection> {
    let rules = gate.rules();
    let calls = [Call::of_user("order", &rules.order, &user), Call::of_all("order-all", &rules.order_all)];
    let permit = gate.admit(&calls).await?;
    Ok((StatusCode::CREATED, permit, Json(json!({ "ordered_by": user }))))
}

/// The body of a login.
#[derive(Deserialize)]
struct Credentials {
    account: String,
    password: String,
}

/// Checks a password. Only failed logins count.
async fn login(State(gate): State<Arc<Gate>>, Json(credentials): Json<Credentials>) -> Result<Response, Rejection> {
    let rules = gate.rules();
    let permit = gate.admit(&[Call::of_user("login", &rules.login, &credentials.account)]).await?;
    if credentials.password != "open sesame" {
        return Ok((StatusCode::UNAUTHORIZED, permit, Json(json!({ "error": "wrong password" }))).into_response());
    }
    let permit = gate.refund(permit, 1).await;
    Ok((permit, Json(json!({ "account": credentials.account }))).into_response())
}

/// Writes a report. Each of its sections costs a permit, and their number is known only afterwards.
async fn report(State(gate): State<Arc<Gate>>, Path(tenant): Path<String>) -> Result<(Permit, Json<Value>), Rejection> {
    let rules = gate.rules();
    let call = Call::of_user("report", &rules.report, &tenant).cost(REPORT_COST);
    let permit = gate.admit(&[call]).await?;
    let sections = write_sections(&tenant);
    let used = u32::try_from(sections.len()).unwrap_or(REPORT_COST).min(REPORT_COST);
    let permit = gate.settle(permit, call, used).await;
    Ok((permit, Json(json!({ "sections": sections }))))
}

/// Writes a section for each letter of the tenant's name, at most as many as were paid for.
fn write_sections(tenant: &str) -> Vec<String> {
    tenant.chars().take(REPORT_COST as usize).map(|letter| format!("section {letter}")).collect()
}

async fn healthz() -> &'static str {
    "alive"
}

/// Returns the state of the limiter's store.
async fn readyz(State(gate): State<Arc<Gate>>) -> (StatusCode, Json<Value>) {
    match gate.probe().await {
        Ok(()) => (StatusCode::OK, Json(json!({ "store": "up" }))),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "store": store_state(error.kind()) }))),
    }
}

/// Returns the state of a store that fails in this way.
fn store_state(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Timeout => "slow",
        ErrorKind::Loading => "loading",
        ErrorKind::NotServing => "not serving",
        ErrorKind::ReadOnly => "read-only",
        ErrorKind::OutOfMemory => "full",
        ErrorKind::Overloaded => "overloaded",
        ErrorKind::Refused => "refused",
        _ => "down",
    }
}

/// A rule in the list of limits.
#[derive(Serialize)]
struct ListedRule<'a> {
    name: &'a str,
    #[serde(flatten)]
    rule: &'a Rule,
    /// The calls that it would have denied in shadow mode.
    denied_in_shadow: u64,
}

async fn limits(State(gate): State<Arc<Gate>>) -> Response {
    let rules = gate.rules();
    let listed = rules.named().map(|(name, rule)| {
        let denied_in_shadow = gate.denials.in_shadow(name);
        ListedRule { name, rule, denied_in_shadow }
    });
    Json(listed).into_response()
}

/// Returns the ten keys with the most denials.
async fn top(State(gate): State<Arc<Gate>>) -> Json<Vec<Value>> {
    let top = gate.denials.top(10).into_iter();
    Json(top.map(|((rule, user), denials)| json!({ "rule": rule, "user": user, "denials": denials })).collect())
}
