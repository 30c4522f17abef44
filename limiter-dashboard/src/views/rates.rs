//! The rates of a rule over time, and the rules in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use limiter_inspect::{Fleet, LiveLimits, LiveRule, OverrideOutline, RuleOutline, outline, override_outlines};
use rate_limited::{ActivityLog, Limit, Published, SharedRules};
use serde_json::{Value, json};

use crate::answer::{Problem, json_response};
use crate::routes::{Service, Trusted};
use crate::views::shared_rules::compute;

/// The most rules that are listed.
const MAX_RULES: usize = 2_000;
/// The most overrides of a rule that are listed.
const MAX_OVERRIDES: usize = 200;

/// Returns the rates of a rule over time. They are counts, so no token is needed.
pub(crate) async fn series(State(service): State<Arc<Service>>, Path(rule): Path<String>) -> Response {
    let points = service.feed.series(&rule).await;
    json_response(StatusCode::OK, &json!({ "rule": rule, "points": points }))
}

/// Returns the rules of limiters that live and of the shared text: limits, mode and origin.
pub(crate) async fn in_force(_: Trusted, State(service): State<Arc<Service>>) -> Result<Response, Problem> {
    let rules = InForce::read(&service).await?;
    let names = rules.names();
    let shown: Vec<_> = names.iter().take(MAX_RULES).map(|name| rules.to_json(name)).collect();
    let left_out = names.len().saturating_sub(MAX_RULES);
    let answer = json!({ "version": rules.version, "rules": shown, "left_out": left_out });
    Ok(json_response(StatusCode::OK, &answer))
}

/// Returns one of these rules by its name, or by that which activity has of it.
pub(crate) async fn in_force_of(
    _: Trusted,
    State(service): State<Arc<Service>>,
    Path(wanted): Path<String>,
) -> Result<Response, Problem> {
    let rules = InForce::read(&service).await?;
    let names = rules.names();
    let found = names.get(&*wanted).or_else(|| names.iter().find(|name| ActivityLog::name_of_rule(name) == wanted));
    let mut answer = json!({ "version": rules.version, "rule": found.map(|name| rules.to_json(name)) });
    if let Some(name) = found {
        let (toml, name) = (rules.toml.clone(), (*name).to_owned());
        answer["overrides"] = compute(&service, move || overrides(&toml, &name)).await?;
    }
    Ok(json_response(StatusCode::OK, &answer))
}

/// The rules of limiters that live and of the shared text.
struct InForce {
    fleet: Fleet,
    shared: BTreeMap<String, RuleOutline>,
    toml: String,
    version: u64,
}

impl InForce {
    async fn read(service: &Service) -> Result<Self, Problem> {
        let fleet = Fleet::read(&service.limiter).await?;
        let Published { version, toml, .. } = SharedRules::new(&service.limiter).read().await?;
        let (toml, shared) = compute(service, move || {
            let shared = outline(&toml);
            (toml, shared)
        })
        .await?;
        Ok(Self { fleet, shared, toml, version })
    }

    fn names(&self) -> BTreeSet<&str> {
        self.fleet.rules().map(|(name, _)| name).chain(self.shared.keys().map(String::as_str)).collect()
    }

    fn to_json(&self, name: &str) -> Value {
        rule_json(name, self.fleet.rule(name), self.shared.get(name))
    }
}

/// Returns the overrides of a rule in the text, up to a bound.
fn overrides(toml: &str, rule: &str) -> Value {
    let (shown, all) = override_outlines(toml, rule, MAX_OVERRIDES);
    let outline = |OverrideOutline { line, keys, settings }: &OverrideOutline| json!({ "line": line, "keys": keys, "settings": settings });
    json!({ "list": shown.iter().map(outline).collect::<Vec<_>>(), "left_out": all.saturating_sub(shown.len()) })
}

fn rule_json(name: &str, live: Option<&LiveRule>, shared: Option<&RuleOutline>) -> Value {
    let mut rule = json!({ "rule": name, "limiters": 0, "limits": [], "others": [] });
    if let Some((most, others)) = live.and_then(LiveRule::by_limiters) {
        rule["limits"] = limits(most);
        rule["settings"] = most.other_settings().collect();
        rule["mode"] = json!(most.mode.as_str());
        rule["origin"] = json!(most.origin);
        rule["limiters"] = json!(most.limiters);
        let other = |other: &LiveLimits| {
            let settings: Vec<_> = other.other_settings().collect();
            json!({ "limits": limits(other), "settings": settings, "mode": other.mode.as_str(), "limiters": other.limiters })
        };
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
