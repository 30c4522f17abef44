//! Tests of promises 2 and 4 on Redis: every write sets an expiry, and a denial writes nothing.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{ErrorKind, Key, Limiter, ManualClock};

use crate::deadlines::eventually;
use crate::support::{builder_for, key, unpacked_limit as limit};

async fn new_server() -> (RedisServer, Limiter) {
    let server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("connects");
    (server, limiter)
}

/// Returns the TTL of the only key, in milliseconds.
fn only_ttl(server: &RedisServer) -> i64 {
    let keys = server.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    server.pttl(&keys[0])
}

fn write_count(server: &RedisServer) -> u64 {
    server.info("persistence")["rdb_changes_since_last_save"].parse().expect("a number")
}

/// Returns a limiter with a manual clock. Its windows are so long that no key expires during a test.
async fn new_server_with_manual_clock() -> (RedisServer, Limiter, ManualClock) {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let limiter =
        builder_for(&server).clock(clock.clone()).remember_denials(Duration::ZERO).connect().await.expect("connects");
    (server, limiter, clock)
}

#[tokio::test]
async fn every_write_path_sets_an_expiry() {
    let (server, limiter, clock) = new_server_with_manual_clock().await;
    let (key, limit) = (key("a"), limit("4/300s"));
    let check = async |what: &str| {
        let _ = limiter.check(&key, &limit).await.expect("answers");
        let ttl = only_ttl(&server);
        assert!(ttl > 0 && ttl <= 301_000, "{ttl} ms after {what}");
    };
    check("the first permit").await;
    check("a permit in the same run").await;
    clock.advance(Duration::from_secs(150));
    check("a permit in a new run").await;
    check("the last permit").await;
    check("a denial").await;
    clock.advance(Duration::from_secs(200));
    check("a permit that trims expired ones").await;
    clock.advance(Duration::from_secs(350));
    check("a permit after all others have expired").await;
}

#[tokio::test]
async fn key_disappears_when_its_ttl_ends() {
    let (server, limiter) = new_server().await;
    assert!(limiter.check(&key("a"), &limit("4/100ms")).await.expect("answers").is_allowed());
    eventually("gone", async || server.keys().is_empty()).await;
}

/// Fills a log until calls share its runs.
#[tokio::test]
async fn full_log_expires() {
    let (server, limiter, clock) = new_server_with_manual_clock().await;
    for _ in 0..400 {
        let _ = limiter.check(&key("a"), &limit("1000/60s")).await.expect("answers");
        clock.advance(Duration::from_millis(1));
    }
    let ttl = only_ttl(&server);
    assert!(ttl > 30_000 && ttl <= 61_000, "{ttl} ms");
    let bytes = server.command(&["STRLEN", &server.keys()[0]]).integer();
    assert!(bytes > 11 + 8 * 64 && bytes <= 11 + 8 * 257, "{bytes} bytes");
}

/// A limiter that sets the TTL before it writes would lose it when its trim empties the key. That happens between the
/// end of the window and the end of the key's life.
#[tokio::test]
async fn key_emptied_by_a_trim_gets_a_new_ttl() {
    let (server, limiter, clock) = new_server_with_manual_clock().await;
    let (key, limit) = (key("a"), limit("1/200s"));
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    clock.advance(Duration::from_secs(300));
    assert!(only_ttl(&server) > 0, "the window has ended, the key has not expired");
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    let ttl = only_ttl(&server);
    assert!(ttl > 100_000 && ttl <= 201_000, "{ttl} ms");
}

#[tokio::test]
async fn denial_and_peek_write_nothing() {
    let (server, limiter) = new_server().await;
    let (key, limit) = (key("a"), limit("1/1h"));
    let before = write_count(&server);
    let _ = limiter.peek(&Key::new("unseen"), &limit).await.expect("answers");
    assert_eq!(write_count(&server), before);
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    assert_eq!(write_count(&server), before + 1, "one write per permit");
    for _ in 0..50 {
        assert!(limiter.check(&key, &limit).await.expect("answers").is_denied());
        assert!(limiter.peek(&key, &limit).await.expect("answers").is_denied());
        assert!(limiter.check_n(&key, &limit, 2).await.expect("answers").is_denied());
        assert!(limiter.check_n(&key, &limit, 0).await.expect("answers").is_allowed());
    }
    assert_eq!(write_count(&server), before + 1);
}

#[tokio::test]
async fn reset_deletes_the_key() {
    let (server, limiter) = new_server().await;
    assert!(limiter.check(&key("a"), &limit("1/1h")).await.expect("answers").is_allowed());
    limiter.reset(&key("a"), &limit("1/1h")).await.expect("answers");
    assert_eq!(server.keys(), [""; 0]);
}

#[tokio::test]
async fn reset_leaves_a_foreign_value() {
    let (server, limiter) = new_server().await;
    assert!(limiter.check(&key("a"), &limit("1/1h")).await.expect("answers").is_allowed());
    let name = server.keys().remove(0);
    server.command(&["SET", &name, "foreign"]);
    let error = limiter.reset(&key("a"), &limit("1/1h")).await.expect_err("a foreign value");
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(server.command(&["GET", &name]).text(), "foreign");
}

/// The clock is behind, and the key lives until its last permit expires by that clock.
#[tokio::test]
async fn permit_taken_while_the_clock_is_behind_lives_longer() {
    // A log of 40 instants is changed in place.
    for instants in [1, 40] {
        let (server, limiter, clock) = new_server_with_manual_clock().await;
        for _ in 0..instants {
            clock.advance(Duration::from_millis(1));
            assert!(limiter.check(&key("a"), &limit("50/100s")).await.expect("answers").is_allowed());
        }
        clock.rewind(Duration::from_secs(50));
        assert!(limiter.check(&key("a"), &limit("50/100s")).await.expect("answers").is_allowed());
        let ttl = only_ttl(&server);
        assert!(ttl > 125_000 && ttl <= 151_000, "{ttl} ms after {instants} instants");
    }
}

#[tokio::test]
async fn five_permits_use_less_memory_than_a_sorted_set() {
    let (server, limiter) = new_server().await;
    for _ in 0..5 {
        let _ = limiter.check(&key("getId"), &limit("5/10s")).await.expect("answers");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let ours = server.command(&["MEMORY", "USAGE", &server.keys()[0]]).integer();
    for index in 0..5 {
        let (score, member) = (1_700_000_000_000_u64 + index, format!("1-{index}-{}", 1_700_000_000_000_u64 + index));
        server.command(&["ZADD", "rl:{getId}:zset", &score.to_string(), &member]);
    }
    let theirs = server.command(&["MEMORY", "USAGE", "rl:{getId}:zset"]).integer();
    assert!(ours * 10 <= theirs * 8, "{ours} bytes against {theirs}");
}

/// The permits are taken at a thousand instants of one second, which is more than a log distinguishes.
#[tokio::test]
async fn a_hundred_thousand_permits_use_a_thousandth_of_a_sorted_set() {
    const ENTRIES: &str = "for entry = 1, 100000 do \
        local stamp = string.format('%d', 1700000000000 + entry / 100) \
        redis.call('ZADD', KEYS[1], stamp, entry % 8 .. '-' .. entry .. '-' .. stamp) end";
    let mut server = RedisServer::builder().shifted_clock().start();
    // The server's clock stands still, so no key expires before its time on the limiter's clock.
    server.stop_clock();
    let clock = ManualClock::new();
    let limiter = builder_for(&server).clock(clock.clone()).connect().await.expect("connects");
    for _ in 0..2_000 {
        let taken = limiter.check_n(&key("getId"), &limit("100000/1s"), 50).await.expect("answers");
        assert!(taken.is_allowed());
        clock.advance(Duration::from_micros(500));
    }
    // Half a millisecond before the first permits expire.
    clock.rewind(Duration::from_micros(500));
    assert!(
        limiter.check(&key("getId"), &limit("100000/1s")).await.expect("answers").is_denied(),
        "all permits are in use"
    );
    let ours = server.command(&["MEMORY", "USAGE", &server.keys()[0]]).integer();
    server.command(&["EVAL", ENTRIES, "1", "rl:{getId}:zset"]);
    assert_eq!(server.command(&["ZCARD", "rl:{getId}:zset"]).integer(), 100_000);
    let theirs = server.command(&["MEMORY", "USAGE", "rl:{getId}:zset"]).integer();
    println!("{ours} bytes against {theirs}");
    assert!(ours <= 4_096 && ours * 1_000 <= theirs, "{ours} bytes against {theirs}");
}
