use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

mod access;
mod apart;
mod life;

fn panic_message(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
    panic.downcast_ref::<String>().expect("a formatted message").clone()
}

#[test]
fn keeps_nothing_on_disk() {
    let server = RedisServer::start();
    assert_eq!(server.command(&["CONFIG", "GET", "save"]).array()[1], Reply::Bulk(Vec::new()));
    assert_eq!(server.command(&["CONFIG", "GET", "appendonly"]).array()[1], Reply::Bulk(b"no".to_vec()));
    if server.version() >= (7, 0) {
        assert_eq!(server.command(&["DEBUG", "SLEEP", "0"]).text(), "OK");
    }
}

#[test]
fn tells_keys_and_their_time_to_live() {
    let (server, other) = (RedisServer::shared(), unique("other"));
    let prefix = unique("keys");
    let [mortal, immortal, missing] = ["a", "b", "c"].map(|name| format!("{prefix}:{name}"));
    server.command(&["SET", &immortal, "1"]);
    server.command(&["SET", &mortal, "1", "PX", "60000"]);
    server.command(&["SET", &other, "1"]);
    assert_eq!(server.keys_with(&prefix), [mortal.clone(), immortal.clone()]);
    assert!(server.keys().contains(&other));
    assert!((1..=60_000).contains(&server.pttl(&mortal)));
    assert_eq!(server.pttl(&immortal), -1);
    assert_eq!(server.pttl(&missing), -2);
}

#[test]
fn tells_info_and_forgets_scripts() {
    let server = RedisServer::start();
    let digest = server.command(&["SCRIPT", "LOAD", "return 7"]).text();
    assert_eq!(server.command(&["EVALSHA", &digest, "0"]).integer(), 7);
    assert_eq!(server.info("memory")["number_of_cached_scripts"], "1");
    server.flush_scripts();
    let reply = server.try_command(&["EVALSHA", &digest, "0"]).expect("a reply");
    assert!(reply.error().starts_with("NOSCRIPT"));
}

#[test]
fn a_refused_command_says_why() {
    let message = panic_message(|| {
        RedisServer::shared().command(&["INCRBY", "a", "b"]);
    });
    assert_eq!(message, r#"["INCRBY", "a", "b"] was refused: ERR value is not an integer or out of range"#);
}

#[test]
fn maxmemory_refuses_writes() {
    let server = RedisServer::builder().maxmemory(1).start();
    let reply = server.try_command(&["SET", "a", "1"]).expect("a reply");
    assert!(reply.error().starts_with("OOM"));
}

#[test]
fn names_are_unique() {
    let (one, other) = (unique("a"), unique("a"));
    assert_ne!(one, other);
    assert!(one.starts_with("a-"));
}

#[test]
fn a_clock_that_was_shifted_is_the_servers_own() {
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
fn no_key_expires_while_the_servers_clock_stands_still() {
    let mut server = RedisServer::builder().shifted_clock().start();
    server.command(&["SET", "before", "1", "PX", "600000"]);
    server.stop_clock();
    server.command(&["SET", "after", "1", "PX", "1"]);
    let ttl = server.pttl("before");
    // Its own clocks go on: it looks for keys to expire a few times meanwhile.
    thread::sleep(Duration::from_millis(50));
    assert_eq!((server.pttl("before"), server.pttl("after")), (ttl, 1));
}
