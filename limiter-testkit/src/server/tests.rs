use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

mod access;
mod child_process;
mod life;

fn panic_message(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
    panic.downcast_ref::<String>().expect("a formatted message").clone()
}

#[test]
fn nothing_is_kept_on_disk() {
    let server = RedisServer::start();
    assert_eq!(server.command(&["CONFIG", "GET", "save"]).array()[1], Reply::Bulk(Vec::new()));
    assert_eq!(server.command(&["CONFIG", "GET", "appendonly"]).array()[1], Reply::Bulk(b"no".to_vec()));
    if server.version() >= (7, 0) {
        assert_eq!(server.command(&["DEBUG", "SLEEP", "0"]).text(), "OK");
    }
}

#[test]
fn returns_keys_and_their_time_to_live() {
    let (server, other) = (RedisServer::shared(), unique("other"));
    let prefix = unique("keys");
    let [expiring, persistent, missing] = ["a", "b", "c"].map(|name| format!("{prefix}:{name}"));
    server.command(&["SET", &persistent, "1"]);
    server.command(&["SET", &expiring, "1", "PX", "60000"]);
    server.command(&["SET", &other, "1"]);
    assert_eq!(server.keys_with(&prefix), [expiring.clone(), persistent.clone()]);
    assert!(server.keys().contains(&other));
    assert!((1..=60_000).contains(&server.pttl(&expiring)));
    assert_eq!(server.pttl(&persistent), -1);
    assert_eq!(server.pttl(&missing), -2);
}

#[test]
fn returns_info_and_flushes_scripts() {
    let server = RedisServer::start();
    let digest = server.command(&["SCRIPT", "LOAD", "return 7"]).text();
    assert_eq!(server.command(&["EVALSHA", &digest, "0"]).integer(), 7);
    assert_eq!(server.info("memory")["number_of_cached_scripts"], "1");
    server.flush_scripts();
    let reply = server.try_command(&["EVALSHA", &digest, "0"]).expect("a reply");
    assert!(reply.error().starts_with("NOSCRIPT"));
}

#[test]
fn a_rejected_command_panics_with_the_servers_error() {
    let message = panic_message(|| {
        RedisServer::shared().command(&["INCRBY", "a", "b"]);
    });
    assert_eq!(message, r#"["INCRBY", "a", "b"] was rejected: ERR value is not an integer or out of range"#);
}

#[test]
fn maxmemory_rejects_writes() {
    let server = RedisServer::builder().maxmemory(1).start();
    let reply = server.try_command(&["SET", "a", "1"]).expect("a reply");
    assert!(reply.error().starts_with("OOM"));
}

#[test]
fn unique_names_differ() {
    let (one, other) = (unique("a"), unique("a"));
    assert_ne!(one, other);
    assert!(one.starts_with("a-"));
}

#[test]
fn a_shifted_clock_is_shown_by_the_server() {
    let mut server = RedisServer::builder().shifted_clock().start();
    let seconds = |server: &RedisServer| {
        let time = server.command(&["TIME"]).array();
        time.into_iter().next().expect("seconds first").text().parse::<i64>().expect("a number")
    };
    let real = seconds(&server);
    server.set_clock(1_000_000_000_500_000);
    let ahead = seconds(&server) - real;
    assert!((1_000_000_000..1_000_000_010).contains(&ahead), "{ahead} s ahead");
    server.set_clock(-3_000_500_000);
    let behind = real - seconds(&server);
    assert!((2_990..=3_001).contains(&behind), "{behind} s behind");
    server.set_clock(0);
    assert!((0..10).contains(&(seconds(&server) - real)));
}

#[test]
fn no_key_expires_while_the_clock_is_stopped() {
    let mut server = RedisServer::builder().shifted_clock().start();
    server.command(&["SET", "before", "1", "PX", "600000"]);
    server.stop_clock();
    server.command(&["SET", "after", "1", "PX", "1"]);
    let ttl = server.pttl("before");
    // The server's other clocks run, so it searches for expired keys several times meanwhile.
    thread::sleep(Duration::from_millis(50));
    assert_eq!((server.pttl("before"), server.pttl("after")), (ttl, 1));
}
