//! Tests of a cluster, and of servers behind sentinels, over TLS.

use std::path::PathBuf;

use limiter_testkit::{Cluster, RedisServer, Sentinels};
use rate_limited::{Builder, ErrorKind, Key, Limit, Limiter, OnError};

use super::trusting;
use crate::cluster::{key_per_master, name_in};
use crate::deadlines::{eventually, once_connected};
use crate::support::{LONG_DEADLINE, key, limit, tcp_address};

/// Connects a limiter that returns the errors of the cluster.
async fn connect(cluster: &Cluster) -> Limiter {
    assert!(cluster.url().starts_with("rediss-cluster://"));
    once_connected(async || builder_for(&cluster.url(), cluster.ca_certificate()).connect().await)
        .await
        .expect("a cluster")
}

fn builder_for(url: &str, ca_certificate: Option<PathBuf>) -> Builder {
    Limiter::builder().url(url).tls(trusting(ca_certificate)).deadline(LONG_DEADLINE).on_error(OnError::Raise)
}

/// Takes a permit, and returns how many are left. Without a decision of the store it panics.
async fn take(limiter: &Limiter, key: &Key, limit: &Limit) -> u32 {
    let decision = once_connected(async || limiter.check(key, limit).await).await.expect("a decision of the store");
    decision.into_result().expect("a permit is free").remaining()
}

/// Waits until a new master decides, on which this many permits must be left. Calls fail while there is none.
async fn wait_until_served(limiter: &Limiter, key: &Key, limit: &Limit, left: u32) {
    let peek = async || limiter.peek(key, limit).await.is_ok_and(|decision| decision.remaining() == left);
    eventually("served with the permits that were left", peek).await;
    let check = async || limiter.check(key, limit).await.is_ok_and(|decision| decision.remaining() < left);
    eventually("counted by the new master", check).await;
}

#[tokio::test]
async fn calls_on_a_cluster_follow_a_moving_slot() {
    let cluster = Cluster::builder().masters_only().tls().start();
    let limiter = connect(&cluster).await;
    let limit = limit("9/1h");
    for key in key_per_master(&cluster) {
        assert_eq!(take(&limiter, &key, &limit).await, 8);
    }
    for master in cluster.masters() {
        assert_eq!(cluster.server(master).keys().len(), 1, "{master:?}");
    }

    let slot = 4711;
    let (key, from) = (key(&name_in(slot)), cluster.master_of(slot));
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("another");
    let has_sent =
        |node, redirect: &str| cluster.server(node).info("errorstats").contains_key(&format!("errorstat_{redirect}"));
    assert_eq!(take(&limiter, &key, &limit).await, 8);
    cluster.migrate_slot(slot, to);
    assert_eq!(take(&limiter, &key, &limit).await, 7);
    assert!(has_sent(from, "MOVED") && !has_sent(to, "ASK"));

    let migration = cluster.begin_migration(slot, from);
    assert_eq!(migration.move_keys(10), 1);
    assert_eq!(take(&limiter, &key, &limit).await, 6);
    assert!(has_sent(to, "ASK"));
    migration.finish();
    assert_eq!(take(&limiter, &key, &limit).await, 5);
}

/// The replica has the permits that were taken before the failure, because the replication is over TLS as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_replica_of_a_cluster_is_used() {
    let mut cluster = Cluster::builder().tls().proxied().user("app", "s3cret").start();
    let limiter = connect(&cluster).await;
    let (key, limit, victim) = (key_per_master(&cluster).remove(0), limit("9/1h"), cluster.masters()[0]);
    assert_eq!(take(&limiter, &key, &limit).await, 8);
    assert_eq!(take(&limiter, &key, &limit).await, 7);
    cluster.settle();
    cluster.kill(victim);
    let promotion = cluster.wait_for_promotion(victim);
    assert_ne!(promotion.master, victim);
    wait_until_served(&limiter, &key, &limit, 7).await;
}

/// Returns true if the limiter has subscribed at a sentinel, which no other client does.
fn has_subscriber(sentinels: &Sentinels) -> bool {
    let clients = |sentinel| sentinels.sentinel(sentinel).command(&["CLIENT", "LIST"]).text();
    sentinels.sentinels().into_iter().any(|sentinel| clients(sentinel).contains(" sub=5 "))
}

/// Queries to the sentinels, the subscription at one of them and the calls to both masters are over TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_replica_behind_sentinels_is_used() {
    let mut sentinels = Sentinels::builder().tls().user("app", "s3cret").sentinel_password("s3cr3t").start();
    let url = sentinels.url() + "?sentinel_password=s3cr3t";
    assert!(url.starts_with("rediss-sentinel://"));
    let builder = || builder_for(&url, sentinels.ca_certificate());
    let limiter = once_connected(async || builder().connect().await).await.expect("a master");
    let (key, limit) = (key("a"), limit("9/1h"));
    assert_eq!(take(&limiter, &key, &limit).await, 8);
    assert_eq!(take(&limiter, &key, &limit).await, 7);
    eventually("subscribed", async || has_subscriber(&sentinels)).await;
    sentinels.settle();
    let old = sentinels.master();
    sentinels.kill(old);
    let promotion = sentinels.wait_for_promotion(old);
    assert_ne!(promotion.master, old);
    wait_until_served(&limiter, &key, &limit, 7).await;
}

/// The errors name the authority as the cause, and not a password.
#[tokio::test]
async fn untrusted_nodes_and_sentinels_are_refused() {
    let (server, stranger) = (RedisServer::builder().tls().start(), RedisServer::builder().tls().start());
    let host = tcp_address(&server);
    for url in [format!("rediss-cluster://{host}"), format!("rediss-sentinel://{host}/mymaster")] {
        let builder = || builder_for(&url, stranger.ca_certificate());
        let error = once_connected(async || builder().connect().await).await.expect_err("an unknown authority");
        assert_eq!(error.kind(), ErrorKind::Refused, "{url}: {error}");
        let text = error.to_string();
        assert!(text.contains("`Tls::root_certificate`") && !text.contains("password"), "{url}: {text}");
    }
}
