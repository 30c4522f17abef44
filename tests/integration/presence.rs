//! Tests of heartbeats, by which limiters that share a store are listed as instances.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, SystemTime};

use limiter_testkit::{Cluster, RedisServer, Reply, slot_of, unique};
use rate_limited::{Algorithm, Builder, ErrorKind, HealthState, Instance, Limiter, OnError, Rule, RuleSet};
use tokio::time::sleep;

use crate::acl::documented_rules;
use crate::child_process;
use crate::deadlines::{eventually, once_connected};
use crate::support::{LONG_DEADLINE, key, limit, unpacked_limit};

/// The interval of heartbeats in these tests. An instance without one ends after three of them.
const INTERVAL: Duration = Duration::from_millis(100);

fn builder(url: impl AsRef<str>, prefix: &str) -> Builder {
    let builder = Limiter::builder().url(url).prefix(prefix).deadline(LONG_DEADLINE).on_error(OnError::Raise);
    builder.presence_interval(INTERVAL)
}

async fn connect(url: impl AsRef<str>, prefix: &str) -> Limiter {
    once_connected(async || builder(&url, prefix).connect().await).await.expect("connects")
}

async fn instances(limiter: &Limiter) -> Vec<Instance> {
    limiter.instances().await.expect("the store answers")
}

async fn eventually_lists(limiter: &Limiter, number: usize) -> Vec<Instance> {
    eventually(&format!("a list of {number}"), async || instances(limiter).await.len() == number).await;
    instances(limiter).await
}

/// The keys of the heartbeats under a prefix.
fn live_keys(server: &RedisServer, prefix: &str) -> Vec<String> {
    server.all_keys().into_iter().filter(|key| key.starts_with(&format!("{prefix}-live:"))).collect()
}

#[tokio::test]
async fn limiters_that_live_are_listed_and_one_that_is_dropped_is_not() {
    let (server, prefix) = (RedisServer::shared(), unique("live"));
    let before = SystemTime::now() - Duration::from_millis(1);
    let (first, second) = (connect(server.url(), &prefix).await, connect(server.url(), &prefix).await);
    let listed = eventually_lists(&first, 2).await;
    let other_prefix = connect(server.url(), &unique("live")).await;
    eventually_lists(&other_prefix, 1).await;
    for instance in &listed {
        assert!(instance.id.len() == 16 && instance.id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{instance:?}");
        assert_eq!((instance.pid, &*instance.state), (std::process::id(), "up"), "{instance:?}");
        assert!(instance.since >= before && instance.last_seen >= before, "{instance:?}");
        assert_eq!((instance.rules_version, instance.inventory.len()), (None, 32), "{instance:?}");
        assert!(!instance.version.is_empty() && !instance.host.is_empty(), "{instance:?}");
    }
    assert!(listed[0].id != listed[1].id && listed[0].since <= listed[1].since);
    drop(second);
    assert_eq!(eventually_lists(&first, 1).await[0].id, listed[0].id, "the other one");
    drop(first);
    eventually("nothing is left of them but texts that expire", async || {
        live_keys(server, &prefix).iter().all(|key| key.contains(":inventory:"))
    })
    .await;
}

/// A limiter that connects later would be listed later.
#[tokio::test]
async fn an_examiner_writes_no_heartbeats_and_calls_no_observer() {
    let (url, prefix) = (RedisServer::shared().url(), unique("live"));
    let observed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&observed);
    let program = builder(&url, &prefix).on_denied(move |_| _ = count.fetch_add(1, SeqCst)).connect();
    let program = program.await.expect("connects");
    let examiner = program.examiner(RuleSet::new()).expect("valid");
    let (key, one) = (key("examined"), limit("1/h"));
    assert!(program.check(&key, &one).await.expect("answers").is_allowed());
    assert!(examiner.check(&key, &one).await.expect("answers").is_denied(), "of the same store");
    let later = connect(url, &prefix).await;
    assert_eq!(eventually_lists(&later, 2).await.len(), 2);
    assert!(program.check(&key, &one).await.expect("answers").is_denied());
    eventually("a report", async || observed.load(SeqCst) > 0).await;
    assert_eq!((observed.load(SeqCst), instances(&later).await.len()), (1, 2));
}

#[tokio::test]
async fn the_inventory_of_a_limiter_that_lives_can_be_read() {
    let prefix = unique("live");
    let bucket = limit("5/s").with_algorithm(Algorithm::TokenBucket).with_burst(9).expect("a burst");
    let rules = RuleSet::new().rule("a", Rule::new().limit(limit("5/10s"))).rule("b", Rule::new().limit(bucket));
    let url = RedisServer::shared().url();
    let limiter = builder(url, &prefix).rules(rules).connect().await.expect("connects");
    let digest = eventually_lists(&limiter, 1).await[0].inventory.clone();
    let read = async |digest: &str| limiter.inventory(digest).await.expect("the store answers");
    let text = eventually_some(async || read(&digest).await).await;
    let line = |name: &str| text.lines().find(|line| line.starts_with(&format!(r#"{{"rule":"{name}","#)));
    let limits = |name| line(name).and_then(|line| line.split_once(r#""limits":"#)).map(|(_, rest)| rest);
    assert!(limits("a").is_some_and(|limits| limits.starts_with(r#"["5/10s"]"#)), "{text}");
    let expected = r#"[{"limit":"5/s","algorithm":"token_bucket","burst":9}]"#;
    assert!(limits("b").is_some_and(|limits| limits.starts_with(expected)), "{text}");
    // That of an annotated function of this program.
    let expected = r#"[{"limit":"100/min","algorithm":"token_bucket","burst":100}]"#;
    assert!(limits("costly bucket").is_some_and(|limits| limits.starts_with(expected)), "{text}");
    assert_eq!(read("of no limiter").await, None);
    let error = Limiter::memory().inventory(&digest).await.expect_err("no shared store");
    assert_eq!(error.kind(), ErrorKind::Config);
}

/// The text of an inventory comes just behind its first heartbeat.
async fn eventually_some(read: impl AsyncFn() -> Option<String>) -> String {
    eventually("a text", async || read().await.is_some()).await;
    read().await.expect("a text")
}

#[tokio::test]
async fn very_many_inventories_that_no_limiter_has_are_removed() {
    let (server, prefix) = (RedisServer::shared(), unique("live"));
    let counts = format!("{prefix}-live:{{{prefix}}}:counts");
    for first in (0..3_000).step_by(500) {
        let entries = (first..first + 500).flat_map(|number| [format!("{number:032x}"), "1 99999999999999".to_owned()]);
        let mut command = vec!["HSET".to_owned(), counts.clone()];
        command.extend(entries);
        server.command(&command.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let (first, second) = (connect(server.url(), &prefix).await, connect(server.url(), &prefix).await);
    eventually("removed", async || server.command(&["HLEN", &counts]).integer() <= 2).await;
    assert_eq!(eventually_lists(&first, 2).await.len(), instances(&second).await.len());
}

/// A foreign mark without an expiry, and more inventories than any limiter would read.
#[tokio::test]
async fn a_number_is_heard_whatever_others_have_written() {
    let (server, prefix) = (RedisServer::shared(), unique("live"));
    let name = |name: &str| format!("{prefix}-live:{{{prefix}}}:{name}");
    server.command(&["SET", &name("summed"), "foreign"]);
    let limiters = [connect(server.url(), &prefix).await, connect(server.url(), &prefix).await];
    let sharing = |limiter: &Limiter| limiter.instances_sharing(&key("a"), &limit("5/10s"));
    for limiter in &limiters {
        eventually("two", async || sharing(limiter) == 2).await;
    }
    let end = SystemTime::now() + Duration::from_secs(50);
    let end = end.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis();
    let counts = name("counts");
    let mut command = vec!["HSET".to_owned(), counts];
    command.extend((0..1_500).flat_map(|number| [format!("{:032x}", number + 1), format!("3 {end}")]));
    server.command(&command.iter().map(String::as_str).collect::<Vec<_>>());
    for limiter in &limiters {
        eventually("all of them", async || sharing(limiter) == 4_502).await;
    }
}

#[tokio::test]
async fn a_process_that_is_killed_is_no_longer_listed_after_a_while() {
    let (server, prefix) = (RedisServer::shared(), unique("live"));
    let observer = builder(server.url(), &prefix).presence(false).connect().await.expect("connects");
    let variables = [("URL", server.url()), ("PREFIX", prefix)];
    let mut process = child_process::command("presence::live_until_killed", &variables);
    let mut process = process.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("this program runs");
    assert_eq!(eventually_lists(&observer, 1).await[0].pid, process.id());
    process.kill().expect("it runs");
    process.wait().expect("it has ended");
    eventually_lists(&observer, 0).await;
}

#[tokio::test]
#[ignore = "is the process that is killed"]
async fn live_until_killed() {
    if child_process::is_child() {
        let _limiter = connect(child_process::variable("URL"), &child_process::variable("PREFIX")).await;
        sleep(Duration::from_secs(600)).await;
    }
}

#[tokio::test]
async fn a_limiter_without_presence_writes_nothing() {
    let (server, prefix) = (RedisServer::shared(), unique("live"));
    let silent = builder(server.url(), &prefix).presence(false).connect().await.expect("connects");
    // Others have written several heartbeats meanwhile.
    let witness = connect(server.url(), &unique("live")).await;
    eventually_lists(&witness, 1).await;
    sleep(3 * INTERVAL).await;
    assert!(silent.check(&key("a"), &limit("5/1h")).await.expect("decides").is_allowed());
    assert_eq!((live_keys(server, &prefix), instances(&silent).await), (vec![], vec![]));
}

#[tokio::test]
async fn a_limiter_in_memory_has_no_list() {
    let error = Limiter::memory().instances().await.expect_err("no store");
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn the_first_heartbeat_comes_after_ten_seconds() {
    let (server, prefix) = (RedisServer::shared(), unique("live"));
    let usual = Limiter::builder().url(server.url()).prefix(&prefix).connect().await.expect("connects");
    let began = std::time::Instant::now();
    eventually_lists(&usual, 1).await;
    assert!(began.elapsed() > Duration::from_millis(9_500), "{:?}", began.elapsed());
}

#[tokio::test]
async fn every_key_expires_and_all_are_in_one_slot() {
    for prefix in [unique("live"), unique("a:b"), unique("-"), unique("..")] {
        let server = RedisServer::shared();
        let limiter = connect(server.url(), &prefix).await;
        eventually_lists(&limiter, 1).await;
        let is_mark = |key: &String| key.contains(":counted:") || key.ends_with(":summed");
        let has_all = || live_keys(server, &prefix).into_iter().filter(|key| !is_mark(key)).count() == 4;
        eventually("all four", async || has_all()).await;
        let keys = live_keys(server, &prefix);
        let slots: BTreeSet<_> = keys.iter().map(|key| slot_of(key.as_bytes())).collect();
        assert_eq!(slots.len(), 1, "{keys:?}");
        for key in keys {
            let left = server.pttl(&key);
            // It may have expired since.
            assert!(left == -2 || (0..=300).contains(&left), "{key}: {left}");
        }
    }
}

#[tokio::test]
async fn limiters_of_a_cluster_are_listed() {
    let cluster = Cluster::builder().masters_only().start();
    let (first, second) = (connect(cluster.url(), "rl").await, connect(cluster.url(), "rl").await);
    let listed = eventually_lists(&first, 2).await;
    drop(first);
    assert_eq!(eventually_lists(&second, 1).await[0].id, listed[1].id);
    // The slot has another owner, which the process learns by a redirect.
    let slot = slot_of(b"rl-live:{rl}:counts");
    let owner = cluster.master_of(slot);
    let other = cluster.masters().into_iter().find(|master| *master != owner).expect("three masters");
    cluster.migrate_slot(slot, other);
    sleep(4 * INTERVAL).await;
    assert_eq!(eventually_lists(&second, 1).await[0].id, listed[1].id);
}

#[tokio::test]
async fn a_change_of_the_rules_moves_an_instance_to_another_inventory() {
    let (server, prefix) = (RedisServer::shared(), unique("live"));
    let limiter = connect(server.url(), &prefix).await;
    let before = eventually_lists(&limiter, 1).await[0].clone();
    let inventory = |instance: &Instance| {
        let name = format!("{prefix}-live:{{{prefix}}}:inventory:{}", instance.inventory);
        server.command(&["GET", &name]).text()
    };
    let has_text = |instance: &Instance| {
        let ending = format!(":inventory:{}", instance.inventory);
        live_keys(server, &prefix).iter().any(|key| key.ends_with(&ending))
    };
    eventually("its text", async || has_text(&before)).await;
    assert!(!inventory(&before).contains("7/10s"));
    limiter.set_rules(RuleSet::new().rule("getId", Rule::new().limit(limit("7/10s")))).expect("valid");
    // A list that is read while it moves has it in neither inventory.
    let has_moved = async || instances(&limiter).await.first().is_some_and(|own| own.inventory != before.inventory);
    eventually("another inventory", has_moved).await;
    let listed = instances(&limiter).await;
    assert_eq!((listed.len(), &listed[0].id), (1, &before.id));
    eventually("its text", async || has_text(&listed[0])).await;
    let (text, line) = (inventory(&listed[0]), r#"{"rule":"getId","keys":["#);
    assert!(text.lines().any(|own| own.starts_with(line) && own.contains(r#""limits":["7/10s"]"#)), "{text}");
    let counts = server.command(&["HKEYS", &format!("{prefix}-live:{{{prefix}}}:counts")]).array();
    assert_eq!(counts.len(), 1, "{counts:?}");
}

#[tokio::test]
async fn values_that_no_limiter_has_written_are_skipped_and_swept() {
    let (server, prefix) = (RedisServer::shared(), unique("live"));
    let limiter = connect(server.url(), &prefix).await;
    let own = eventually_lists(&limiter, 1).await[0].clone();
    let name = |name: &str| format!("{prefix}-live:{{{prefix}}}:{name}");
    let (members, counts) = (name(&format!("members:{}", own.inventory)), name("counts"));
    let digest = "0".repeat(32);
    let far = "9000000000000000000000000000000";
    for member in ["", "junk", "0123456789abcdef host x 1 2 - up", "\u{1b}[31m", &"a".repeat(10_000)] {
        server.command(&["ZADD", &members, far, member]);
    }
    server.command(&["ZADD", &members, "+inf", "0123456789abcdef host 7 0.1.0 5 - up"]);
    server.command(&["HSET", &counts, "junk", "1 2", "", "", &digest, "x"]);
    server.command(&["SET", &name(&format!("members:{digest}")), "a string", "PX", "60000"]);
    let listed = instances(&limiter).await;
    assert_eq!(listed.iter().map(|instance| &instance.id).collect::<Vec<_>>(), [&own.id]);
    let foreign = "0123456789abcdef \u{1b}[31m 7 0.1.0 5 3 up and more";
    let end = SystemTime::now() + Duration::from_secs(30);
    let end = end.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis().to_string();
    server.command(&["ZADD", &members, &end, foreign]);
    let listed = instances(&limiter).await;
    let foreign = listed.iter().find(|instance| instance.id == "0123456789abcdef").expect("a possible one");
    assert_eq!((foreign.host.as_str(), foreign.pid, foreign.rules_version), ("\u{1b}[31m", 7, Some(3)));
    eventually("swept", async || server.command(&["HLEN", &counts]).integer() == 1).await;
    // A key of another type is one error of the list, and no failure of a call.
    server.command(&["SET", &counts, "a string", "PX", "60000"]);
    assert_eq!(limiter.instances().await.expect_err("a foreign value").kind(), ErrorKind::Protocol);
    assert!(limiter.check(&key("a"), &limit("5/1h")).await.expect("decides").is_allowed());
    server.command(&["DEL", &counts]);
    eventually("listed again", async || instances(&limiter).await.iter().any(|instance| instance.id == own.id)).await;
}

#[tokio::test]
async fn no_heartbeat_waits_behind_one_without_a_reply() {
    let mut server = RedisServer::start();
    let limiter = connect(server.url(), "rl").await;
    eventually_lists(&limiter, 1).await;
    let before = server.script_calls();
    server.pause();
    sleep(15 * INTERVAL).await;
    server.resume();
    let queued = server.script_calls() - before;
    // One may have been in flight, and others be due before and afterwards.
    assert!(queued <= 4, "{queued}");
    assert_eq!(limiter.health().state, HealthState::Up, "no call has failed");
    eventually_lists(&limiter, 1).await;
}

/// Returns a server whose user `app` has these ACL rules.
fn server_with_rules(rules: &[&str]) -> RedisServer {
    let server = RedisServer::builder().tcp().start();
    allow(&server, rules);
    server
}

fn allow(server: &RedisServer, rules: &[&str]) {
    let mut command = vec!["ACL", "SETUSER", "app", "reset", "on", ">pw"];
    command.extend(rules);
    assert_eq!(server.command(&command).text(), "OK");
}

fn url_of_user(server: &RedisServer) -> String {
    server.url().replace("//", "//app:pw@")
}

/// The number of commands that the server has refused, but for those by which a client tells its name: other versions than 7.0 list them.
fn refusals(server: &RedisServer) -> i64 {
    let entries = server.command(&["ACL", "LOG"]).array().into_iter().map(Reply::array);
    let is_named = |entry: &Vec<Reply>, object: &str| entry.contains(&Reply::Bulk(object.into()));
    let is_counted = |entry: &Vec<Reply>| !is_named(entry, "client") && !is_named(entry, "client|setinfo");
    entries
        .filter(is_counted)
        .map(|entry| match &entry[1] {
            Reply::Integer(count) => *count,
            other => panic!("{other:?}"),
        })
        .sum()
}

#[tokio::test]
async fn a_refusal_ends_the_heartbeats_of_a_connection_and_no_call_fails() {
    let mut rules = documented_rules("limiter");
    let server = server_with_rules(&rules);
    let limiter = connect(url_of_user(&server), "rl").await;
    eventually("refused", async || refusals(&server) > 0).await;
    let refused = refusals(&server);
    sleep(10 * INTERVAL).await;
    assert_eq!(refusals(&server), refused, "it is not tried again");
    assert!(limiter.check(&key("a"), &unpacked_limit("5/1h")).await.expect("decides").is_allowed());
    assert_eq!(limiter.health().state, HealthState::Up);
    // A connection with other permissions is another chance.
    rules.extend(documented_rules("live"));
    rules.extend(["+hgetall", "+zrange"]);
    rules.retain(|rule| *rule != "-@all");
    allow(&server, &rules);
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    eventually("listed", async || limiter.instances().await.is_ok_and(|instances| instances.len() == 1)).await;
}

#[tokio::test]
async fn documented_permissions_of_heartbeats_are_minimal() {
    let (of_calls, of_heartbeats) = (documented_rules("limiter"), documented_rules("live"));
    let server = server_with_rules(&[]);
    let observer = connect(server.url(), "rl").await;
    let own = eventually_lists(&observer, 1).await[0].id.clone();
    let is_listed = async || instances(&observer).await.iter().any(|instance| instance.id != own);
    let with = |left_out: Option<&str>| {
        let rules =
            of_calls.iter().chain(&of_heartbeats).copied().filter(|rule| Some(*rule) != left_out && *rule != "-@all");
        allow(&server, &rules.collect::<Vec<_>>());
        server.command(&["ACL", "LOG", "RESET"]);
    };
    for rule in of_heartbeats.iter().filter(|rule| !of_calls.contains(rule)) {
        with(Some(rule));
        let limiter = connect(url_of_user(&server), "rl").await;
        eventually(&format!("refused without {rule}"), async || refusals(&server) > 0).await;
        drop(limiter);
        eventually("not listed", async || !is_listed().await).await;
    }
    with(None);
    let limiter = connect(url_of_user(&server), "rl").await;
    eventually("listed", is_listed).await;
    let error = limiter.instances().await.expect_err("an operator's permission is missing");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(
        error.to_string().ends_with("to list instances the user needs `~rl-live:* +time +hgetall +zrange +get`"),
        "{error}"
    );
    drop(limiter);
    eventually("not listed", async || !is_listed().await).await;
    assert_eq!(refusals(&server), 1, "that of the list alone");
    let lister = documented_rules("lister");
    allow(&server, &lister);
    for rule in lister.iter().filter(|rule| rule.starts_with(['+', '~'])) {
        let fewer: Vec<_> = lister.iter().copied().filter(|other| other != rule).collect();
        allow(&server, &fewer);
        let listed = async || {
            let lister = builder(url_of_user(&server), "rl").presence(false).connect().await?;
            let inventory = lister.instances().await?[0].inventory.clone();
            lister.inventory(&inventory).await
        };
        assert_eq!(once_connected(listed).await.expect_err(rule).kind(), ErrorKind::Refused, "without {rule}");
    }
}
