//! The routes of the service, with their limits.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use rate_limited::{HealthState, Limiter, rate_limited};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::denials::Denials;
use crate::reply::{LimitHeaders, Rejection, limit_headers, refund};

/// The permits that a report takes before its cost is known.
const REPORT_COST: u32 = 10;

/// Returns the routes.
pub(crate) fn router(denials: Arc<Denials>) -> Router {
    Router::new()
        .route("/quote/{user}", get(quote))
        .route("/order/{user}", post(order))
        .route("/login", post(login))
        .route("/report/{tenant}", get(report))
        .route("/healthz", get(|| async { "alive" }))
        .route("/readyz", get(readyz))
        .route("/admin/limits", get(limits))
        .route("/admin/top", get(top))
        .with_state(denials)
}

#[rate_limited(key = "quote:{user}", name = "quote", limit = configured, permit = allowed)]
async fn quote(Path(user): Path<String>) -> Result<(LimitHeaders, Json<Value>), Rejection> {
    Ok((limit_headers(&allowed), Json(json!({ "price": 42 }))))
}

#[rate_limited(key = "order:{user}", name = "order", limit = configured, permit = allowed)]
#[rate_limited("order-all")]
async fn order(Path(user): Path<String>) -> Result<(StatusCode, LimitHeaders, Json<Value>), Rejection> {
    Ok((StatusCode::CREATED, limit_headers(&allowed), Json(json!({ "ordered_by": user }))))
}

/// The body of a login.
#[derive(Deserialize)]
struct Credentials {
    account: String,
    password: String,
}

/// Checks a password. Only failed logins count.
#[rate_limited(key = "login:{account}", name = "login", limit = configured, permit = allowed)]
async fn login(
    Json(Credentials { account, password }): Json<Credentials>,
) -> Result<(StatusCode, LimitHeaders, Json<Value>), Rejection> {
    if password != "open sesame" {
        return Ok((StatusCode::UNAUTHORIZED, limit_headers(&allowed), Json(json!({ "error": "wrong password" }))));
    }
    Ok((StatusCode::OK, refund(&allowed, 1).await, Json(json!({ "account": account }))))
}

/// Writes a report. Each of its sections costs a permit, and their number is known only afterwards.
#[rate_limited(key = "report:{tenant}", name = "report", limit = configured, cost = REPORT_COST, permit = allowed)]
async fn report(Path(tenant): Path<String>) -> Result<(LimitHeaders, Json<Value>), Rejection> {
    let sections = write_sections(&tenant);
    let used = u32::try_from(sections.len()).unwrap_or(REPORT_COST);
    let headers = refund(&allowed, REPORT_COST.saturating_sub(used)).await;
    Ok((headers, Json(json!({ "sections": sections }))))
}

/// Writes a section for each letter of the tenant's name, at most as many as were paid for.
fn write_sections(tenant: &str) -> Vec<String> {
    tenant.chars().take(REPORT_COST as usize).map(|letter| format!("section {letter}")).collect()
}

/// Returns the state of the limiter's store.
async fn readyz() -> (StatusCode, Json<Value>) {
    let state = Limiter::current().health().state;
    let status = if state == HealthState::Up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "store": state.as_str() })))
}

/// Returns the limits in force.
async fn limits(State(denials): State<Arc<Denials>>) -> Json<Vec<Value>> {
    let rules = Limiter::current().rules().into_iter().map(|rule| {
        json!({
            "name": rule.name(),
            "limits": rule.limits(),
            "mode": rule.mode().as_str(),
            "on_error": rule.on_error(),
            "overrides": rule.overrides(),
            "denied_in_shadow": denials.in_shadow(rule.name()),
        })
    });
    Json(rules.collect())
}

/// Returns the ten keys with the most denials.
async fn top(State(denials): State<Arc<Denials>>) -> Json<Vec<Value>> {
    let top = denials.top(10).into_iter();
    Json(top.map(|((rule, user), denials)| json!({ "rule": rule, "user": user, "denials": denials })).collect())
}
