//! The check `version`.

use rate_limited::redis::cmd;

use super::finding::Finding;
use super::node::{Node, field, printable};
use super::servers::Servers;

/// The oldest supported version of Redis: major and minor number.
const MIN_REDIS: (u32, u32) = (6, 2);

const SUPPORTED: &str = "use Redis 6.2 or later, or Valkey";

/// Reads the version of each server. Every user may send HELLO; INFO names forks that HELLO does not.
pub(super) async fn check(servers: &Servers) -> Finding {
    let mut findings = Vec::new();
    for node in servers.all() {
        findings.push((node.name.clone(), judge(&identify(node).await)));
    }
    Finding::of_servers(findings)
}

/// The name and the version of a server.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    product: &'static str,
    version: String,
}

async fn identify(node: &Node) -> Option<Identity> {
    let hello = node.send(&cmd("HELLO")).await.ok();
    let info = node.info("server").await.unwrap_or_default();
    let hello_field = |name: &str| hello.as_ref().and_then(|reply| field(reply, name));
    let info_field = |name: &str| info.get(name).cloned();
    identity(hello_field, info_field)
}

fn identity(hello: impl Fn(&str) -> Option<String>, info: impl Fn(&str) -> Option<String>) -> Option<Identity> {
    let contains = |name: &str, part: &str| info(name).is_some_and(|value| value.to_lowercase().contains(part));
    let (product, version) = if let Some(version) = info("dragonfly_version") {
        ("Dragonfly", Some(version.trim_start_matches("df-v").to_owned()))
    } else if info("valkey_version").is_some() || hello("server").as_deref() == Some("valkey") {
        ("Valkey", info("valkey_version").or_else(|| hello("version")))
    } else if contains("executable", "keydb") || contains("server_name", "keydb") {
        ("KeyDB", info("redis_version").or_else(|| hello("version")))
    } else {
        ("Redis", info("redis_version").or_else(|| hello("version")))
    };
    Some(Identity { product, version: printable(&version?) })
}

fn judge(identity: &Option<Identity>) -> Finding {
    let Some(Identity { product, version }) = identity else {
        return Finding::unknown(
            "the server does not report its version",
            "check that it is Redis 6.2 or later, or Valkey",
        );
    };
    let named = format!("{product} {version}");
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    match (*product, numbers.next().zip(numbers.next())) {
        ("Valkey", _) => Finding::ok(named),
        ("Redis", Some(numbers)) if numbers >= MIN_REDIS => Finding::ok(named),
        ("Redis", Some(_)) => Finding::fail(format!("{named} is older than Redis 6.2"), SUPPORTED),
        ("Redis", None) => Finding::unknown(format!("{named} is no version number"), SUPPORTED),
        _ => Finding::warn(format!("{named}: the limiter is not tested on it"), SUPPORTED),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    type Fields = &'static [(&'static str, &'static str)];

    #[test]
    fn forks_are_named_and_old_versions_fail() {
        let cases: [(Fields, Fields, &str, Status); 8] = [
            (&[("server", "redis"), ("version", "7.0.15")], &[], "Redis 7.0.15", Status::Ok),
            (&[], &[("redis_version", "6.2.0")], "Redis 6.2.0", Status::Ok),
            (&[("server", "redis"), ("version", "6.0.16")], &[], "Redis 6.0.16 is older than Redis 6.2", Status::Fail),
            (
                &[("server", "redis"), ("version", "7.2.4")],
                &[("redis_version", "7.2.4"), ("valkey_version", "8.1.0")],
                "Valkey 8.1.0",
                Status::Ok,
            ),
            (&[("server", "valkey"), ("version", "9.0.1")], &[], "Valkey 9.0.1", Status::Ok),
            (
                &[("server", "redis"), ("version", "6.3.4")],
                &[("redis_version", "6.3.4"), ("executable", "/usr/bin/keydb-server")],
                "KeyDB 6.3.4: the limiter is not tested on it",
                Status::Warn,
            ),
            (
                &[("server", "redis"), ("version", "7.4.0")],
                &[("redis_version", "7.4.0"), ("dragonfly_version", "df-v1.30.0")],
                "Dragonfly 1.30.0: the limiter is not tested on it",
                Status::Warn,
            ),
            (&[], &[], "the server does not report its version", Status::Unknown),
        ];
        for (hello, info, finding, status) in cases {
            let find = |fields: &[(&str, &str)], name: &str| {
                fields.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            let judged = judge(&identity(|name| find(hello, name), |name| find(info, name)));
            assert_eq!((&judged.finding[..], judged.status), (finding, status));
        }
    }
}
