//! The check `scripts`.

use rate_limited::redis::{Value, cmd};
use rate_limited::{ErrorKind, Limiter};

use super::finding::Finding;
use super::node::{Node, Refusal, text};
use super::probe::Probe;
use super::servers::Servers;

/// Loads and runs a script on each master, then takes permits by the limiter's own scripts.
pub(super) async fn check(servers: &Servers, limiter: Option<&Limiter>, probe: &Probe) -> Finding {
    let mut findings = Vec::new();
    for node in &servers.masters {
        findings.push((node.name.clone(), scripts_of(node).await));
    }
    let scripts = Finding::of_servers(findings);
    let (Some(limiter), true) = (limiter, scripts.fix.is_none()) else { return scripts };
    let mut decisions = Vec::new();
    for (name, key) in probe.key_of_each_master(limiter, servers) {
        let finding = match limiter.check(&key, probe.limit()).await {
            Ok(_) => Finding::ok("scripts load, and a decision was made"),
            Err(error) => Finding::fail(format!("a decision failed: {error}"), remedy(error.kind())),
        };
        decisions.push((name, finding));
    }
    Finding::of_servers(decisions)
}

async fn scripts_of(node: &Node) -> Finding {
    let loaded = node.send(cmd("SCRIPT").arg("LOAD").arg("return 1")).await;
    let ran = match &loaded {
        Ok(digest) => node.send(cmd("EVALSHA").arg(text(digest)).arg(0)).await,
        Err(refusal) => Err(refusal.clone()),
    };
    let command = if loaded.is_ok() { "EVALSHA" } else { "SCRIPT LOAD" };
    match ran {
        Ok(Value::Int(1)) => Finding::ok("scripts load and run"),
        Ok(_) => Finding::fail("a script returned a wrong value", "use Redis 6.2 or later, or Valkey"),
        Err(refusal @ (Refusal::Command | Refusal::Pattern)) => {
            Finding::fail(refusal.of(command), "permit what `permissions` names")
        }
        Err(refusal @ Refusal::Missing) => {
            Finding::fail(refusal.of(command), "enable scripts, or use Redis 6.2 or later, or Valkey")
        }
        Err(refusal) => Finding::fail(refusal.of(command), "check the server's log, and the connection to it"),
    }
}

fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Refused => "permit what `permissions` names",
        ErrorKind::OutOfMemory => "raise `maxmemory`, or use a dedicated Redis",
        ErrorKind::ReadOnly => "write the URL of the master",
        _ => "check the other findings, and the server's log",
    }
}
