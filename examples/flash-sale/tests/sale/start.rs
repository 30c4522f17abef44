//! Options and surroundings with which the program does not start.

use std::net::TcpListener;

use limiter_testkit::RedisServer;

use crate::program::run;

/// Returns the code and the message of a start that fails.
fn failure(redis: &str, options: &[&str]) -> (Option<i32>, String) {
    let output = run(redis, options);
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn a_redis_that_is_away_is_one_line_with_the_remedy() {
    let (code, message) = failure("redis://user:secret@127.0.0.1:1", &[]);
    assert_eq!((code, message.lines().count()), (Some(1), 1), "{message}");
    assert!(message.starts_with("flash-sale: ") && message.contains("127.0.0.1:1"), "{message}");
    assert!(message.contains("start one with `redis-server`") && !message.contains("secret"), "{message}");
}

#[test]
fn a_store_that_is_no_redis_is_one_line() {
    for url in ["memory:", "http://127.0.0.1:6379", ""] {
        let (code, message) = failure(url, &[]);
        assert_eq!((code, message.lines().count()), (Some(1), 1), "{message}");
    }
}

#[test]
fn a_port_in_use_is_one_line_with_the_remedy() {
    let (server, listener) = (RedisServer::start(), TcpListener::bind("127.0.0.1:0").expect("a port"));
    let address = listener.local_addr().expect("an address").to_string();
    let (code, message) = failure(&server.url(), &["--listen", &address]);
    assert_eq!((code, message.lines().count()), (Some(1), 1), "{message}");
    assert!(message.contains(&address) && message.contains("another --listen"), "{message}");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn options_out_of_range_are_refused() {
    let options = [
        ["--buyers", "-1"],
        ["--buyers", "100001"],
        ["--items", "2"],
        ["--items", "131072"],
        ["--listen", "localhost"],
        ["--opens-in", "soon"],
        ["--opens-in", "2h"],
        ["--product-limit", "0/s"],
        ["--buyer-limit", "many"],
    ];
    for option in options {
        let (code, message) = failure("redis://127.0.0.1:1", &option);
        assert!(code == Some(2) && message.contains(option[0]), "{option:?}: {message}");
    }
}
