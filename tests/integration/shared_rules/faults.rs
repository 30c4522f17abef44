//! Faults of the connection and of the server while limiters follow the shared rules.

use std::sync::atomic::{AtomicU32, Ordering};

use limiter_testkit::{Cluster, Proxy, RedisServer, Reply, slot_of, unique};
use rate_limited::{ErrorKind, Rule, RuleSet, SharedRules};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{builder, change, eventually_in_force, in_force, stored_version, text};
use crate::child_process;
use crate::deadlines::{DEADLINE, eventually};

/// A process may make no calls for hours, and the first one must have the present limits.
#[tokio::test]
async fn a_lost_connection_is_detected_without_calls() {
    let (server, prefix) = (RedisServer::start(), unique("shared"));
    let rules = SharedRules::new(&builder(&server.url(), &prefix).connect().await.expect("connects"));
    rules.publish(&text(5), change(0)).await.expect("published");
    let proxy = Proxy::start(&server);
    let limiter = builder(proxy.url(), &prefix).deadline(DEADLINE).shared_rules().connect().await.expect("connects");
    proxy.half_open();
    rules.publish(&text(6), change(1)).await.expect("published");
    eventually("reported", async || limiter.shared_rules_error().is_some_and(|error| error.is_transient())).await;
    assert_eq!(in_force(&limiter).map(|(max, _)| max), Some(5));
    proxy.pass();
    eventually_in_force(&limiter, 6).await;
}

#[tokio::test]
async fn the_error_of_an_outage_ends_with_it() {
    let (server, prefix) = (RedisServer::start(), unique("shared"));
    let proxy = Proxy::start(&server);
    let limiter = builder(proxy.url(), &prefix).shared_rules().connect().await.expect("connects");
    SharedRules::new(&limiter).publish(&text(5), change(0)).await.expect("published");
    eventually_in_force(&limiter, 5).await;
    proxy.cut();
    eventually("reported", async || limiter.shared_rules_error().is_some_and(|error| error.is_transient())).await;
    proxy.pass();
    eventually("readable", async || limiter.shared_rules_error().is_none()).await;
    assert_eq!((in_force(&limiter).map(|(max, _)| max), limiter.shared_rules_version()), (Some(5), 1));
}

/// Sentinels may have another master, which a new connection finds.
#[tokio::test]
async fn a_change_that_a_replica_refuses_closes_its_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let rules = SharedRules::new(&builder(proxy.url(), "o").connect().await.expect("connects"));
    let before = proxy.connections();
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(rules.publish(&text(5), change(0)).await.expect_err("a replica").kind(), ErrorKind::ReadOnly);
    eventually("connected again", async || proxy.connections() > before).await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    eventually("published", async || rules.publish(&text(5), change(0)).await.is_ok()).await;
}

/// A server that evicts keys may evict the version alone.
#[tokio::test]
async fn a_text_without_its_version_can_be_published_again() {
    let server = RedisServer::start();
    let rules = SharedRules::new(&builder(&server.url(), "v").connect().await.expect("connects"));
    rules.publish(&text(5), change(0)).await.expect("published");
    server.command(&["DEL", "v-rules:{rules}:version"]);
    assert_eq!(rules.read().await.expect("read").version, 0);
    let limiter = builder(&server.url(), "v").shared_rules().connect().await.expect("connects");
    assert_eq!(in_force(&limiter), None);
    assert_eq!(rules.publish(&text(6), change(0)).await.expect("published"), 1);
    eventually_in_force(&limiter, 6).await;
}

#[tokio::test]
async fn a_dropped_limiter_sends_no_polls() {
    let server = RedisServer::start();
    let limiter = builder(&server.url(), "d").shared_rules().connect().await.expect("connects");
    SharedRules::new(&limiter).publish(&text(5), change(0)).await.expect("published");
    eventually_in_force(&limiter, 5).await;
    drop(limiter);
    // The connection of this command is left.
    eventually("closed", async || server.info("clients").get("connected_clients").is_some_and(|count| count == "1"))
        .await;
}

/// The version and the entries of the history.
fn stored(server: &RedisServer, prefix: &str) -> (String, Reply) {
    let entries = server.command(&["LRANGE", &format!("{prefix}-rules:{{rules}}:history"), "0", "-1"]);
    (stored_version(server, prefix), entries)
}

#[tokio::test]
async fn a_change_without_memory_changes_nothing() {
    let server = RedisServer::start();
    let rules = SharedRules::new(&builder(&server.url(), "m").connect().await.expect("connects"));
    rules.publish(&text(5), change(0)).await.expect("published");
    let before = stored(&server, "m");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = rules.publish(&text(6), change(1)).await.expect_err("no memory");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(stored(&server, "m"), before);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(rules.publish(&text(6), change(1)).await.expect("published"), 2);
}

#[tokio::test]
async fn shared_rules_in_a_migrating_slot_are_followed_and_published() {
    let (cluster, prefix) = (Cluster::builder().masters_only().start(), unique("shared"));
    let limiter = builder(&cluster.url(), &prefix).shared_rules().connect().await.expect("connects");
    let rules = SharedRules::new(&limiter);
    let publish_and_follow = async |version: u64, max: u32| {
        assert_eq!(rules.publish(&text(max), change(version - 1)).await.expect("published"), version);
        eventually_in_force(&limiter, max).await;
    };
    publish_and_follow(1, 11).await;
    let slot = slot_of(b"rules");
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
    let migration = cluster.begin_migration(slot, to);
    publish_and_follow(2, 12).await;
    migration.move_key(format!("{prefix}-rules:{{rules}}:toml").as_bytes());
    // No node has all keys.
    let error = rules.publish(&text(13), change(2)).await.expect_err("no node can execute it");
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(in_force(&limiter).map(|(max, _)| max), Some(12));
    migration.move_all_keys();
    publish_and_follow(3, 13).await;
    migration.finish();
    publish_and_follow(4, 14).await;
    let late = builder(&cluster.url(), &prefix).shared_rules().connect().await.expect("connects");
    assert_eq!(in_force(&late), in_force(&limiter));
}

/// The retry of a rejected text: nothing else reports that the process's other rules have changed.
#[tokio::test]
async fn a_text_that_other_rules_contradicted_is_tried_again() {
    let server = RedisServer::start();
    let limiter = builder(&server.url(), "c").shared_rules().connect().await.expect("connects");
    let contradicting: RuleSet = "[rules.other]\nkey = \"other:{id}\"\nlimit = \"5/s\"\n".parse().expect("valid");
    limiter.set_rules(contradicting).expect("valid");
    let other = "[rules.other]\nkey = \"other:{number}\"\nlimit = \"5/s\"\n";
    SharedRules::new(&limiter).publish(&format!("{}{other}", text(6)), change(0)).await.expect("published");
    eventually("rejected", async || limiter.shared_rules_error().is_some_and(|error| !error.is_transient())).await;
    let is_rejected =
        || limiter.shared_rules_error().is_some_and(|error| error.to_string().contains("`key` of the rule"));
    eventually("rejected", async || is_rejected()).await;
    limiter.set_rules(RuleSet::new().rule("other", Rule::new())).expect("valid");
    eventually_in_force(&limiter, 6).await;
}

/// A subscriber that panics.
struct Panics;

static PANICS: AtomicU32 = AtomicU32::new(0);

impl Subscriber for Panics {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, _: &Event<'_>) {
        PANICS.fetch_add(1, Ordering::Relaxed);
        panic!("a panic of the subscriber");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_panic_of_the_subscriber_stops_no_poll() {
    child_process::run("shared_rules::faults::polls_with_a_panicking_subscriber", &[("X", "")]);
}

#[tokio::test]
#[ignore = "needs a process of its own, with a subscriber"]
async fn polls_with_a_panicking_subscriber() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(Panics).expect("the first");
    let server = RedisServer::start();
    let limiter = builder(&server.url(), "p").shared_rules().connect().await.expect("connects");
    let rules = SharedRules::new(&limiter);
    for version in 1..=3 {
        let max = u32::try_from(version).expect("small");
        rules.publish(&text(max), change(version - 1)).await.expect("published");
        eventually_in_force(&limiter, max).await;
        eventually("reported", async || limiter.shared_rules_version() == version).await;
        let name = |name: &str| format!("p-rules:{{rules}}:{name}");
        server.command(&["MSET", &name("version"), &format!("{version} broken"), &name("toml"), "broken"]);
        eventually("rejected", async || limiter.shared_rules_error().is_some()).await;
    }
    assert!(PANICS.load(Ordering::Relaxed) >= 6);
}
