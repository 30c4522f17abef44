//! `limiter instances`: the limiters that live and share the store.

use std::time::{Duration, SystemTime};

use rate_limited::Instance;
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::duration_text;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, visible};
use crate::time_text;

/// Writes the instances, in the order of their start.
pub(crate) async fn run(connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    connection.require_shared("instances")?;
    let instances = connection.limiter().await?.instances().await?;
    if output.is_json() {
        output.json(&Value::Array(instances.iter().map(as_json).collect()))?;
        return Ok(Exit::SUCCESS);
    }
    if instances.is_empty() {
        output.line("no limiter has written a heartbeat: it writes the first one after 10 s")?;
        return Ok(Exit::SUCCESS);
    }
    let mut table = output.table(&["ID", "HOST", "PID", "SINCE", "LAST SEEN", "RULES", "STORE"]);
    for instance in &instances {
        table.add_row(row(instance));
    }
    output.print(table)?;
    Ok(Exit::SUCCESS)
}

fn row(instance: &Instance) -> [String; 7] {
    let Instance { id, host, pid, since, last_seen, rules_version, state, .. } = instance;
    // The server's clock may be ahead.
    let age = SystemTime::now().duration_since(*last_seen).unwrap_or_default();
    let last_seen = format!("{} ago", duration_text::write(Duration::from_secs(age.as_secs())));
    let rules = rules_version.map_or("-".to_owned(), |version| version.to_string());
    [visible(id), visible(host), pid.to_string(), time_text::with_age(*since), last_seen, rules, visible(state)]
}

fn as_json(instance: &Instance) -> Value {
    json!({
        "id": instance.id,
        "host": instance.host,
        "pid": instance.pid,
        "version": instance.version,
        "since": limiter_inspect::rfc3339(instance.since),
        "last_seen": limiter_inspect::rfc3339(instance.last_seen),
        "rules_version": instance.rules_version,
        "store": instance.state,
        "inventory": instance.inventory,
    })
}
