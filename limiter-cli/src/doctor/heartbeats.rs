//! The check `heartbeats`: a limiter writes some, so that it is listed as an instance.

use rate_limited::redis::{Cmd, cmd};

use super::finding::Finding;
use super::node::{Node, Refusal};
use super::permissions::shown;
use super::servers::Servers;

/// Names each permission for heartbeats that a user lacks on any server. No command here changes anything.
pub(super) async fn check(servers: &Servers, prefix: &str) -> Finding {
    let mut findings = Vec::new();
    for node in servers.all() {
        findings.push((node.name.clone(), heartbeats_of(node, prefix).await));
    }
    Finding::of_servers(findings)
}

/// Returns the commands of a heartbeat that calls do not need, each with the ACL rule that permits it, on a name that no
/// key has. The first one is needed by calls too, so it shows the pattern of the keys.
fn needed(name: &str) -> [(&'static str, Cmd); 9] {
    let command = |words: &[&str]| {
        let mut command = cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        command
    };
    [
        ("+pexpire", command(&["PEXPIRE", name, "1"])),
        ("+zadd", command(&["ZADD", name, "XX", "1", "a"])), // XX: there is no such member, so it is not added
        ("+zrem", command(&["ZREM", name, "a"])),
        ("+zremrangebyscore", command(&["ZREMRANGEBYSCORE", name, "1", "1"])),
        ("+zcard", command(&["ZCARD", name])),
        ("+hset", command(&["HSET", name, "a", "1", "b"])), // without the second value it is rejected, after the permission
        ("+hdel", command(&["HDEL", name, "a"])),
        ("+hlen", command(&["HLEN", name])),
        ("+hgetall", command(&["HGETALL", name])),
    ]
}

/// Returns the ACL rules of commands that the user lacks, after the pattern of the keys if that is missing too.
///
/// # Errors
/// The finding about a server that sends no reply.
pub(super) async fn missing_rules<'a>(
    node: &Node,
    commands: &[(&'a str, Cmd)],
    pattern: &'a str,
) -> Result<Vec<&'a str>, Finding> {
    let mut missing = Vec::new();
    for (rule, command) in commands {
        match node.send(command).await {
            Err(Refusal::Command) => missing.push(*rule),
            Err(Refusal::Pattern) if missing.first() != Some(&pattern) => missing.insert(0, pattern),
            Err(refusal @ Refusal::NoReply(_)) => {
                let reason = format!("not checked: {}", refusal.reason());
                return Err(Finding::unknown(reason, "solve `connect` first"));
            }
            Ok(_) | Err(Refusal::Pattern | Refusal::Missing | Refusal::Server(_)) => {}
        }
    }
    Ok(missing)
}

async fn heartbeats_of(node: &Node, prefix: &str) -> Finding {
    let (name, pattern) = (format!("{prefix}-live:{{{prefix}}}:doctor"), format!("~{prefix}-live:*"));
    let missing = match missing_rules(node, &needed(&name), &pattern).await {
        Ok(missing) => missing,
        Err(finding) => return finding,
    };
    if missing.is_empty() {
        return Finding::ok("a limiter of this user is listed as an instance");
    }
    let (user, rules) = (shown(&node.user), missing.join(" "));
    Finding::warn(
        format!("the user lacks {rules}: its limiters are not listed as instances"),
        format!("on each server: `ACL SETUSER {user} {rules}`, or turn them off by `Builder::presence(false)`"),
    )
}
