//! `limiter doctor`: checks of the store.

use std::time::Instant;

use serde_json::{Value, json};

use crate::arguments::DoctorArguments;
use crate::connection::Connection;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

mod activity;
mod clock;
mod cluster;
mod connect;
mod deployment;
mod finding;
mod heartbeats;
mod latency;
mod memory;
mod node;
mod notices;
mod operator;
mod packed;
mod permissions;
mod persistence;
mod probe;
mod rules;
mod scripts;
mod sentinel;
mod servers;
mod slot_map;
mod table;
mod version;

use deployment::Deployment;
use finding::{Finding, Status};
use probe::Probe;
use servers::Servers;

/// The findings, each with the name of its check.
type Results = Vec<(&'static str, Finding)>;

/// Checks the store and writes the findings.
///
/// The exit code is that of a failed store if a check fails, whatever the check.
///
/// # Errors
/// The URL or an option is wrong, or the output cannot be written.
pub(crate) async fn run(
    arguments: &DoctorArguments,
    connection: &Connection,
    output: &mut Output,
) -> Result<Exit, Failure> {
    connection.require_shared("doctor")?;
    let results = run_all(arguments, connection).await?;
    let written = if output.is_json() {
        output.json(&Value::Array(results.iter().map(as_json).collect()))
    } else {
        table::write(&results, output)
    };
    let has_failed = results.iter().any(|(_, finding)| finding.status == Status::Fail);
    Ok(output.settle(written, if has_failed { Exit::STORE } else { Exit::SUCCESS }))
}

async fn run_all(arguments: &DoctorArguments, connection: &Connection) -> Result<Results, Failure> {
    // Wrong options are an error of the command line, and no finding. Nothing is sent before the first call.
    drop(connection.builder().build()?);
    let probe = Probe::new()?;
    let started = Instant::now();
    let connected = connection.builder().connect().await;
    let time = started.elapsed();
    let limiter = connected.as_ref().ok();

    let deployment = Deployment::from_url(connection.url());
    let servers = match &deployment {
        Some(deployment) => Servers::find(deployment).await,
        None => Servers::none(),
    };
    let mut results = vec![("connect", connect::check(&connected, time, &servers).await)];
    results.push(("version", version::check(&servers).await));
    if arguments.operator {
        results.push(("operator", operator::check(&servers, connection.prefix()).await));
        return Ok(results);
    }
    results.push(("scripts", scripts::check(&servers, limiter, &probe).await));
    results.push(("permissions", permissions::check(&servers, limiter, &probe, connection.prefix()).await));
    results.push(("eviction", memory::check_eviction(&servers).await));
    results.push(("evicted", memory::check_evicted(&servers).await));
    results.push(("persistence", persistence::check(&servers, rules::are_published(limiter).await).await));
    results.push(("clock", clock::check(&servers).await));
    let latency = match limiter {
        Some(limiter) => latency::check(limiter, &probe).await,
        None => Finding::no_connection(),
    };
    results.push(("latency", latency));
    results.push(("cluster", cluster::check(&servers).await));
    results.push(("sentinel", sentinel::check(&servers).await));
    let rules = match limiter {
        Some(limiter) => rules::check(limiter, connection).await,
        None => Finding::no_connection(),
    };
    results.push(("rules", rules));
    let has_packed_rules = rules::are_packed(connection).await;
    results.push(("packed", packed::check(&servers, connection.prefix(), has_packed_rules).await));
    results.push(("heartbeats", heartbeats::check(&servers, connection.prefix()).await));
    results.push(("activity", activity::check(&servers, connection.prefix()).await));
    results.push(("notices", notices::check(&servers, connection.prefix()).await));
    Ok(results)
}

fn as_json((check, finding): &(&'static str, Finding)) -> Value {
    json!({
        "check": check,
        "status": finding.status.as_str(),
        "finding": finding.finding,
        "fix": finding.fix,
    })
}
