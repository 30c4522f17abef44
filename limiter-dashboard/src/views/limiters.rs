//! The limiters that live.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rate_limited::Instance;
use serde_json::{Value, json};

use crate::answer::{Problem, json_response};
use crate::routes::{Service, Trusted};
use crate::series::unix_millis;

/// The most limiters that are listed.
const MAX_LIMITERS: usize = 5_000;

/// Returns the limiters, in the order of their start.
pub(crate) async fn list(_: Trusted, State(service): State<Arc<Service>>) -> Result<Response, Problem> {
    let instances = service.limiter.instances().await?;
    let limiters: Vec<_> = instances.iter().take(MAX_LIMITERS).map(limiter_json).collect();
    let left_out = instances.len().saturating_sub(MAX_LIMITERS);
    Ok(json_response(StatusCode::OK, &json!({ "limiters": limiters, "left_out": left_out })))
}

fn limiter_json(instance: &Instance) -> Value {
    json!({
        "id": instance.id,
        "host": instance.host,
        "pid": instance.pid,
        "version": instance.version,
        "since": unix_millis(instance.since),
        "last_seen": unix_millis(instance.last_seen),
        "rules_version": instance.rules_version,
        "store": instance.state,
        "inventory": instance.inventory,
    })
}
