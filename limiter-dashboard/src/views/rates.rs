//! The rates of a rule over time, and the rules in force.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use limiter_inspect::{Fleet, LiveLimits, LiveRule, RuleOutline, outline};
use rate_limited::{Limit, SharedRules};
use serde_json::{Value, json};

use crate::answer::{Problem, json_response};
use crate::routes::{Service, Trusted};

/// The most rules that are listed.
const MAX_RULES: usize = 2_000;

/// Returns the rates of a rule over time. They are counts, so no token is needed.
pub(crate) async fn series(State(service): State<Arc<Service>>, Path(rule): Path<String>) -> Response {
    let points = service.feed.series(&rule).await;
    json_response(StatusCode::OK, &json!({ "rule": rule, "points": points }))
}

/// Returns the rules of limiters that live and of the shared text: limits, mode and origin.
pub(crate) async fn in_force(_: Trusted, State(service): State<Arc<Service>>) -> Result<Response, Problem> {
    let fleet = Fleet::read(&service.limiter).await?;
    let published = SharedRules::new(&service.limiter).read().await?;
    let shared = outline(&published.toml);
    let live = fleet.rules().map(|(name, rule)| rule_json(name, Some(rule), shared.get(name)));
    let alone = shared.iter().filter(|(name, _)| fleet.rule(name).is_none());
    let alone = alone.map(|(name, outline)| rule_json(name, None, Some(outline)));
    let rules: Vec<_> = live.chain(alone).take(MAX_RULES).collect();
    Ok(json_response(StatusCode::OK, &json!({ "version": published.version, "rules": rules })))
}

fn rule_json(name: &str, live: Option<&LiveRule>, shared: Option<&RuleOutline>) -> Value {
    let mut rule = json!({ "rule": name, "limiters": 0, "limits": [], "others": [] });
    if let Some((most, others)) = live.and_then(LiveRule::by_limiters) {
        rule["limits"] = limits(most);
        rule["mode"] = json!(most.mode.as_str());
        rule["origin"] = json!(most.origin);
        rule["limiters"] = json!(most.limiters);
        let other = |other: &LiveLimits| json!({ "limits": limits(other), "mode": other.mode.as_str(), "limiters": other.limiters });
        rule["others"] = others.into_iter().map(other).collect();
    }
    rule["keys"] = json!(live.map(|live| &live.keys));
    if let Some(RuleOutline { line, overrides, mode, limits }) = shared {
        rule["shared"] = json!({ "line": line, "overrides": overrides, "mode": mode, "limits": limits });
    }
    rule
}

fn limits(found: &LiveLimits) -> Value {
    found.limits.iter().map(Limit::to_string).chain(found.unread.iter().cloned()).collect()
}
