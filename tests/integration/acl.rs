//! Tests of the documented Redis permissions: they suffice for every operation, and each of them is needed.

use std::time::Duration;

use futures_util::future::try_join_all;
use limiter_testkit::{Cluster, RedisServer, slot_of};
use rate_limited::{Algorithm, Builder, Decision, Error, ErrorKind, Key, Layout, Limit, Limiter, OnError};

use crate::deadlines::once_connected;
use crate::support::{key, unpacked_limit as limit};

const OPERATIONS_PAGE: &str = include_str!("../../docs/operations.md");
const ALL_ALGORITHMS: [Algorithm; 5] = [
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
    Algorithm::SlidingCounter,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];

/// Returns the ACL rules that docs/operations.md gives this user.
pub(crate) fn documented_rules(user: &str) -> Vec<&'static str> {
    let start = format!("ACL SETUSER {user} on >password ");
    let rules = OPERATIONS_PAGE.lines().find_map(|line| line.strip_prefix(&start)).expect("a line for this user");
    rules.split(' ').collect()
}

/// Replaces the ACL rules of the server's user `app`.
fn set_rules(server: &RedisServer, rules: &[&str]) {
    let mut command = vec!["ACL", "SETUSER", "app", "reset", "on", ">pw"];
    command.extend(rules);
    assert_eq!(server.command(&command).text(), "OK");
}

fn builder_for_url(url: &str) -> Builder {
    Limiter::builder().url(url).deadline(Duration::from_secs(5)).on_error(OnError::Raise).receipt_secret([7; 32])
}

fn server_without_permissions() -> RedisServer {
    RedisServer::builder().tcp().user_with_rules("app", "pw", "-@all").start()
}

/// Runs every operation with every algorithm that this layout supports.
async fn run_all_operations(builder: impl Fn() -> Builder, layout: Layout) -> Result<(), Error> {
    once_connected(async || run_all_operations_once(builder(), layout).await).await
}

async fn run_all_operations_once(builder: Builder, layout: Layout) -> Result<(), Error> {
    let limiter = builder.connect().await?;
    // A log long enough that the script appends in place instead of rewriting it.
    let many = Limit::new(1_000, Duration::from_secs(3_600))?.with_layout(layout)?;
    for _ in 0..40 {
        let _ = limiter.check(&key("long"), &many).await?;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    // After 100 ms it renews the expiry. An entry of several calls does that in place. A few calls for other keys keep the
    // worker busy meanwhile, so that the two calls are one entry, of at least one round.
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(101)).await;
        let others: Vec<_> = (0..16).map(|number| key(&format!("other{number}"))).collect();
        let long = key("long");
        try_join_all(others.iter().chain([&long, &long]).map(|key| limiter.check(key, &many))).await?;
    }
    for algorithm in ALL_ALGORITHMS {
        let Ok(limit) = limit("5/1h").with_algorithm(algorithm).with_layout(layout) else { continue };
        run_every_operation(&limiter, &limit).await?;
    }
    Ok(())
}

async fn run_every_operation(limiter: &Limiter, limit: &Limit) -> Result<(), Error> {
    let (a, b) = (key("a"), Key::new("b:").part("{}"));
    let Decision::Allowed(first) = limiter.check(&a, limit).await? else { panic!("five are allowed") };
    limiter.refund(&first).await?;
    let _ = limiter.check_n(&a, limit, 2).await?;
    let _ = limiter.wait(&b, limit, Duration::from_millis(1)).await?;
    let together = limiter.check_all(&[(&a, limit, 1), (&b, limit, 1)]).await?;
    if let Decision::Allowed(both) = together {
        limiter.refund(&both).await?;
    }
    let _ = limiter.peek(&a, limit).await?;
    if limit.layout() == Layout::Compact {
        use_receipt(limiter, limit).await?;
    }
    // Enough concurrent calls that several keys share a batch. Of different costs, they are read together.
    let keys: Vec<_> = (0..64).map(|number| key(&format!("k{number}"))).collect();
    try_join_all(keys.iter().zip([1, 2].into_iter().cycle()).map(|(key, cost)| limiter.check_n(key, limit, cost)))
        .await?;
    // This call trims expired entries, in layouts that trim.
    let brief = Limit::new(5, Duration::from_millis(2))?.with_layout(limit.layout())?;
    let _ = limiter.check(&key("brief"), &brief).await?;
    let _ = limiter.check(&key("brief"), &one_second_limit(&brief)?).await?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let _ = limiter.check(&key("brief"), &brief).await?;
    limiter.reset(&a, limit).await
}

async fn use_receipt(limiter: &Limiter, limit: &Limit) -> Result<(), Error> {
    let key = key("receipt");
    let Decision::Allowed(allowed) = limiter.check(&key, limit).await? else { panic!("five are allowed") };
    limiter.refund_receipt(&key, &limiter.receipt(&key, &allowed)?).await
}

/// Returns a limit with a longer window, which extends the life of the same set.
fn one_second_limit(limit: &Limit) -> Result<Limit, Error> {
    Limit::new(5, Duration::from_secs(1))?.with_layout(limit.layout())
}

async fn assert_rules_are_minimal(user: &str, url: impl Fn(&RedisServer) -> String, layout: Layout) {
    let (server, rules) = (server_without_permissions(), documented_rules(user));
    set_rules(&server, &rules);
    run_all_operations(|| builder_for_url(&url(&server)), layout)
        .await
        .unwrap_or_else(|error| panic!("{user}: {error:?}"));
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.starts_with(['+', '~'])) {
        server.command(&["FLUSHALL"]);
        let mut fewer = rules.clone();
        fewer.remove(index);
        set_rules(&server, &fewer);
        let error = run_all_operations(|| builder_for_url(&url(&server)), layout).await.expect_err(rule);
        assert!(!matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "without {rule}: {error:?}");
    }
}

#[tokio::test]
async fn documented_rules_are_minimal_on_one_server() {
    assert_rules_are_minimal("limiter", RedisServer::url, Layout::Compact).await;
}

#[tokio::test]
async fn documented_rules_are_minimal_with_another_database() {
    assert_rules_are_minimal("database", |server| server.url() + "/1", Layout::Compact).await;
}

#[tokio::test]
async fn documented_rules_are_minimal_for_sorted_sets() {
    assert_rules_are_minimal("zset", RedisServer::url, Layout::Zset).await;
}

/// The mark of a receipt is a string.
#[tokio::test]
async fn receipts_of_sorted_sets_need_one_more_permission() {
    let (server, mut rules) = (server_without_permissions(), documented_rules("zset"));
    set_rules(&server, &rules);
    let limiter = builder_for_url(&server.url()).connect().await.expect("a server");
    let limit = limit("5/1h").with_layout(Layout::Zset).expect("a sliding window");
    let refused = use_receipt(&limiter, &limit).await.expect_err("SET is missing");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(limiter.peek(&key("receipt"), &limit).await.expect("allowed").remaining(), 4, "nothing was given back");
    rules.push("+set");
    set_rules(&server, &rules);
    use_receipt(&limiter, &limit).await.expect("allowed");
    assert_eq!(limiter.peek(&key("receipt"), &limit).await.expect("allowed").remaining(), 4);
}

/// Hashed keys need no other rules. Another prefix needs a rule for that prefix.
#[tokio::test]
async fn rules_for_the_prefix_cover_all_keys_and_no_others() {
    let (server, rules) = (server_without_permissions(), documented_rules("limiter"));
    set_rules(&server, &rules);
    run_all_operations(|| builder_for_url(&server.url()).hash_keys([7; 32]), Layout::Compact).await.expect("allowed");
    run_all_operations(|| builder_for_url(&server.url()).prefix("other"), Layout::Compact)
        .await
        .expect_err("another prefix");
    let other: Vec<_> = rules.into_iter().map(|rule| if rule == "~rl:*" { "~other:*" } else { rule }).collect();
    set_rules(&server, &other);
    run_all_operations(|| builder_for_url(&server.url()).prefix("other"), Layout::Compact).await.expect("allowed");
}

#[tokio::test]
async fn documented_rules_suffice_on_a_cluster() {
    let cluster = Cluster::builder().masters_only().user_with_rules("app", "pw", "-@all").start();
    let rules = documented_rules("cluster");
    let allow_everywhere =
        |rules: &[&str]| cluster.masters().into_iter().for_each(|node| set_rules(cluster.server(node), rules));
    let without = |rule: &str| rules.iter().copied().filter(|other| *other != rule).collect::<Vec<_>>();
    assert!(rules.starts_with(&documented_rules("limiter")), "a cluster needs the rules of one server, and more");

    allow_everywhere(&without("+cluster|slots"));
    let error = builder_for_url(&cluster.url()).connect().await.expect_err("CLUSTER SLOTS is not permitted");
    assert!(!matches!(error.kind(), ErrorKind::Timeout), "{error:?}");

    allow_everywhere(&rules);
    run_all_operations(|| builder_for_url(&cluster.url()), Layout::Compact).await.expect("allowed");
    let limiter = once_connected(async || builder_for_url(&cluster.url()).connect().await).await.expect("allowed");
    let (key, limit) = (key("moving"), limit("9/1h"));
    let slot = slot_of(b"moving");
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
    let migration = cluster.begin_migration(slot, to);
    assert!(limiter.check(&key, &limit).await.expect("sent to the slot's new master").is_allowed());
    allow_everywhere(&without("+asking"));
    limiter.check(&key, &limit).await.expect_err("ASKING is not permitted");
    migration.finish();
}
