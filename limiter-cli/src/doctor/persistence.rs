//! The check `persistence`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::finding::Finding;
use super::latency::DEADLINE;
use super::node::Node;
use super::servers::Servers;

/// Checks that snapshots and the append-only file neither stop nor delay calls. Counts need neither of them, and shared
/// rules one of them. `has_rules` is `None` if that is not known.
pub(super) async fn check(servers: &Servers, has_rules: Option<bool>) -> Finding {
    let mut findings = Vec::new();
    for node in servers.all() {
        findings.push((node.name.clone(), persistence_of(node, has_rules).await));
    }
    Finding::of_servers(findings)
}

async fn persistence_of(node: &Node, has_rules: Option<bool>) -> Finding {
    let info = match node.info("persistence").await {
        Ok(info) => info,
        Err(refusal) => {
            return Finding::unknown(refusal.of("INFO"), "permit `+info` to the user of this check");
        }
    };
    let mut facts = info;
    facts.extend(node.info("stats").await.unwrap_or_default());
    for setting in ["save", "appendfsync", "stop-writes-on-bgsave-error"] {
        facts.extend(node.setting(setting).await.ok().flatten().map(|value| (setting.to_owned(), value)));
    }
    judge(&facts, has_rules)
}

fn judge(facts: &BTreeMap<String, String>, has_rules: Option<bool>) -> Finding {
    let fact = |name: &str| facts.get(name).map_or("", String::as_str);
    if fact("loading") == "1" {
        return Finding::warn("the server is loading its data", "wait until it has loaded them");
    }
    let has_log = fact("aof_enabled") == "1";
    if has_log && fact("aof_last_write_status") == "err" {
        return Finding::fail(
            "the last write to the append-only file failed: the server rejects writes",
            "free space on the server's disk, or switch `appendonly` off",
        );
    }
    if fact("rdb_last_bgsave_status") == "err" {
        let remedy = "free space on the server's disk, or switch snapshots off with `save \"\"`";
        return match fact("stop-writes-on-bgsave-error") {
            "no" => Finding::warn("the last snapshot failed", remedy),
            _ => Finding::fail("the last snapshot failed: the server rejects writes", remedy),
        };
    }
    if has_log && fact("appendfsync") == "always" {
        return Finding::warn(
            "`appendfsync always` writes each decision to the disk before its reply",
            "set `appendfsync everysec`, or switch `appendonly` off: counts do not need it",
        );
    }
    let fork = Duration::from_micros(fact("latest_fork_usec").parse().unwrap_or(0));
    if fork >= DEADLINE {
        return Finding::warn(
            format!("the last fork for a snapshot stopped the server for {} ms", fork.as_millis()),
            "switch snapshots off with `save \"\"`, or use a dedicated Redis: counts do not need them",
        );
    }
    if has_rules == Some(true) && !has_log && facts.get("save").is_some_and(String::is_empty) {
        return Finding::warn(
            "no snapshots, no append-only file: a restart loses the shared rules, unless a process puts them back",
            "set `appendonly yes`, or permit the processes to put them back, and give them a `shared_rules_cache`",
        );
    }
    let snapshots = match facts.get("save").map(String::as_str) {
        Some("") => "no snapshots",
        Some(_) => "snapshots",
        None => "snapshots not known",
    };
    let log = if has_log { "an append-only file" } else { "no append-only file" };
    let need = match has_rules {
        Some(true) => "shared rules need one of them",
        Some(false) => "the limiter needs neither",
        None => "shared rules, which could not be read, would need one of them",
    };
    Finding::ok(format!("{snapshots}, {log}; {need}"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    type Facts = &'static [(&'static str, &'static str)];

    #[test]
    fn persistence_that_stops_or_delays_calls_is_found() {
        let cases: [(Facts, Status, &str); 9] = [
            (&[], Status::Ok, "snapshots not known, no append-only file"),
            (&[("save", ""), ("aof_enabled", "0")], Status::Ok, "no snapshots, no append-only file"),
            (&[("save", "3600 1"), ("aof_enabled", "1")], Status::Ok, "snapshots, an append-only file"),
            (&[("loading", "1")], Status::Warn, "is loading"),
            (&[("aof_enabled", "1"), ("aof_last_write_status", "err")], Status::Fail, "append-only file failed"),
            (&[("rdb_last_bgsave_status", "err")], Status::Fail, "rejects writes"),
            (
                &[("rdb_last_bgsave_status", "err"), ("stop-writes-on-bgsave-error", "no")],
                Status::Warn,
                "the last snapshot failed",
            ),
            (&[("aof_enabled", "1"), ("appendfsync", "always")], Status::Warn, "appendfsync always"),
            (&[("latest_fork_usec", "350000")], Status::Warn, "for 350 ms"),
        ];
        for (facts, status, text) in cases {
            let facts = facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let finding = judge(&facts, Some(false));
            assert!(finding.status == status && finding.finding.contains(text), "{finding:?}");
        }
    }

    #[test]
    fn shared_rules_without_persistence_are_a_warning() {
        let cases: [(Facts, Status, &str); 4] = [
            (&[("save", ""), ("aof_enabled", "0")], Status::Warn, "a restart loses the shared rules"),
            (&[("save", ""), ("aof_enabled", "1")], Status::Ok, "shared rules need one of them"),
            (&[("save", "3600 1")], Status::Ok, "shared rules need one of them"),
            (&[], Status::Ok, "snapshots not known"),
        ];
        for (facts, status, text) in cases {
            let facts = facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let finding = judge(&facts, Some(true));
            assert!(finding.status == status && finding.finding.contains(text), "{finding:?}");
        }
        let unknown = judge(&BTreeMap::from([("save".to_owned(), String::new())]), None);
        assert!(unknown.status == Status::Ok && unknown.finding.contains("would need one"), "{unknown:?}");
    }
}
