//! Tests of the shared rules: one text in the store, which every limiter follows.

use std::time::{Duration, SystemTime};

use limiter_testkit::{Cluster, RedisServer, Reply, Sentinels, unique};
use rate_limited::{
    Builder, Change, Denied, ErrorKind, Limiter, OnError, Origin, Rule, RuleSet, SharedRules, rate_limited,
};

use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, limit};

mod cache;
mod configured;
mod faults;
mod fleet;
mod permissions;
mod problems;
mod restore;
mod schedules;

#[rate_limited(key = "shared", limit = "1/h")]
fn shared() -> Result<(), Denied> {
    Ok(())
}

/// Returns a text with this limit for [`shared`].
fn text(max: u32) -> String {
    format!("[rules.shared]\nlimit = \"{max}/h\"\n")
}

fn change(based_on: u64) -> Change {
    Change { based_on, who: "ann@host".to_owned(), why: "a test".to_owned() }
}

fn builder(url: &str, prefix: &str) -> Builder {
    Limiter::builder().url(url).prefix(prefix).deadline(LONG_DEADLINE).on_error(OnError::Raise)
}

/// Returns the limit of [`shared`] in force, and its layer.
fn in_force(limiter: &Limiter) -> Option<(u32, Origin)> {
    let rule = limiter.rules().into_iter().find(|rule| rule.name() == "shared")?;
    Some((rule.limits().first()?.max(), rule.origin()))
}

/// Waits until the shared rules are in force, without an error. The error ends a moment after the rules are in force.
async fn eventually_in_force(limiter: &Limiter, max: u32) {
    let is_in_force = || in_force(limiter) == Some((max, Origin::Shared)) && limiter.shared_rules_error().is_none();
    eventually("in force", async || is_in_force()).await;
}

/// Waits until a version is in force. It is reported a moment after its rules are in force.
async fn eventually_version(limiter: &Limiter, version: u64) {
    let is_in_force = || limiter.shared_rules_version() == version && limiter.shared_rules_error().is_none();
    eventually("the version", async || is_in_force()).await;
}

/// Returns the stored version: its number and the SHA-1 of the text.
fn stored_version(server: &RedisServer, prefix: &str) -> String {
    match server.command(&["GET", &format!("{prefix}-rules:{{rules}}:version")]) {
        Reply::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
        other => panic!("{other:?}"),
    }
}

/// Publishes texts by one limiter, and asserts that two others follow each of them.
async fn assert_followed(url: &str) {
    let prefix = unique("shared");
    let operator = builder(url, &prefix).connect().await.expect("connects");
    let rules = SharedRules::new(&operator);
    assert_eq!(rules.publish(&text(2), change(0)).await.expect("published"), 1);
    let connected = builder(url, &prefix).shared_rules().connect().await.expect("connects");
    assert_eq!((in_force(&connected), connected.shared_rules_version()), (Some((2, Origin::Shared)), 1));
    let built = builder(url, &prefix).shared_rules().build().expect("valid");
    eventually_in_force(&built, 2).await;
    for (max, version) in [(5, 2), (3, 3), (9, 4)] {
        assert_eq!(rules.publish(&text(max), change(version - 1)).await.expect("published"), version);
        for limiter in [&connected, &built] {
            eventually_in_force(limiter, max).await;
            eventually_version(limiter, version).await;
        }
    }
    // Both count the same calls by the last text.
    let allowed = |limiter: &Limiter| limiter.scope_sync(|| (0..7).filter(|_| shared().is_ok()).count());
    assert_eq!((allowed(&connected), allowed(&built)), (7, 2));
    assert_eq!(in_force(&operator), None, "the operator's limiter does not follow");
}

#[tokio::test]
async fn every_limiter_follows_each_published_text() {
    assert_followed(&RedisServer::start().url()).await;
}

#[tokio::test]
async fn every_limiter_of_a_cluster_follows_each_published_text() {
    assert_followed(&Cluster::builder().masters_only().start().url()).await;
}

#[tokio::test]
async fn every_limiter_behind_sentinels_follows_each_published_text() {
    assert_followed(&Sentinels::start().url()).await;
}

#[tokio::test]
async fn a_change_based_on_an_old_version_is_a_conflict() {
    let server = RedisServer::start();
    let prefix = unique("shared");
    let rules = SharedRules::new(&builder(&server.url(), &prefix).connect().await.expect("connects"));
    assert_eq!(rules.publish(&text(1), change(0)).await.expect("the first"), 1);
    let before = stored_version(&server, &prefix);
    for based_on in [0, 2, u64::MAX] {
        let error = rules.publish(&text(7), change(based_on)).await.expect_err("an old version");
        let expected = format!(
            "the change must be based on the present version of the shared rules, 1, got {based_on}: read them again"
        );
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Conflict, expected));
        assert!(!error.is_transient());
    }
    assert_eq!(stored_version(&server, &prefix), before);
    assert_eq!((rules.read().await.expect("read").toml, rules.history(9).await.expect("read").len()), (text(1), 1));
    // Of two changes at once only one is made.
    let (two, three) = (text(2), text(3));
    let (one, other) = tokio::join!(rules.publish(&two, change(1)), rules.publish(&three, change(1)));
    assert_eq!(one.is_ok(), other.is_err());
    assert_eq!(rules.read().await.expect("read").version, 2);
}

#[tokio::test]
async fn the_history_has_each_text_with_its_author() {
    let server = RedisServer::start();
    let rules = SharedRules::new(&builder(&server.url(), "h").connect().await.expect("connects"));
    let nothing = rules.read().await.expect("read");
    assert_eq!((nothing.version, &*nothing.toml, nothing.when), (0, "", SystemTime::UNIX_EPOCH));
    assert_eq!(rules.history(10).await.expect("read"), []);
    let began = SystemTime::now() - Duration::from_secs(60);
    for version in 1..=105 {
        let details = Change { based_on: version - 1, who: format!("w{version}"), why: "é = \"x\"".to_owned() };
        let max = u32::try_from(version).expect("small");
        assert_eq!(rules.publish(&text(max), details).await.expect("published"), version);
    }
    let present = rules.read().await.expect("read");
    assert_eq!((present.version, &*present.who, &*present.why), (105, "w105", "é = \"x\""));
    assert!(present.when > began && present.when < SystemTime::now() + Duration::from_secs(60));
    let history = rules.history(usize::MAX).await.expect("read");
    assert_eq!((history.len(), &history[0]), (100, &present));
    assert!(history.iter().zip((6..=105).rev()).all(|(entry, version)| entry.version == version));
    assert_eq!(rules.history(3).await.expect("read"), history[..3]);
    assert_eq!(rules.history(0).await.expect("read"), []);
    assert_eq!(server.command(&["LLEN", "h-rules:{rules}:history"]), Reply::Integer(100), "older entries are removed");
    let ttl = |name: &str| server.command(&["TTL", &format!("h-rules:{{rules}}:{name}")]);
    assert!(["version", "toml", "history"].into_iter().all(|name| ttl(name) == Reply::Integer(-1)));
}

#[tokio::test]
async fn the_history_is_bounded_in_bytes() {
    let server = RedisServer::start();
    let rules = SharedRules::new(&builder(&server.url(), "b").connect().await.expect("connects"));
    // Texts of about 1 MB each.
    let long = |number: u64| format!("# {number} {}\n", "x".repeat(1_048_000));
    for version in 1..=10 {
        assert_eq!(rules.publish(&long(version), change(version - 1)).await.expect("published"), version);
    }
    let history = rules.history(usize::MAX).await.expect("read");
    assert_eq!(history.iter().map(|entry| entry.version).collect::<Vec<_>>(), [10, 9, 8, 7, 6, 5, 4, 3]);
    assert_eq!(rules.publish("", change(10)).await.expect("published"), 11);
    assert!(rules.history(usize::MAX).await.expect("read").len() >= 8, "a short text removes no more");
}

#[tokio::test]
async fn a_rollback_publishes_an_earlier_text_again() {
    let server = RedisServer::start();
    let limiter = builder(&server.url(), "r").shared_rules().connect().await.expect("connects");
    let rules = SharedRules::new(&limiter);
    let error = rules.rollback(1, change(0)).await.expect_err("no history");
    assert_eq!(error.to_string(), "`version` must be one of the history, got 1, and no shared rules: publish a text");
    for max in [11, 12, 13] {
        rules.publish(&text(max), change(u64::from(max) - 11)).await.expect("published");
    }
    let error = rules.rollback(4, change(3)).await.expect_err("no such version");
    assert_eq!(
        (error.kind(), &*error.to_string()),
        (ErrorKind::Config, "`version` must be one of the history, 1 to 3, got 4: read the history")
    );
    assert_eq!(rules.rollback(1, change(2)).await.expect_err("an old version").kind(), ErrorKind::Conflict);
    assert_eq!(rules.rollback(1, change(3)).await.expect("published"), 4);
    eventually_in_force(&limiter, 11).await;
    eventually_version(&limiter, 4).await;
}

#[tokio::test]
async fn shared_rules_come_after_those_of_the_process_and_before_its_builder() {
    let server = RedisServer::start();
    let rule = |max: u32| Rule::new().limit(limit(&format!("{max}/h")));
    let limiter = builder(&server.url(), "l").rule("shared", rule(100)).shared_rules().build().expect("valid");
    assert_eq!(in_force(&limiter), Some((100, Origin::Builder)));
    let rules = SharedRules::new(&limiter);
    rules.publish(&text(7), change(0)).await.expect("published");
    eventually_in_force(&limiter, 7).await;
    limiter.set_rules(RuleSet::new().rule("shared", rule(3))).expect("valid");
    assert_eq!(in_force(&limiter), Some((3, Origin::Runtime)));
    limiter.set_rules(RuleSet::new()).expect("valid");
    assert_eq!(in_force(&limiter), Some((7, Origin::Shared)));
    rules.publish("# nothing", change(1)).await.expect("published");
    eventually("removed", async || in_force(&limiter) == Some((100, Origin::Builder))).await;
}

/// A text that another service needs is no mistake here, and no warning.
#[tokio::test]
async fn rules_of_other_programs_are_ignored() {
    let server = RedisServer::start();
    let limiter = builder(&server.url(), "o")
        .rules(RuleSet::new().rule("shared", Rule::new()))
        .shared_rules()
        .build()
        .expect("valid");
    let others = "[rules.unknown]\nmode = \"deny\"\n[[rules.shared.override]]\nmatch = { no_such_part = \"1\" }\nlimit = \"5/s\"\n\
                  [rules.\"other:{id}\"]\nlimit = \"5/s\"\n[[rules.\"other:{id}\".override]]\nmatch = { id = \"1\" }\nmode = \"deny\"\n";
    SharedRules::new(&limiter)
        .publish(&format!("{others}{}", "[defaults]\ndeadline = \"1s\"\n"), change(0))
        .await
        .expect("published");
    eventually_version(&limiter, 1).await;
    assert!(limiter.scope_sync(shared).is_ok());
}

#[tokio::test]
async fn the_file_of_rules_can_switch_them_on() {
    let server = RedisServer::start();
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = directory.path().join("rules.toml");
    std::fs::write(&path, "shared = true\n[rules.shared]\nlimit = \"4/h\"\n").expect("written");
    SharedRules::new(&builder(&server.url(), "f").connect().await.expect("connects"))
        .publish(&text(6), change(0))
        .await
        .expect("published");
    let limiter = builder(&server.url(), "f").rules_file(&path).connect().await.expect("connects");
    assert_eq!(in_force(&limiter), Some((6, Origin::Shared)));
    std::fs::write(&path, "[rules.shared]\nlimit = \"4/h\"\n").expect("written");
    eventually("refused", async || limiter.rules_file_error().is_some()).await;
    let error = limiter.rules_file_error().expect("an error").to_string();
    let expected = "`shared` must stay as it was when the program started, got `shared = false`: restart the program";
    assert!(error.ends_with(expected), "{error}");
}

#[tokio::test]
async fn the_rules_of_the_builder_can_switch_them_on() {
    let server = RedisServer::start();
    let rules = "shared = true".parse().expect("valid");
    let limiter = builder(&server.url(), "b").rules(rules).connect().await.expect("connects");
    SharedRules::new(&limiter).publish(&text(6), change(0)).await.expect("published");
    eventually_in_force(&limiter, 6).await;
}

#[tokio::test]
async fn debug_of_a_published_text_shows_no_key() {
    let server = RedisServer::start();
    let rules = SharedRules::new(&builder(&server.url(), "k").connect().await.expect("connects"));
    let toml = "[[rules.shared.override]]\nkey = \"user:@ann\"\nmode = \"deny\"\n";
    rules.publish(toml, change(0)).await.expect("published");
    let published = rules.read().await.expect("read");
    let shown = format!("{published:?}");
    assert!(published.toml == toml && shown.contains("version: 1") && !shown.contains("user:"), "{shown}");
}

#[tokio::test]
async fn options_without_a_shared_store_are_refused() {
    let in_process = "`shared_rules` must be used with a store that processes share, got one in this process: write the \
                      `url` of a Redis, or leave it out";
    let error = Limiter::builder().shared_rules().build().expect_err("in memory");
    assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, in_process));
    let rules: RuleSet = "shared = true".parse().expect("valid");
    assert_eq!(Limiter::builder().rules(rules.clone()).build().expect_err("in memory").to_string(), in_process);
    let error = Limiter::memory().set_rules(rules).expect_err("at run time");
    assert!(error.to_string().starts_with("`shared` must be left out of rules that are set at run time"), "{error}");
    let shared = SharedRules::new(&Limiter::memory());
    assert_eq!(shared.read().await.expect_err("in memory").kind(), ErrorKind::Config);
    assert_eq!(shared.publish("", change(0)).await.expect_err("in memory").kind(), ErrorKind::Config);
}
