//! How a server starts and ends.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;

#[test]
fn a_server_is_gone_with_its_value() {
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
fn a_paused_server_answers_when_it_goes_on() {
    let mut server = RedisServer::start();
    let mut client = Client::connect(&server.address(), DEADLINE).expect("it listens");
    client.set_timeout(Duration::from_millis(50));
    server.pause();
    assert_eq!(client.call(&["INCR", "n"]).expect_err("paused").kind(), ErrorKind::TimedOut);
    server.resume();
    assert_eq!(server.command(&["INCR", "n"]).integer(), 2);
}

#[test]
fn a_killed_server_comes_back_empty_at_the_same_place() {
    for builder in [RedisServer::builder(), RedisServer::builder().tcp()] {
        let mut server = builder.start();
        let (url, address) = (server.url(), server.address());
        server.command(&["SET", "a", "1"]);
        let mut client = Client::connect(&address, DEADLINE).expect("it listens");
        server.kill();
        assert!(client.call(&["PING"]).is_err());
        assert!(Client::connect(&address, DEADLINE).is_err());
        assert!(server.try_command(&["PING"]).is_err());
        server.restart();
        assert_eq!((server.url(), server.keys()), (url, Vec::new()));
        assert!(Client::connect(&address, DEADLINE).is_ok());
    }
}

#[test]
fn a_restart_keeps_what_the_server_wrote_into_its_configuration() {
    let mut server = RedisServer::start();
    server.command(&["CONFIG", "SET", "maxmemory", "50000000"]);
    server.command(&["CONFIG", "REWRITE"]);
    server.restart();
    assert_eq!(server.command(&["CONFIG", "GET", "maxmemory"]).array()[1], Reply::Bulk(b"50000000".to_vec()));
}

#[test]
fn a_server_that_cannot_start_shows_its_log() {
    let began = Instant::now();
    let message = panic_message(|| drop(RedisServer::builder().setting("maxmemory", "lots").start()));
    assert!(message.contains("ended while starting"), "{message}");
    assert!(message.contains("argument must be a memory value"), "{message}");
    assert!(began.elapsed() < DEADLINE);
}
