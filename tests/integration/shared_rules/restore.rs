//! Stores that lose the shared rules: a process puts them back, and never over a publication.

use limiter_testkit::{Cluster, Proxy, RedisServer, Reply, Sentinels, full_or, slot_of, unique};
use rate_limited::{ErrorKind, Limiter, SharedRules};

use super::{builder, change, eventually_in_force, eventually_version, in_force, stored_version, text};
use crate::child_process;
use crate::deadlines::eventually;
use crate::health::log::{RecordsLines, lines};

async fn operator(url: &str, prefix: &str) -> SharedRules {
    SharedRules::new(&builder(url, prefix).connect().await.expect("connects"))
}

async fn follower(url: &str, prefix: &str) -> Limiter {
    builder(url, prefix).shared_rules().connect().await.expect("connects")
}

async fn eventually_stored(server: &RedisServer, prefix: &str, version: &str) {
    let name = format!("{prefix}-rules:{{rules}}:version");
    eventually(version, async || server.command(&["GET", &name]) == Reply::Bulk(version.into())).await;
}

/// Publishes as the release did whose processes put nothing back. It wrote versions without a time.
pub(super) fn publish_as_before(server: &RedisServer, prefix: &str, based_on: u64, toml: &str) -> bool {
    let name = |name: &str| format!("{prefix}-rules:{{rules}}:{name}");
    let (version, text, history) = (name("version"), name("toml"), name("history"));
    let (script, based_on) = (include_str!("released_publish.lua"), based_on.to_string());
    let command = ["EVAL", script, "3", &version, &text, &history, &based_on, toml, "bob", "before", "100", "8388608"];
    match server.command(&command) {
        Reply::Array(parts) => parts.first() == Some(&Reply::Integer(1)),
        other => panic!("{other:?}"),
    }
}

/// Asserts that a lost text comes back with its number and its time, and that the next publication removes the mark.
async fn assert_put_back(url: &str, lose: impl Fn(), stored: impl Fn(&str) -> String) {
    let prefix = unique("restore");
    let rules = operator(url, &prefix).await;
    rules.publish(&text(5), change(0)).await.expect("published");
    rules.publish(&text(6), change(1)).await.expect("published");
    let limiter = follower(url, &prefix).await;
    let published = stored(&prefix);
    lose();
    let restored = format!("{published}:restored");
    eventually("put back", async || stored(&prefix) == restored).await;
    let late = follower(url, &prefix).await;
    assert_eq!((in_force(&late), late.shared_rules_version()), (in_force(&limiter), 2));
    let read = rules.read().await.expect("read");
    assert_eq!((read.version, &*read.toml), (2, &*text(6)));
    assert_eq!(rules.history(5).await.expect("a history"), std::slice::from_ref(&read));
    let micros = read.when.duration_since(std::time::SystemTime::UNIX_EPOCH).expect("later").as_micros().to_string();
    assert!(published.ends_with(&format!(":{micros}")), "{published} of {micros}");
    assert_eq!(rules.publish(&text(7), change(2)).await.expect("published"), 3);
    assert!(stored(&prefix).starts_with("3 ") && !stored(&prefix).contains("restored"));
    for limiter in [&limiter, &late] {
        eventually_in_force(limiter, 7).await;
    }
    assert_eq!(rules.rollback(2, change(3)).await.expect("published"), 4);
    eventually_in_force(&late, 6).await;
}

#[tokio::test]
async fn a_text_that_one_server_lost_is_put_back() {
    let server = RedisServer::start();
    let lose = || drop(server.command(&["FLUSHALL"]));
    assert_put_back(&server.url(), lose, |prefix| stored_or_none(&server, prefix)).await;
}

fn stored_or_none(server: &RedisServer, prefix: &str) -> String {
    match server.command(&["GET", &format!("{prefix}-rules:{{rules}}:version")]) {
        Reply::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
        _ => String::new(),
    }
}

#[tokio::test]
async fn a_text_that_a_cluster_lost_is_put_back() {
    let cluster = Cluster::builder().masters_only().start();
    let master = cluster.master_of(slot_of(b"rules"));
    let lose = || drop(cluster.server(master).command(&["FLUSHALL"]));
    assert_put_back(&cluster.url(), lose, |prefix| stored_or_none(cluster.server(master), prefix)).await;
}

#[tokio::test]
async fn a_text_that_a_master_of_sentinels_lost_is_put_back() {
    let sentinels = Sentinels::builder().setting("replica-priority", "0").start();
    let lose = || drop(sentinels.server(sentinels.master()).command(&["FLUSHALL"]));
    assert_put_back(&sentinels.url(), lose, |prefix| stored_or_none(sentinels.server(sentinels.master()), prefix))
        .await;
}

#[tokio::test]
async fn a_restart_without_persistence_loses_no_rule() {
    let mut server = RedisServer::start();
    let prefix = unique("restore");
    let rules = operator(&server.url(), &prefix).await;
    rules.publish("[rules.shared]\nmode = \"deny\"\n", change(0)).await.expect("published");
    let limiter = follower(&server.url(), &prefix).await;
    let published = stored_version(&server, &prefix);
    server.kill();
    server.restart();
    eventually_stored(&server, &prefix, &format!("{published}:restored")).await;
    let late = follower(&server.url(), &prefix).await;
    assert!(late.scope_sync(super::shared).is_err(), "the rule still denies");
    drop(limiter);
}

#[tokio::test]
async fn a_publication_is_followed_whatever_its_number_is() {
    let server = RedisServer::start();
    let prefix = unique("restore");
    let rules = operator(&server.url(), &prefix).await;
    for version in 0..3 {
        rules.publish(&text(5), change(version)).await.expect("published");
    }
    let proxy = Proxy::start(&server);
    let cut = follower(proxy.url(), &prefix).await;
    proxy.cut();
    server.command(&["FLUSHALL"]);
    assert_eq!(rules.publish(&text(7), change(0)).await.expect("published"), 1);
    let published = stored_version(&server, &prefix);
    proxy.pass();
    eventually_in_force(&cut, 7).await;
    eventually_version(&cut, 1).await;
    assert_eq!(stored_version(&server, &prefix), published);
    // So is that of a release whose versions have no time.
    server.command(&["FLUSHALL"]);
    eventually_stored(&server, &prefix, &format!("{published}:restored")).await;
    assert!(publish_as_before(&server, &prefix, 1, &text(8)));
    let published = stored_version(&server, &prefix);
    assert!(published.starts_with("2 ") && !published.contains(':'), "{published}");
    eventually_in_force(&cut, 8).await;
    // Its time is that of the history, or unknown.
    server.command(&["FLUSHALL"]);
    eventually_stored(&server, &prefix, &format!("{published}:0:restored")).await;
}

#[tokio::test]
async fn the_latest_publication_wins_among_those_that_are_put_back() {
    let server = RedisServer::start();
    let prefix = unique("restore");
    let rules = operator(&server.url(), &prefix).await;
    rules.publish(&text(5), change(0)).await.expect("published");
    let proxies = [Proxy::start(&server), Proxy::start(&server)];
    let [old, new] = [follower(proxies[0].url(), &prefix).await, follower(proxies[1].url(), &prefix).await];
    let first = stored_version(&server, &prefix);
    proxies[0].cut();
    rules.publish(&text(6), change(1)).await.expect("published");
    eventually_in_force(&new, 6).await;
    let second = stored_version(&server, &prefix);
    proxies[1].cut();
    server.command(&["FLUSHALL"]);
    proxies[0].pass();
    eventually_stored(&server, &prefix, &format!("{first}:restored")).await;
    proxies[1].pass();
    eventually_stored(&server, &prefix, &format!("{second}:restored")).await;
    eventually_in_force(&old, 6).await;
    eventually_version(&old, 2).await;
    assert_eq!(in_force(&new).map(|(max, _)| max), Some(6));
}

#[tokio::test]
async fn a_text_that_this_process_rejects_is_put_back_too() {
    let server = RedisServer::start();
    let prefix = unique("restore");
    let limiter = follower(&server.url(), &prefix).await;
    assert!(publish_as_before(&server, &prefix, 0, &text(5)));
    eventually_in_force(&limiter, 5).await;
    // A newer release knows the setting.
    let toml = "[rules.shared]\nlimit = \"6/h\"\nlease = 5\n";
    assert!(publish_as_before(&server, &prefix, 1, toml));
    eventually("rejected", async || limiter.shared_rules_error().is_some()).await;
    let published = stored_version(&server, &prefix);
    server.command(&["FLUSHALL"]);
    eventually_stored(&server, &prefix, &format!("{published}:0:restored")).await;
    assert_eq!(server.command(&["GET", &format!("{prefix}-rules:{{rules}}:toml")]).text(), toml);
    assert_eq!(in_force(&limiter).map(|(max, _)| max), Some(5));
}

/// The bytes are not those that were published.
#[tokio::test]
async fn a_text_of_another_digest_is_not_put_back() {
    let server = RedisServer::start();
    let prefix = unique("restore");
    let name = |name: &str| format!("{prefix}-rules:{{rules}}:{name}");
    server.command(&["MSET", &name("version"), "4 da39a3ee", &name("toml"), &text(5)]);
    let limiter = follower(&server.url(), &prefix).await;
    assert_eq!(limiter.shared_rules_version(), 4);
    server.command(&["FLUSHALL"]);
    eventually("reported", async || limiter.shared_rules_error().is_some()).await;
    assert_eq!(server.keys_with(&prefix), [""; 0]);
    assert_eq!(in_force(&limiter).map(|(max, _)| max), Some(5), "the last good rules");
}

#[tokio::test]
async fn a_text_is_not_put_back_before_a_newer_one_of_the_history() {
    let server = RedisServer::start();
    let prefix = unique("restore");
    let rules = operator(&server.url(), &prefix).await;
    rules.publish(&text(5), change(0)).await.expect("published");
    let proxies = [Proxy::start(&server), Proxy::start(&server)];
    let [old, new] = [follower(proxies[0].url(), &prefix).await, follower(proxies[1].url(), &prefix).await];
    proxies[0].cut();
    rules.publish(&text(6), change(1)).await.expect("published");
    eventually_in_force(&new, 6).await;
    let second = stored_version(&server, &prefix);
    proxies[1].cut();
    server.command(&["DEL", &format!("{prefix}-rules:{{rules}}:version")]);
    proxies[0].pass();
    let missing = "the store has no shared rules: publish a text";
    eventually("reported", async || old.shared_rules_error().is_some_and(|error| error.to_string() == missing)).await;
    assert_eq!(rules.read().await.expect("read").version, 0);
    proxies[1].pass();
    eventually_stored(&server, &prefix, &format!("{second}:restored")).await;
    eventually_in_force(&old, 6).await;
    assert_eq!(rules.history(5).await.expect("a history").len(), 2, "no entry twice");
}

#[tokio::test]
async fn processes_that_put_a_text_back_at_once_undo_no_publication_meanwhile() {
    let server = RedisServer::start();
    let prefix = unique("restore");
    let rules = operator(&server.url(), &prefix).await;
    let mut followers = Vec::new();
    for _ in 0..4 {
        followers.push(follower(&server.url(), &prefix).await);
    }
    let mut max = 5;
    rules.publish(&text(max), change(0)).await.expect("published");
    for round in 0..full_or(40, 4) {
        for limiter in &followers {
            eventually_in_force(limiter, max).await;
        }
        server.command(&["FLUSHALL"]);
        tokio::time::sleep(std::time::Duration::from_millis(round * 37 % 500)).await;
        max += 1;
        loop {
            let present = rules.read().await.expect("read").version;
            match rules.publish(&text(max), change(present)).await {
                Ok(_) => break,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict),
            }
        }
        let published = stored_version(&server, &prefix);
        for limiter in &followers {
            eventually_in_force(limiter, max).await;
        }
        assert_eq!(stored_version(&server, &prefix), published);
    }
}

/// Two processes have read that the version is missing. The script of the second one runs after that of the first, or after
/// a publication.
#[test]
fn the_script_decides_by_what_the_store_has_when_it_runs() {
    const SCRIPT: &str = concat!(
        include_str!("../../../limiter-core/src/store/redis/shared_rules/lua/history.lua"),
        include_str!("../../../limiter-core/src/store/redis/shared_rules/lua/restore.lua")
    );
    const DIGEST: &str = "a9993e364706816aba3e25717850c26c9cd0d89d";
    let server = RedisServer::start();
    let restore = |number: &str, digest: &str, micros: &str| {
        server.command(&["EVAL", SCRIPT, "3", "{r}v", "{r}t", "{r}h", number, digest, micros, "abc"])
    };
    let restored = |number: u32, micros: u32| format!("{number} {DIGEST}:{micros}:restored");
    let published = |number: u32, micros: u32| format!("{number} {DIGEST}:{micros}");
    let cases = [
        (None, None, 1),
        (None, Some("7 100 11 0 0\nabc"), 1),
        (None, Some("6 50 11 0 0\nolder"), 1),
        (None, Some("1 150 11 0 0\nnewer"), 0),
        (None, Some("foreign"), 0),
        (Some(restored(8, 99)), None, 1),
        (Some(restored(1, 99)), Some("1 99 11 0 0\nabc"), 1),
        (Some(restored(7, 100)), None, 0),
        (Some(restored(1, 101)), None, 0),
        (Some(published(1, 50)), None, 0),
        (Some(published(9, 150)), None, 0),
        (Some(format!("1 {DIGEST}")), None, 0),
        (Some("foreign".to_owned()), None, 0),
    ];
    for (present, newest, reply) in cases {
        server.command(&["FLUSHALL"]);
        if let Some(present) = &present {
            server.command(&["MSET", "{r}v", present, "{r}t", "present"]);
        }
        if let Some(newest) = newest {
            server.command(&["LPUSH", "{r}h", newest]);
        }
        let before = server.command(&["LRANGE", "{r}h", "0", "-1"]);
        assert_eq!(restore("7", DIGEST, "100"), Reply::Integer(reply), "{present:?} {newest:?}");
        let stored = server.command(&["MGET", "{r}v", "{r}t"]);
        let expected = match (reply, &present) {
            (1, _) => [Reply::Bulk(restored(7, 100).into()), Reply::Bulk(b"abc".to_vec())],
            (_, Some(present)) => [Reply::Bulk(present.clone().into()), Reply::Bulk(b"present".to_vec())],
            (_, None) => [Reply::Nil, Reply::Nil],
        };
        assert_eq!(stored, Reply::Array(expected.to_vec()), "{present:?} {newest:?}");
        let is_entered = server.command(&["LRANGE", "{r}h", "0", "-1"]) != before;
        assert_eq!(is_entered, reply == 1 && newest != Some("7 100 11 0 0\nabc"), "{present:?} {newest:?}");
    }
    server.command(&["FLUSHALL"]);
    assert_eq!(restore("7", "another", "100"), Reply::Integer(-1));
    // The time of a text without one is that of the history.
    server.command(&["LPUSH", "{r}h", "7 123 11 0 0\nabc"]);
    assert_eq!(restore("7", DIGEST, "0"), Reply::Integer(1));
    assert_eq!(server.command(&["GET", "{r}v"]), Reply::Bulk(restored(7, 123).into()));
}

#[test]
fn a_missing_permission_is_logged_once() {
    child_process::run("shared_rules::restore::log_of_a_missing_permission", &[("X", "")]);
}

#[tokio::test]
#[ignore = "needs a process of its own, with a subscriber"]
async fn log_of_a_missing_permission() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    let server = RedisServer::builder().tcp().start();
    let prefix = unique("restore");
    let user = ["ACL", "SETUSER", "reader", "reset", "on", ">pw", "+@all", "-lpush", "~*"];
    server.command(&user);
    let rules = operator(&server.url(), &prefix).await;
    rules.publish(&text(5), change(0)).await.expect("published");
    let limiter = follower(&server.url().replace("//", "//reader:pw@"), &prefix).await;
    let with = |part: &str| lines().into_iter().filter(|line| line.contains(part)).count();
    for _ in 0..2 {
        server.command(&["FLUSHALL"]);
        eventually("reported", async || limiter.shared_rules_error().is_some()).await;
        assert_eq!(server.keys_with(&prefix), [""; 0], "nothing is half put back");
        rules.publish(&text(5), change(0)).await.expect("published");
        eventually_in_force(&limiter, 5).await;
    }
    let refused = "this process may not put them back";
    assert_eq!(with(refused), 1);
    let needed = "needs `~PREFIX-rules:* +script|load +evalsha +get +set +lpush +lrange`".replace("PREFIX", &prefix);
    assert!(lines().iter().any(|line| line.contains(refused) && line.contains(&needed)), "{:?}", lines());
}
