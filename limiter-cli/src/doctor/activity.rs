//! The check `activity`: a limiter may write its activity, if the program turns that on.

use rate_limited::redis::cmd;

use super::finding::Finding;
use super::heartbeats::missing_rules;
use super::node::Node;
use super::permissions::shown;
use super::servers::Servers;

/// Names each permission for activity that a user lacks on any server. No command here changes anything.
pub(super) async fn check(servers: &Servers, prefix: &str) -> Finding {
    let mut findings = Vec::new();
    for node in servers.all() {
        findings.push((node.name.clone(), activity_of(node, prefix).await));
    }
    Finding::of_servers(findings)
}

async fn activity_of(node: &Node, prefix: &str) -> Finding {
    let (name, pattern) = (format!("{prefix}-live:{{{prefix}}}:doctor"), format!("~{prefix}-live:*"));
    let commands = [
        ("+pexpire", cmd("PEXPIRE").arg(&name).arg(1).clone()),
        ("+xtrim", cmd("XTRIM").arg(&name).arg("MAXLEN").arg(0).clone()),
        // There is no such stream, so nothing is added.
        ("+xadd", cmd("XADD").arg(&name).arg("NOMKSTREAM").arg("*").arg("a").arg("b").clone()),
    ];
    let missing = match missing_rules(node, &commands, &pattern).await {
        Ok(missing) => missing,
        Err(finding) => return finding,
    };
    if missing.is_empty() {
        return Finding::ok("a limiter of this user may write its activity");
    }
    let (user, rules) = (shown(&node.user), missing.join(" "));
    Finding::unknown(
        format!("the user lacks {rules}: its limiters write no activity"),
        format!("with `Builder::activity`, on each server: `ACL SETUSER {user} {rules}`"),
    )
}
