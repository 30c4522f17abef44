//! The check `packed`: counts of packed rules are in hashes, which no other count needs.

use rate_limited::redis::{Cmd, cmd};

use super::finding::Finding;
use super::heartbeats::missing_rules;
use super::node::Node;
use super::permissions::shown;
use super::servers::Servers;

/// The permission without which dead counts stay for as long as their hash.
const OF_SWEEPS: &str = "+hrandfield";

/// Names each permission for packed rules that a user lacks on any server. `is_used` if a shared rule is packed; those of
/// programs are not known here. No command changes anything.
pub(super) async fn check(servers: &Servers, prefix: &str, is_used: bool) -> Finding {
    let mut findings = Vec::new();
    for node in servers.all() {
        findings.push((node.name.clone(), packed_of(node, prefix, is_used).await));
    }
    Finding::of_servers(findings)
}

/// Returns the commands on a hash, each with the ACL rule that permits it, on a name that no hash has.
fn needed(name: &str) -> [(&'static str, Cmd); 6] {
    [
        ("+hget", cmd("HGET").arg(name).arg("a").clone()),
        // Without the second value it is rejected, after the permission.
        ("+hset", cmd("HSET").arg(name).arg("a").arg("1").arg("b").clone()),
        ("+hdel", cmd("HDEL").arg(name).arg("a").clone()),
        ("+pttl", cmd("PTTL").arg(name).clone()),
        ("+pexpire", cmd("PEXPIRE").arg(name).arg(1).clone()),
        (OF_SWEEPS, cmd("HRANDFIELD").arg(name).arg(1).clone()),
    ]
}

async fn packed_of(node: &Node, prefix: &str, is_used: bool) -> Finding {
    let pattern = format!("~{prefix}#*");
    let missing = match missing_rules(node, &needed(&format!("{prefix}#doctor/14:{{doctor}}0")), &pattern).await {
        Ok(missing) => missing,
        Err(finding) => return finding,
    };
    if missing.is_empty() {
        return Finding::ok("a limiter of this user may have packed rules");
    }
    let (user, rules) = (shown(&node.user), missing.join(" "));
    let fix = format!("with packed rules, on each server: `ACL SETUSER {user} {rules}`");
    if missing == [OF_SWEEPS] {
        return Finding::warn(format!("the user lacks {rules}: dead counts of packed rules stay with their hash"), fix);
    }
    let finding = format!("the user lacks {rules}: calls of packed rules fail");
    if is_used { Finding::fail(finding, fix) } else { Finding::unknown(finding, fix) }
}
