//! The check `cluster`.

use super::finding::Finding;
use super::node::Refusal;
use super::servers::{Servers, Topology};
use super::slot_map::{SLOTS, Shard, name_of, served_slots};

/// Checks that each slot has a master, and that each node accepts a connection.
pub(super) async fn check(servers: &Servers) -> Finding {
    let shards = match &servers.topology {
        Topology::Cluster(Ok(shards)) => shards,
        Topology::Cluster(Err(Refusal::Command)) => {
            return Finding::fail("CLUSTER SLOTS is not permitted", "permit `+cluster|slots`: the limiter needs it");
        }
        Topology::Cluster(Err(refusal)) => {
            return Finding::fail(
                format!("no node has sent the map of slots: {}", refusal.reason()),
                "check that the nodes of the URL run and form a cluster",
            );
        }
        Topology::Single | Topology::Sentinels { .. } => return Finding::not_applicable("the URL names no cluster"),
    };
    let mut full_coverage = None;
    for node in &servers.masters {
        full_coverage = full_coverage.or(node.setting("cluster-require-full-coverage").await.ok().flatten());
    }
    judge(shards, &servers.unreachable, full_coverage.as_deref())
}

fn judge(shards: &[Shard], unreachable: &[(String, Refusal)], full_coverage: Option<&str>) -> Finding {
    let replicas: usize = shards.iter().map(|shard| shard.replicas.len()).sum();
    let masters = if shards.len() == 1 { "1 master".to_owned() } else { format!("{} masters", shards.len()) };
    let size = format!("{masters}, {replicas} replicas");
    let served = served_slots(shards);
    if served < usize::from(SLOTS) {
        return Finding::fail(
            format!("{served} of {SLOTS} slots have a master ({size}): calls on the others fail"),
            "start the masters that are missing, or assign the slots: `redis-cli --cluster fix`",
        );
    }
    let reason = |node: &str| unreachable.iter().find(|(name, _)| name == node).map(|(_, refusal)| refusal.reason());
    let described = |node: &(String, u16)| Some(format!("{} ({})", name_of(node), reason(&name_of(node))?));
    let lost: Vec<_> = shards.iter().filter_map(|shard| described(&shard.master)).collect();
    if !lost.is_empty() {
        return Finding::fail(
            format!("masters that cannot be reached: {}", lost.join(", ")),
            "start them, and permit connections to every node: the limiter connects to each master",
        );
    }
    let lost: Vec<_> = shards.iter().flat_map(|shard| &shard.replicas).filter_map(described).collect();
    if !lost.is_empty() {
        return Finding::warn(
            format!("replicas that cannot be reached: {}", lost.join(", ")),
            "start them, and permit connections to every node: a failover makes one of them a master",
        );
    }
    let alone: Vec<_> =
        shards.iter().filter(|shard| shard.replicas.is_empty()).map(|shard| name_of(&shard.master)).collect();
    let covered = format!("all {SLOTS} slots have a master that can be reached ({size})");
    if !alone.is_empty() {
        return Finding::warn(
            format!("{covered}; without a replica: {}", alone.join(", ")),
            "add a replica to each master, which replaces it when it fails",
        );
    }
    match full_coverage {
        Some("yes") => Finding::warn(
            format!("{covered}; with `cluster-require-full-coverage yes` all keys stop while one master is away"),
            "set `cluster-require-full-coverage no` on each node",
        ),
        _ => Finding::ok(covered),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    fn shard(first: u16, last: u16, port: u16, replicas: &[u16]) -> Shard {
        let node = |port: u16| ("h".to_owned(), port);
        Shard { slots: vec![first..=last], master: node(port), replicas: replicas.iter().copied().map(node).collect() }
    }

    #[test]
    fn slots_masters_and_replicas_are_checked_in_this_order() {
        let whole = [shard(0, 9_999, 1, &[4]), shard(10_000, 16_383, 2, &[5])];
        let gap = [shard(0, 9_999, 1, &[4]), shard(10_001, 16_383, 2, &[5])];
        let alone = [shard(0, 9_999, 1, &[4]), shard(10_000, 16_383, 2, &[])];
        let gone = |node: &str| vec![(node.to_owned(), Refusal::NoReply("refused".to_owned()))];
        let cases = [
            (&whole, vec![], Some("no"), Status::Ok, "all 16384 slots"),
            (&whole, vec![], None, Status::Ok, "(2 masters, 2 replicas)"),
            (&whole, vec![], Some("yes"), Status::Warn, "cluster-require-full-coverage"),
            (&gap, gone("h:2"), Some("yes"), Status::Fail, "16383 of 16384 slots have a master"),
            (&whole, gone("h:2"), None, Status::Fail, "masters that cannot be reached: h:2 (refused)"),
            (&whole, gone("h:5"), None, Status::Warn, "replicas that cannot be reached: h:5 (refused)"),
            (&alone, vec![], Some("no"), Status::Warn, "without a replica: h:2"),
        ];
        for (shards, unreachable, full_coverage, status, text) in cases {
            let finding = judge(shards, &unreachable, full_coverage);
            assert!(finding.status == status && finding.finding.contains(text), "{text}: {finding:?}");
        }
    }
}
