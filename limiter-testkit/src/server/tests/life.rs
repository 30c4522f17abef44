//! Start and end of a server.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;

#[test]
fn a_dropped_server_is_gone() {
    let server = RedisServer::start();
    let socket = server.socket().to_owned();
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    assert!(server.url().starts_with("redis+unix:///"));
    assert!(UnixStream::connect(&socket).is_ok());
    drop(server);
    assert!(UnixStream::connect(&socket).is_err());
    assert!(!socket.parent().expect("its directory").exists());
}

#[test]
fn a_resumed_server_replies_to_pending_commands() {
    let mut server = RedisServer::start();
    let mut client = Client::connect(&server.address(), REPLY_TIMEOUT).expect("it listens");
    client.set_timeout(Duration::from_millis(50));
    server.pause();
    assert_eq!(client.call(&["INCR", "n"]).expect_err("paused").kind(), ErrorKind::TimedOut);
    server.resume();
    assert_eq!(server.command(&["INCR", "n"]).integer(), 2);
}

#[test]
fn a_restarted_server_is_empty_and_has_the_same_url() {
    for builder in [RedisServer::builder(), RedisServer::builder().tcp()] {
        let mut server = builder.start();
        let (url, address) = (server.url(), server.address());
        server.command(&["SET", "a", "1"]);
        let mut client = Client::connect(&address, REPLY_TIMEOUT).expect("it listens");
        server.kill();
        assert!(client.call(&["PING"]).is_err());
        assert!(Client::connect(&address, REPLY_TIMEOUT).is_err());
        assert!(server.try_command(&["PING"]).is_err());
        server.restart();
        assert_eq!((server.url(), server.keys()), (url, Vec::new()));
        assert!(Client::connect(&address, REPLY_TIMEOUT).is_ok());
    }
}

#[test]
fn a_restart_keeps_the_rewritten_configuration() {
    let mut server = RedisServer::start();
    server.command(&["CONFIG", "SET", "maxmemory", "50000000"]);
    server.command(&["CONFIG", "REWRITE"]);
    server.restart();
    assert_eq!(server.command(&["CONFIG", "GET", "maxmemory"]).array()[1], Reply::Bulk(b"50000000".to_vec()));
}

#[test]
fn a_failed_start_panics_with_the_log() {
    let began = Instant::now();
    let message = panic_message(|| drop(RedisServer::builder().setting("maxmemory", "lots").start()));
    assert!(message.contains("ended while starting"), "{message}");
    assert!(message.contains("argument must be a memory value"), "{message}");
    assert!(began.elapsed() < REPLY_TIMEOUT);
}
