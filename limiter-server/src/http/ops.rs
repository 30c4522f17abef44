//! Routes for operators: the rules, health, metrics, and the description of all routes.

use std::collections::HashMap;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode};
use rate_limited::RuleInForce;
use serde::Serialize;

use super::answer::{bytes_response, json_response, uncached};
use super::problem::HttpProblem;
use crate::service::DecisionService;

/// The description of all routes.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

#[derive(Serialize)]
struct RulesAnswer<'a> {
    rules: Vec<RuleEntry<'a>>,
}

/// A rule as `/v1/rules` shows it. Overrides are left out, since their keys may name customers.
#[derive(Serialize)]
struct RuleEntry<'a> {
    /// The parts of its key; `None` for a key that a caller cannot build.
    values: Option<Vec<&'a str>>,
    #[serde(flatten)]
    settings: Option<&'a RuleInForce>,
}

pub(super) fn rules(service: &DecisionService) -> Response<Body> {
    let (catalog, in_force) = (service.catalog(), service.limiter().rules());
    let by_name: HashMap<_, _> = in_force.iter().map(|rule| (rule.name(), rule)).collect();
    let entries = catalog
        .rules()
        .into_iter()
        .map(|rule| RuleEntry { values: rule.parts(), settings: by_name.get(rule.name()).copied() });
    uncached(json_response(StatusCode::OK, &RulesAnswer { rules: entries.collect() }))
}

pub(super) fn openapi() -> Response<Body> {
    bytes_response(StatusCode::OK, HeaderValue::from_static("application/json"), OPENAPI)
}

#[derive(Serialize)]
struct HealthAnswer {
    healthy: bool,
}

pub(super) fn healthz() -> Response<Body> {
    uncached(json_response(StatusCode::OK, &HealthAnswer { healthy: true }))
}

#[derive(Serialize)]
struct ReadyAnswer {
    ready: bool,
    store: &'static str,
}

/// The server is ready until it ends. Without its store it decides by its failure policy.
pub(super) fn readyz(service: &DecisionService, is_ending: bool) -> Response<Body> {
    let status = if is_ending { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let body = ReadyAnswer { ready: !is_ending, store: service.limiter().health().state.as_str() };
    uncached(json_response(status, &body))
}

pub(super) fn metrics(render: Option<&(dyn Fn() -> String + Send + Sync)>) -> Result<Response<Body>, HttpProblem> {
    let Some(render) = render else {
        let detail = "the program that runs this server renders no metrics";
        return Err(HttpProblem::new(StatusCode::NOT_FOUND, "no-metrics", "There are no metrics", detail));
    };
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(uncached(bytes_response(StatusCode::OK, kind, render())))
}
