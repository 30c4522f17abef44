//! The check `operator`: a user publishes shared rules, and reads what limiters write. Each task needs permissions of its own.

use rate_limited::redis::{Cmd, cmd};

use super::finding::{Finding, Status};
use super::heartbeats::missing_rules;
use super::node::Node;
use super::permissions::shown;
use super::servers::Servers;

/// A well-formed script digest that no script has.
const UNKNOWN_DIGEST: &str = "0000000000000000000000000000000000000000";
/// The milliseconds for which the name of this check exists.
const LIFE: &str = "10000";

/// Names all permissions of an operator that the user lacks on any server. A name of this check is written, which expires.
pub(super) async fn check(servers: &Servers, prefix: &str) -> Finding {
    let mut findings = Vec::new();
    for node in servers.all() {
        findings.push((node.name.clone(), permissions_of(node, prefix).await.unwrap_or_else(|finding| finding)));
    }
    Finding::of_servers(findings)
}

async fn permissions_of(node: &Node, prefix: &str) -> Result<Finding, Finding> {
    let (rules, live) = (format!("{prefix}-rules:{{rules}}:doctor"), format!("{prefix}-live:{{{prefix}}}:doctor"));
    let (of_rules, of_live) = (format!("~{prefix}-rules:*"), format!("~{prefix}-live:*"));
    let mut publishing = lacking(node, &to_publish(&rules), &of_rules).await?;
    // Over a text nothing is pushed. Without it there would be a list.
    if publishing.iter().any(|rule| *rule == of_rules || *rule == "+set") {
        publishing.push("+lpush");
    } else {
        publishing.extend(missing_rules(node, &[("+lpush", command(&["LPUSH", &rules, "a"]))], &of_rules).await?);
    }
    let listing = lacking(node, &to_list(&live), &of_live).await?;
    let reading = [("+xrevrange", command(&["XREVRANGE", &live, "+", "-", "COUNT", "1"]))];
    let reading = missing_rules(node, &reading, &of_live).await?;
    let status = match (publishing.is_empty(), listing.is_empty() && reading.is_empty()) {
        (true, true) => return Ok(Finding::ok("the user publishes shared rules, lists limiters and reads activity")),
        (true, false) => Status::Warn,
        (false, _) => Status::Fail,
    };
    let tasks = [(&publishing, "publish rules"), (&listing, "list limiters"), (&reading, "read activity")];
    let tasks = tasks.iter().filter(|(missing, _)| !missing.is_empty());
    let tasks: Vec<_> = tasks.map(|(missing, task)| format!("{} to {task}", missing.join(" "))).collect();
    let mut all = Vec::new();
    for rule in [publishing, listing, reading].concat() {
        if !all.contains(&rule) {
            all.push(rule);
        }
    }
    all.sort_by_key(|rule| !rule.starts_with('~'));
    let fix = format!("on each server: `ACL SETUSER {} {}`", shown(&node.user), all.join(" "));
    Ok(Finding { status, ..Finding::fail(format!("the user lacks {}", tasks.join(", ")), fix) })
}

/// Returns the ACL rules that the user lacks. Without any command on keys nothing shows the pattern, so it is one of them.
async fn lacking<'a>(node: &Node, commands: &[(&'a str, Cmd)], pattern: &'a str) -> Result<Vec<&'a str>, Finding> {
    let mut missing = missing_rules(node, commands, pattern).await?;
    let mut on_keys = commands.iter().filter(|(rule, _)| !["+script|load", "+evalsha", "+time"].contains(rule));
    if on_keys.all(|(rule, _)| missing.contains(rule)) {
        missing.insert(0, pattern);
    }
    Ok(missing)
}

fn command(words: &[&str]) -> Cmd {
    let mut command = cmd(words[0]);
    words[1..].iter().for_each(|word| {
        command.arg(*word);
    });
    command
}

/// Returns the commands of a publication but for LPUSH, each with the ACL rule that permits it.
fn to_publish(name: &str) -> [(&'static str, Cmd); 8] {
    [
        ("+script|load", command(&["SCRIPT", "LOAD", "return 1"])),
        ("+evalsha", command(&["EVALSHA", UNKNOWN_DIGEST, "0"])),
        ("+time", command(&["TIME"])),
        ("+get", command(&["GET", name])),
        ("+mget", command(&["MGET", name])),
        ("+ltrim", command(&["LTRIM", name, "0", "0"])),
        ("+lrange", command(&["LRANGE", name, "0", "0"])),
        ("+set", command(&["SET", name, "", "PX", LIFE])),
    ]
}

/// Returns the commands that list limiters.
fn to_list(name: &str) -> [(&'static str, Cmd); 4] {
    [
        ("+time", command(&["TIME"])),
        ("+hgetall", command(&["HGETALL", name])),
        ("+zrange", command(&["ZRANGE", name, "0", "0"])),
        ("+get", command(&["GET", name])),
    ]
}
