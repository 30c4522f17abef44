//! Clusters, sentinels and replicas.

use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::{Cluster, RedisServer, Sentinels, slot_of};

use crate::{assert_keys_expire, doctor};

/// Waits until the node that the checks begin with lists all replicas. It leaves out those that have received nothing.
fn wait_for_replicas(cluster: &Cluster) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let first = cluster.server(cluster.nodes()[0]);
    // First and last slot, master, replica.
    while first.command(&["CLUSTER", "SLOTS"]).array().into_iter().any(|range| range.array().len() < 4) {
        assert!(Instant::now() < deadline, "no replica is listed");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_cluster_is_checked_on_each_node() {
    let mut cluster = Cluster::builder().setting("cluster-require-full-coverage", "no").password("s3cret").start();
    wait_for_replicas(&cluster);
    let findings = doctor(&cluster.url());
    findings.assert_fails_only(&[]);
    findings.assert("scripts", "ok", "3 servers: scripts load, and a decision was made", "");
    findings.assert("permissions", "ok", "6 servers: the user has the 11 permissions", "");
    findings.assert("eviction", "ok", "6 servers: maxmemory-policy is noeviction", "");
    findings.assert("clock", "ok", "6 servers agree", "");
    findings.assert("cluster", "ok", "all 16384 slots have a master that can be reached (3 masters, 3 replicas)", "");
    findings.assert("sentinel", "unknown", "not applicable", "");
    assert!(!findings.written.contains("s3cret"), "{}", findings.written);
    for node in cluster.masters() {
        assert!(!cluster.server(node).keys().is_empty(), "each master has made a decision");
        assert_keys_expire(cluster.server(node));
    }

    let policy = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    let odd = cluster.masters()[1];
    cluster.server(odd).command(&policy);
    let named = format!("{}: maxmemory-policy is allkeys-lru", cluster.address(odd));
    doctor(&cluster.url()).assert("eviction", "warn", &named, "noeviction");

    let master = cluster.master_of(slot_of(b"any"));
    let replica = cluster.replica_of(master).expect("a replica");
    cluster.kill(replica);
    let findings = doctor(&cluster.url());
    findings.assert("cluster", "warn", "replica", "");
}

#[test]
fn a_cluster_with_full_coverage_or_without_a_master_is_found() {
    let mut cluster = Cluster::builder().masters_only().setting("cluster-require-full-coverage", "no").start();
    doctor(&cluster.url()).assert("cluster", "warn", "without a replica: 127.0.0.1:", "add a replica to each master");
    let first = cluster.masters()[0];
    let address = cluster.address(first).to_string();
    cluster.kill(first);
    let findings = doctor(&cluster.url());
    assert_eq!(findings.exit, Some(3), "{}", findings.written);
    findings.assert("cluster", "fail", &format!("masters that cannot be reached: {address} ("), "start them");

    let default = Cluster::start();
    wait_for_replicas(&default);
    doctor(&default.url()).assert("cluster", "warn", "cluster-require-full-coverage yes", "on each node");
}

#[test]
fn a_url_of_another_kind_fails_with_the_right_one() {
    let cluster = Cluster::builder().masters_only().start();
    let findings = doctor(&cluster.server(cluster.masters()[0]).url());
    findings.assert("connect", "fail", "write `redis-cluster://` instead of `redis://`", "");
    let server = RedisServer::builder().tcp().start();
    let findings = doctor(&server.url().replace("redis://", "redis-cluster://"));
    findings.assert("connect", "fail", "write `redis://` instead of `redis-cluster://`", "");
    findings.assert("cluster", "fail", "", "");
}

#[test]
fn sentinels_are_checked_with_master_and_replica() {
    let mut sentinels = Sentinels::builder().password("s3cret").start();
    let url = sentinels.url();
    let findings = doctor(&url);
    findings.assert_fails_only(&[]);
    let master = sentinels.address(sentinels.master());
    let agreed = format!("the sentinels agree on the master {master}");
    findings.assert("sentinel", "ok", &agreed, "");
    findings.assert("sentinel", "ok", "3 of them are a quorum, and 1 of 1 replicas are up", "");
    findings.assert("permissions", "ok", "2 servers: the user has the 9 permissions", "");
    findings.assert("cluster", "unknown", "not applicable", "");
    assert!(!findings.written.contains("s3cret"), "{}", findings.written);

    let unknown = doctor(&url.replace("/mymaster/", "/other/"));
    unknown.assert("sentinel", "fail", "has no master named `other`", "sentinel monitor");

    let node = sentinels.sentinels()[0];
    let name = url.split('@').nth(1).and_then(|hosts| hosts.split(',').next()).expect("a sentinel").to_owned();
    sentinels.kill_sentinel(node);
    let findings = doctor(&url);
    findings.assert("sentinel", "warn", &format!("sentinels that cannot be reached: {name} ("), "start them");
}

#[test]
fn a_replica_is_not_a_master() {
    let sentinels = Sentinels::start();
    let master = sentinels.master();
    let replica = sentinels.nodes().into_iter().find(|node| *node != master).expect("a replica");
    let findings = doctor(&sentinels.server(replica).url());
    assert_eq!(findings.exit, Some(3));
    findings.assert("connect", "fail", "replica", "write the URL of the master, or `redis-sentinel://`");
    findings.assert("permissions", "ok", "9 permissions", "");
}
