//! The checks `eviction` and `evicted`.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::node::Node;
use super::servers::Servers;

/// The percentage of the memory limit above which the server is soon full.
const NEARLY_FULL_PERCENT: u64 = 90;

const SET_NOEVICTION: &str = "set `maxmemory-policy noeviction`, or use a dedicated Redis";

/// Checks that no server evicts keys, and that none is full.
pub(super) async fn check_eviction(servers: &Servers) -> Finding {
    let mut findings = Vec::new();
    for node in servers.all() {
        findings.push((node.name.clone(), eviction_of(node).await));
    }
    Finding::of_servers(findings)
}

/// Checks that no server has evicted keys.
pub(super) async fn check_evicted(servers: &Servers) -> Finding {
    let mut findings = Vec::new();
    for node in servers.all() {
        let finding = match node.info("stats").await {
            Ok(stats) => judge_evicted(&stats),
            Err(refusal) => Finding::unknown(
                refusal.of("INFO"),
                "permit `+info` to the user of this check, or read `evicted_keys` at the provider",
            ),
        };
        findings.push((node.name.clone(), finding));
    }
    Finding::of_servers(findings)
}

async fn eviction_of(node: &Node) -> Finding {
    // Managed services refuse CONFIG, and INFO has the same.
    let configured = node.setting("maxmemory-policy").await;
    let memory = node.info("memory").await;
    let of_info = |name: &str| memory.as_ref().ok().and_then(|memory| memory.get(name).cloned());
    let policy = configured.as_ref().ok().cloned().flatten().or_else(|| of_info("maxmemory_policy"));
    let number = |name: &str| of_info(name)?.parse().ok();
    match policy {
        Some(policy) => judge_eviction(&policy, number("used_memory"), number("maxmemory")),
        None => Finding::unknown(
            [configured.err().map(|refusal| refusal.of("CONFIG")), memory.err().map(|refusal| refusal.of("INFO"))]
                .into_iter()
                .flatten()
                .chain(["the policy is not known".to_owned()])
                .collect::<Vec<_>>()
                .join(", "),
            "permit `+info` to the user of this check, or make sure at the provider that `maxmemory-policy` is \
             `noeviction`",
        ),
    }
}

fn judge_eviction(policy: &str, used: Option<u64>, limit: Option<u64>) -> Finding {
    let evicts = policy != "noeviction";
    let Some(limit) = limit else {
        let finding = format!("maxmemory-policy is {policy}");
        return if evicts { Finding::fail(finding, SET_NOEVICTION) } else { Finding::ok(finding) };
    };
    if limit == 0 {
        let finding = format!("maxmemory-policy is {policy}, and maxmemory is not set");
        return if evicts { Finding::warn(finding, SET_NOEVICTION) } else { Finding::ok(finding) };
    }
    let percent = used.map_or(0, |used| used.saturating_mul(100) / limit);
    if evicts {
        let finding = format!(
            "maxmemory-policy is {policy}, and {percent} % of maxmemory are used: an evicted key is a fresh quota"
        );
        return Finding::fail(finding, SET_NOEVICTION);
    }
    let finding = format!("maxmemory-policy is {policy}, and {percent} % of maxmemory are used");
    let raise = "raise `maxmemory`, or use a dedicated Redis";
    match percent {
        100.. => Finding::fail(format!("{finding}: the server refuses to count"), raise),
        NEARLY_FULL_PERCENT.. => Finding::warn(format!("{finding}: a full server refuses to count"), raise),
        _ => Finding::ok(finding),
    }
}

fn judge_evicted(stats: &BTreeMap<String, String>) -> Finding {
    match stats.get("evicted_keys").and_then(|count| count.parse::<u64>().ok()) {
        Some(0) => Finding::ok("no key was evicted since the server started"),
        Some(count) => Finding::warn(
            format!("{count} keys were evicted: each one of the limiter was a fresh quota"),
            "set `maxmemory-policy noeviction`, then `CONFIG RESETSTAT`",
        ),
        None => Finding::unknown("INFO has no `evicted_keys`", "read the number of evicted keys at the provider"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn a_policy_that_evicts_fails_once_memory_is_limited() {
        let cases = [
            ("noeviction", None, None, Status::Ok),
            ("noeviction", Some(1), Some(0), Status::Ok),
            ("noeviction", Some(89), Some(100), Status::Ok),
            ("noeviction", Some(90), Some(100), Status::Warn),
            ("noeviction", Some(101), Some(100), Status::Fail),
            ("allkeys-lru", None, None, Status::Fail),
            ("allkeys-lru", Some(1), Some(0), Status::Warn),
            ("volatile-ttl", Some(1), Some(100), Status::Fail),
        ];
        for (policy, used, limit, status) in cases {
            let finding = judge_eviction(policy, used, limit);
            assert_eq!(finding.status, status, "{policy} {used:?} {limit:?}");
            assert!(finding.finding.contains(policy));
            assert_eq!(finding.fix.is_some(), status != Status::Ok);
        }
    }

    #[test]
    fn evicted_keys_are_a_warning() {
        let stats = |count: &str| BTreeMap::from([("evicted_keys".to_owned(), count.to_owned())]);
        assert_eq!(judge_evicted(&stats("0")).status, Status::Ok);
        assert_eq!(judge_evicted(&stats("7")).status, Status::Warn);
        assert_eq!(judge_evicted(&BTreeMap::new()).status, Status::Unknown);
    }
}
