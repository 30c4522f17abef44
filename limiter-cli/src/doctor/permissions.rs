//! The check `permissions`.
//!
//! Each command is sent on its own, on a name that no counter has. The server checks permissions before all else, also
//! those of commands in scripts, and it checks them alike on a replica. So the result is exact without `ACL DRYRUN`,
//! which few users may call. No command here changes anything.

use std::iter;

use rate_limited::redis::{Cmd, cmd};
use rate_limited::{ErrorKind, Limiter};

use super::finding::{Finding, Status};
use super::node::{Node, Refusal};
use super::probe::Probe;
use super::servers::{Servers, Topology};

/// A well-formed script digest that no script has.
const UNKNOWN_DIGEST: &str = "0000000000000000000000000000000000000000";

/// Names each permission that a user lacks on any server, then runs every operation of the limiter.
pub(super) async fn check(servers: &Servers, limiter: Option<&Limiter>, probe: &Probe, prefix: &str) -> Finding {
    let is_cluster = matches!(servers.topology, Topology::Cluster(_));
    let mut findings = Vec::new();
    for node in servers.all() {
        findings.push((node.name.clone(), permissions_of(node, probe, prefix, is_cluster).await));
    }
    let permissions = Finding::of_servers(findings);
    let (Some(limiter), Status::Ok) = (limiter, permissions.status) else { return permissions };
    for (name, key) in probe.key_of_each_master(limiter, servers) {
        for (operation, result) in probe.run_all_operations(limiter, &key).await {
            let Err(error) = result else { continue };
            if operation == "take" && error.kind() != ErrorKind::Refused {
                // A server that is full or a replica: `scripts` describes it.
                break;
            }
            return Finding::fail(
                format!("{name}: {operation} failed: {error}"),
                "check the other findings, and the server's log",
            );
        }
    }
    permissions
}

/// Returns the commands of a limiter, each with the ACL rule that permits it.
fn needed(name: &str, is_cluster: bool) -> Vec<(&'static str, Cmd)> {
    let command = |words: &[&str]| {
        let mut command = Cmd::new();
        words.iter().for_each(|word| {
            command.arg(*word);
        });
        command
    };
    let mut needed = vec![
        ("+script|load", command(&["SCRIPT", "LOAD", "return 1"])),
        ("+evalsha", command(&["EVALSHA", UNKNOWN_DIGEST, "0"])),
        ("+time", command(&["TIME"])),
        ("+get", command(&["GET", name])),
        ("+mget", command(&["MGET", name])),
        ("+set", command(&["SET", name, "", "XX", "PX", "1"])), // XX: there is no such key, so it is not set
        ("+setrange", command(&["SETRANGE", name, "0", ""])),   // an empty value makes no key
        ("+pexpire", command(&["PEXPIRE", name, "1"])),
        ("+del", command(&["DEL", name])),
    ];
    if is_cluster {
        needed.push(("+cluster|slots", command(&["CLUSTER", "SLOTS"])));
        needed.push(("+asking", command(&["ASKING"])));
    }
    needed
}

async fn permissions_of(node: &Node, probe: &Probe, prefix: &str, is_cluster: bool) -> Finding {
    let pattern = format!("~{prefix}:*");
    let mut missing: Vec<String> = Vec::new();
    let mut permitted = 0;
    for (rule, command) in needed(&probe.unused_name(prefix), is_cluster) {
        let lacking = match node.send(&command).await {
            Err(Refusal::Command) => rule,
            Err(Refusal::Pattern) => &pattern,
            Err(Refusal::NoReply(reason)) => {
                return Finding::unknown(format!("not checked: {reason}"), "solve `connect` first");
            }
            // MOVED, READONLY, NOSCRIPT: the user may send the command.
            Ok(_) | Err(Refusal::Missing | Refusal::Server(_)) => {
                permitted += 1;
                continue;
            }
        };
        if missing.iter().all(|known| known != lacking) {
            missing.push(lacking.to_owned());
        }
    }
    missing.extend(iter::once("+select".to_owned()).filter(|_| node.lacks_select));
    if missing.is_empty() {
        return Finding::ok(format!("the user has the {permitted} permissions that the limiter needs"));
    }
    missing.sort_by_key(|rule| !rule.starts_with('~'));
    let rules = missing.join(" ");
    Finding::fail(
        format!("the user lacks {rules}"),
        format!(
            "on each server: `ACL SETUSER {} {rules}`, and `ACL SAVE` if it has a file of users",
            shown(&node.user)
        ),
    )
}

/// Returns the name of a user, or a place for it if the name would not be one word.
pub(super) fn shown(user: &str) -> &str {
    if user.chars().all(|letter| letter.is_alphanumeric() || "-_.@".contains(letter)) { user } else { "<user>" }
}

/// Returns a command of a channel that sentinels announce, with the ACL rules that permit it.
pub(super) fn announcements() -> Cmd {
    cmd("SUBSCRIBE").arg("+switch-master").clone()
}
