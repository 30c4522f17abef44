//! Texts that cannot be used, and stores that lose them.

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Change, ErrorKind, Limiter, SharedRules};

use super::{builder, change, eventually_in_force, eventually_version, in_force, text};
use crate::child_process;
use crate::deadlines::eventually;
use crate::health::log::{RecordsLines, lines};

async fn follower(server: &RedisServer, prefix: &str) -> Limiter {
    follower_at(&server.url(), server, prefix).await
}

async fn follower_at(url: &str, server: &RedisServer, prefix: &str) -> Limiter {
    let limiter = builder(url, prefix).shared_rules().connect().await.expect("connects");
    let rules = SharedRules::new(&builder(&server.url(), prefix).connect().await.expect("connects"));
    rules.publish(&text(5), change(0)).await.expect("published");
    eventually_in_force(&limiter, 5).await;
    limiter
}

/// Stores a text as no `publish` would.
fn store(server: &RedisServer, prefix: &str, version: &str, toml: &[u8]) {
    let name = |name: &str| format!("{prefix}-rules:{{rules}}:{name}");
    let toml = String::from_utf8(toml.to_vec()).expect("text");
    server.command(&["MSET", &name("version"), version, &name("toml"), &toml]);
}

async fn eventually_error(limiter: &Limiter, expected: &str) {
    eventually(expected, async || limiter.shared_rules_error().is_some_and(|error| error.to_string() == expected))
        .await;
}

#[tokio::test]
async fn the_last_good_rules_survive_a_broken_text() {
    let (server, prefix) = (RedisServer::start(), unique("shared"));
    let limiter = follower(&server, &prefix).await;
    for (version, toml, problem) in [
        ("2 broken", "[rules.shared]\nlimit = \"5/10x\"\n", "line 2, column 9: `limit` must be"),
        ("3 newer", "[rules.shared]\nlimit = \"7/h\"\nlease = 5\n", "line 3, column 1: `lease` must be"),
        (
            "4 strict",
            "strict = true\n",
            "line 1, column 1: `strict` must be left out of shared rules, got it: set it for each program, in its own file \
             of rules or its builder",
        ),
    ] {
        store(&server, &prefix, version, toml.as_bytes());
        let number = version.split(' ').next().expect("a number");
        let start = format!("the shared rules, version {number}: {problem}");
        let is_reported = || limiter.shared_rules_error().is_some_and(|error| error.to_string().starts_with(&start));
        eventually(&start, async || is_reported()).await;
        assert_eq!((in_force(&limiter).map(|(max, _)| max), limiter.shared_rules_version()), (Some(5), 1));
    }
    // A process that starts now has no rules, and works.
    let late = builder(&server.url(), &prefix).shared_rules().connect().await.expect("connects");
    assert_eq!((in_force(&late), late.shared_rules_version()), (None, 0));
    assert_eq!(late.shared_rules_error().expect("the same error").kind(), ErrorKind::Config);
    let rules = SharedRules::new(&limiter);
    assert_eq!(rules.publish(&text(8), change(4)).await.expect("published"), 5);
    for limiter in [&limiter, &late] {
        eventually_in_force(limiter, 8).await;
    }
}

/// Returns a follower that may not put back what the store loses.
async fn reader(server: &RedisServer, prefix: &str) -> Limiter {
    let (write, read) = (format!("~{prefix}:*"), format!("%R~{prefix}-rules:*"));
    server.command(&["ACL", "SETUSER", "reader", "reset", "on", ">pw", "+@all", &write, &read]);
    follower_at(&server.url().replace("//", "//reader:pw@"), server, prefix).await
}

#[tokio::test]
async fn the_last_good_rules_survive_the_loss_of_the_text() {
    let mut server = RedisServer::builder().tcp().start();
    if server.version() < (7, 0) {
        return; // It has no permission to read alone.
    }
    let prefix = unique("shared");
    let limiter = reader(&server, &prefix).await;
    let missing = "the store has no shared rules: publish a text";
    server.command(&["FLUSHALL"]);
    eventually_error(&limiter, missing).await;
    server.kill();
    eventually("unreachable", async || limiter.shared_rules_error().is_some_and(|error| error.is_transient())).await;
    server.restart();
    server.command(&[
        "ACL",
        "SETUSER",
        "reader",
        "reset",
        "on",
        ">pw",
        "+@all",
        &format!("~{prefix}:*"),
        &format!("%R~{prefix}-rules:*"),
    ]);
    eventually_error(&limiter, missing).await;
    assert_eq!((in_force(&limiter).map(|(max, _)| max), limiter.shared_rules_version()), (Some(5), 1));
    // The numbers begin anew.
    let rules = SharedRules::new(&builder(&server.url(), &prefix).connect().await.expect("connects"));
    assert_eq!(rules.publish(&text(6), change(0)).await.expect("published"), 1);
    eventually_in_force(&limiter, 6).await;
    eventually_version(&limiter, 1).await;
}

/// A counter of such a layout has the plain key in its name.
#[tokio::test]
async fn a_limiter_that_hashes_keys_rejects_sorted_sets() {
    let server = RedisServer::start();
    let limiter = builder(&server.url(), "z").hash_keys([7; 32]).shared_rules().connect().await.expect("connects");
    let toml = "[rules.shared]\nlimit = \"5/s\"\nlayout = \"zset\"\n";
    SharedRules::new(&limiter).publish(toml, change(0)).await.expect("published");
    let is_rejected =
        || limiter.shared_rules_error().is_some_and(|error| error.to_string().contains("`hash_keys` must"));
    eventually("rejected", async || is_rejected()).await;
    assert_eq!((in_force(&limiter), limiter.shared_rules_version()), (None, 0));
}

#[tokio::test]
async fn foreign_values_change_nothing() {
    let (server, prefix) = (RedisServer::start(), unique("shared"));
    let limiter = follower(&server, &prefix).await;
    let foreign = "a key of the shared rules holds something else than this limiter writes: delete it, or use another \
                   `prefix`";
    store(&server, &prefix, "seven", b"");
    eventually_error(&limiter, foreign).await;
    let late = builder(&server.url(), &prefix).shared_rules().connect().await.expect("connects");
    assert_eq!(late.shared_rules_error().expect("foreign").to_string(), foreign);
    let rules = SharedRules::new(&limiter);
    let error = rules.publish(&text(1), change(1)).await.expect_err("foreign");
    assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Protocol, foreign));
    assert_eq!(rules.read().await.expect_err("foreign").kind(), ErrorKind::Protocol);
    // No poll comes in between: a text that is missing would be put back.
    server.command(&["SADD", "set", "a"]);
    server.command(&["RENAME", "set", &format!("{prefix}-rules:{{rules}}:version")]);
    let error = rules.publish(&text(1), change(1)).await.expect_err("another type");
    assert!(!error.is_transient(), "{error:?}");
    assert_eq!(in_force(&limiter).map(|(max, _)| max), Some(5));
}

#[tokio::test]
async fn a_bad_change_is_refused_before_it_is_sent() {
    let server = RedisServer::start();
    let rules = SharedRules::new(&builder(&server.url(), "b").connect().await.expect("connects"));
    let long = format!("# {}\n", "x".repeat(1 << 20));
    for (toml, start) in [
        ("[rules.a]\nlimit = \"5/10x\"", "line 2, column 9: `limit` must be"),
        ("shared = true", "line 1, column 1: `shared` must be left out of shared rules, got it"),
        (
            "[rules.\"a:{id}\"]\n[[rules.\"a:{id}\".override]]\nmatch = { no = \"1\" }\n",
            "line 3, column 9: override 1 of the rule",
        ),
        (&long, "line 1, column 1: the text of shared rules must have at most 1048576 bytes, got 1048579"),
    ] {
        let error = rules.publish(toml, change(0)).await.expect_err(start);
        assert!(error.kind() == ErrorKind::Config && error.to_string().starts_with(start), "{error}");
    }
    let details = |who: &str, why: &str| Change { based_on: 0, who: who.to_owned(), why: why.to_owned() };
    for (details, expected) in [
        (details(&"x".repeat(1001), ""), "`who` must have at most 1000 bytes, got 1001: shorten it"),
        (
            details("", "a\nb"),
            "`why` must be one line of plain text, got \"a\\nb\": remove line breaks and control characters",
        ),
    ] {
        assert_eq!(rules.publish("", details).await.expect_err(expected).to_string(), expected);
    }
    assert_eq!(rules.read().await.expect("read").version, 0);
}

#[tokio::test]
async fn an_older_text_after_a_failover_is_followed() {
    let (server, prefix) = (RedisServer::start(), unique("shared"));
    let limiter = follower(&server, &prefix).await;
    SharedRules::new(&limiter).publish(&text(6), change(1)).await.expect("published");
    eventually_in_force(&limiter, 6).await;
    // The new master has not received the last change. Then another text gets the same number.
    for (version, max) in [("1 a", 5), ("1 b", 4), ("2 c", 3), ("2 d", 2)] {
        store(&server, &prefix, version, text(max).as_bytes());
        eventually_in_force(&limiter, max).await;
    }
    // The history has another text of that number.
    let present = SharedRules::new(&limiter).read().await.expect("read");
    assert_eq!((present.version, present.toml, &*present.who), (2, text(2), ""));
}

#[test]
fn each_problem_has_one_log_line() {
    child_process::run("shared_rules::problems::log_of_shared_rules", &[("X", "")]);
}

#[tokio::test]
#[ignore = "needs a process of its own, with a subscriber"]
async fn log_of_shared_rules() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    let with = |part: &str| lines().into_iter().filter(|line| line.contains(part)).count();
    let (mut server, prefix) = (RedisServer::start(), unique("shared"));
    let limiter = follower(&server, &prefix).await;
    assert_eq!(with("the store has no shared rules"), 1, "before the first text");
    // The line is written after the rules are in force.
    eventually("logged", async || with("the shared rules have changed and are in force") == 1).await;
    store(&server, &prefix, "2 x", b"[rules.shared]\nlimit = 5\n");
    eventually("logged", async || with("version 2: line 2, column 9") == 1).await;
    server.kill();
    eventually("logged", async || with("the shared rules cannot be read") == 1).await;
    server.restart();
    // The rejected text is what the store had, but its SHA-1 is another.
    eventually("logged", async || with("the store has no shared rules") == 2).await;
    let rules = SharedRules::new(&limiter);
    eventually("published", async || rules.publish(&text(7), change(0)).await.is_ok()).await;
    eventually_in_force(&limiter, 7).await;
    server.command(&["FLUSHALL"]);
    eventually("logged", async || with("this process has put them back") == 1).await;
    store(&server, &prefix, "4 y", text(9).as_bytes());
    eventually_in_force(&limiter, 9).await;
    store(&server, &prefix, "3 z", text(8).as_bytes());
    eventually_in_force(&limiter, 8).await;
    eventually("logged", async || with("the shared rules went back to an earlier version") >= 1).await;
    // No problem was logged again while it lasted.
    for (problem, times) in [
        ("version 2: line 2, column 9", 1),
        ("the shared rules cannot be read", 1),
        ("the store has no shared rules", 2),
    ] {
        assert_eq!(with(problem), times, "{problem}");
    }
}

/// A server that evicts keys may evict the text alone.
#[tokio::test]
async fn a_version_without_its_text_is_repaired_by_a_change() {
    let (server, prefix) = (RedisServer::start(), unique("shared"));
    let limiter = follower(&server, &prefix).await;
    let name = |name: &str| format!("{prefix}-rules:{{rules}}:{name}");
    server.command(&["DEL", &name("toml")]);
    let late = builder(&server.url(), &prefix).shared_rules().connect().await.expect("connects");
    eventually_error(&late, "the store has no shared rules: publish a text").await;
    let rules = SharedRules::new(&limiter);
    let present = rules.read().await.expect("read");
    assert_eq!((present.version, present.toml), (1, text(5)), "of the history");
    server.command(&["DEL", &name("history")]);
    let present = rules.read().await.expect("read");
    assert_eq!((present.version, &*present.toml), (1, ""));
    rules.publish(&text(6), change(1)).await.expect("published");
    eventually_in_force(&late, 6).await;
    eventually_in_force(&limiter, 6).await;
}
