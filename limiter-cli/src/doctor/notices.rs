//! The check `notices`: a process that waits for slots is told on a channel when some are free.

use rate_limited::redis::cmd;

use super::finding::Finding;
use super::node::{Node, Refusal};
use super::permissions::shown;
use super::servers::Servers;

/// Names each permission for notices that a user lacks on any server. The connections have subscribed afterwards, so no
/// other check may follow on them.
pub(super) async fn check(servers: &Servers, prefix: &str) -> Finding {
    let mut findings = Vec::new();
    for node in servers.all() {
        findings.push((node.name.clone(), notices_of(node, prefix).await));
    }
    Finding::of_servers(findings)
}

async fn notices_of(node: &Node, prefix: &str) -> Finding {
    let (channel, pattern) = (format!("{prefix}:notices:doctor"), format!("&{prefix}:notices:*"));
    let publish = cmd("PUBLISH").arg(&channel).arg("").clone();
    let subscribe = cmd("SUBSCRIBE").arg(&channel).clone();
    let mut missing = Vec::new();
    for (rule, command) in [("+publish", publish), ("+subscribe", subscribe)] {
        match node.send(&command).await {
            Err(Refusal::Command) => missing.push(rule),
            Err(Refusal::Pattern) => missing.insert(0, &pattern),
            Err(refusal @ Refusal::NoReply(_)) => {
                return Finding::unknown(format!("not checked: {}", refusal.reason()), "solve `connect` first");
            }
            Ok(_) | Err(Refusal::Missing | Refusal::Server(_)) => {}
        }
    }
    missing.dedup();
    if missing.is_empty() {
        return Finding::ok("processes that wait for slots are told when some are free");
    }
    let (user, rules) = (shown(&node.user), missing.join(" "));
    Finding::warn(
        format!("the user lacks {rules}: processes that wait for slots poll every 50 ms"),
        format!("with limits of concurrent calls, on each server: `ACL SETUSER {user} {rules}`"),
    )
}
