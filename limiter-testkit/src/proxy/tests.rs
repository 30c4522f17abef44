use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use super::*;
use crate::resp::Client;

/// Timeouts for calls that get a reply, and for calls that get none.
const LONG_TIMEOUT: Duration = Duration::from_secs(5);
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

fn proxy() -> Proxy {
    Proxy::forward_to(RedisServer::shared().address())
}

fn client(proxy: &Proxy, timeout: Duration) -> Client {
    Client::connect(&proxy.address(), timeout).expect("the proxy accepts")
}

/// Opens a connection without a RESP client, to read single bytes.
fn raw(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address).expect("the proxy accepts");
    stream.set_read_timeout(Some(LONG_TIMEOUT)).expect("not zero");
    stream
}

fn ping(client: &mut Client) -> io::Result<String> {
    client.call(&["PING"]).map(crate::Reply::text)
}

#[track_caller]
fn assert_replies(proxy: &Proxy) {
    assert_eq!(ping(&mut client(proxy, LONG_TIMEOUT)).expect("a reply"), "PONG");
}

#[track_caller]
fn assert_closed(client: &mut Client) {
    let kind = ping(client).expect_err("the connection is closed").kind();
    assert_ne!(kind, ErrorKind::TimedOut);
}

#[test]
fn forwards_more_than_one_chunk_in_both_directions() {
    let proxy = proxy();
    let mut client = client(&proxy, LONG_TIMEOUT);
    let text = "x".repeat(300_000);
    assert_eq!(client.call(&["ECHO", &text]).expect("a reply").text(), text);
    assert_eq!(ping(&mut client).expect("a reply"), "PONG");
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn cut_closes_open_and_new_connections() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let mut open = client(&proxy, LONG_TIMEOUT);
    assert!(ping(&mut open).is_ok());
    proxy.cut();
    assert_closed(&mut open);
    let reached = || server.info("stats")["total_connections_received"].parse::<u32>().expect("a number");
    let before = reached();
    assert_closed(&mut client(&proxy, LONG_TIMEOUT));
    assert_eq!(reached(), before + 1); // the connection of `INFO` itself
    assert_eq!(proxy.connections(), 2);
    proxy.pass();
    assert_replies(&proxy);
}

#[test]
fn stall_accepts_connections_and_discards_bytes() {
    let (proxy, key) = (proxy(), crate::unique("stall"));
    let mut open = client(&proxy, LONG_TIMEOUT);
    assert!(ping(&mut open).is_ok());
    open.set_timeout(SHORT_TIMEOUT);
    proxy.stall();
    for client in [&mut open, &mut client(&proxy, SHORT_TIMEOUT)] {
        let reply = client.call(&["SET", &key, "1"]);
        assert_eq!(reply.expect_err("stalled").kind(), ErrorKind::TimedOut);
    }
    let exists = RedisServer::shared().command(&["EXISTS", &key]).integer();
    assert_eq!(exists, 0);
    proxy.pass();
    assert_closed(&mut open);
    assert_replies(&proxy);
}

/// A connection that was idle during the stall has lost nothing and still works.
#[test]
fn stall_leaves_idle_connections_alone() {
    let proxy = proxy();
    let mut open = client(&proxy, LONG_TIMEOUT);
    assert!(ping(&mut open).is_ok());
    proxy.stall();
    proxy.pass();
    assert!(ping(&mut open).is_ok());
}

#[test]
fn lost_replies_belong_to_executed_commands() {
    let (proxy, key) = (proxy(), crate::unique("lost"));
    let mut open = client(&proxy, LONG_TIMEOUT);
    assert!(ping(&mut open).is_ok());
    open.set_timeout(SHORT_TIMEOUT);
    proxy.lose_replies();
    let reply = open.call(&["INCR", &key]);
    assert_eq!(reply.expect_err("no reply").kind(), ErrorKind::TimedOut);
    assert_eq!(RedisServer::shared().command(&["GET", &key]).text(), "1");
    proxy.pass();
    assert_closed(&mut open);
}

#[test]
fn garbled_replies_are_inverted_and_their_connection_is_closed() {
    let (proxy, key) = (proxy(), crate::unique("garbled"));
    let mut open = client(&proxy, LONG_TIMEOUT);
    assert!(ping(&mut open).is_ok());
    proxy.garble();
    open.set_timeout(SHORT_TIMEOUT);
    for command in [&["INCR", &key][..], &["PING"]] {
        assert!(open.call(command).is_err(), "{command:?}");
    }
    assert_eq!(RedisServer::shared().command(&["GET", &key]).text(), "1");
    let mut raw = raw(&proxy);
    raw.write_all(b"PING\r\n").expect("the proxy reads");
    let mut reply = [0; 7];
    raw.read_exact(&mut reply).expect("as many bytes");
    assert_eq!(reply.map(|byte| !byte), *b"+PONG\r\n");
    proxy.pass();
    assert_eq!(raw.read(&mut reply).expect("closed"), 0);
    assert_replies(&proxy);
}

#[test]
fn a_cut_reply_ends_in_its_middle() {
    let (proxy, key) = (proxy(), crate::unique("half"));
    proxy.cut_replies();
    let mut raw = raw(&proxy);
    raw.write_all(format!("SET {key} 1\r\n").as_bytes()).expect("the proxy reads");
    let mut reply = Vec::new();
    raw.read_to_end(&mut reply).expect("an end");
    assert_eq!(reply, b"+O");
    assert_eq!(RedisServer::shared().command(&["GET", &key]).text(), "1");
    assert_closed(&mut client(&proxy, LONG_TIMEOUT));
    proxy.pass();
    assert_replies(&proxy);
}

#[test]
fn half_open_connections_stay_silent_in_every_later_mode() {
    let mut server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let mut before = client(&proxy, LONG_TIMEOUT);
    assert!(ping(&mut before).is_ok());
    proxy.half_open();
    server.kill(); // closes no half-open connection, and the proxy still accepts new ones
    let mut meanwhile = client(&proxy, SHORT_TIMEOUT);
    server.restart();
    before.set_timeout(SHORT_TIMEOUT);
    for _ in 0..2 {
        for client in [&mut before, &mut meanwhile] {
            assert_eq!(ping(client).expect_err("half open").kind(), ErrorKind::TimedOut);
        }
        proxy.pass();
        assert_replies(&proxy);
    }
    proxy.cut();
    assert_closed(&mut before);
}

#[test]
fn concurrent_attempts_are_counted() {
    let proxy = proxy();
    for _ in 0..20 {
        assert_replies(&proxy); // one after the other, while earlier ones are still being closed
    }
    let mut open = client(&proxy, LONG_TIMEOUT);
    assert!(ping(&mut open).is_ok());
    assert_eq!((proxy.connections(), proxy.max_concurrent_attempts()), (21, 1));

    proxy.reset_counts();
    proxy.stall();
    for number in 1..=5 {
        let mut attempt = client(&proxy, Duration::from_millis(20));
        assert!(ping(&mut attempt).is_err()); // each one is given up before the next
        while proxy.connections() < number {
            thread::yield_now();
        }
    }
    assert_eq!((proxy.connections(), proxy.max_concurrent_attempts()), (5, 1));
    let _three = [(); 3].map(|()| client(&proxy, SHORT_TIMEOUT));
    while proxy.connections() < 8 {
        thread::yield_now();
    }
    assert_eq!(proxy.max_concurrent_attempts(), 3);
}

#[test]
fn concurrent_replies_are_delayed_once() {
    let (proxy, delay) = (proxy(), Duration::from_millis(500));
    let mut clients: Vec<_> = (0..20).map(|_| client(&proxy, LONG_TIMEOUT)).collect();
    proxy.delay(delay);
    let began = Instant::now();
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| assert!(ping(client).is_ok()));
        }
    });
    let took = began.elapsed();
    assert!(took >= delay);
    // One after the other they would take 20 delays, more than any stall of a machine.
    assert!(took < 10 * delay, "{took:?}");
}

#[test]
fn held_replies_are_delivered_at_the_next_mode_change() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let mut open = client(&proxy, LONG_TIMEOUT);
    assert!(ping(&mut open).is_ok());
    proxy.hold_replies();
    thread::scope(|scope| {
        let call = scope.spawn(|| open.call(&["INCR", "calls"]));
        // The server has replied, so the proxy holds the reply.
        while server.command(&["EXISTS", "calls"]).integer() == 0 {
            thread::yield_now();
        }
        assert!(!call.is_finished());
        proxy.pass();
        assert_eq!(call.join().expect("no panic").expect("a reply").integer(), 1);
    });
}

#[test]
fn drop_ends_connections_and_threads() {
    let proxy = proxy();
    let address = proxy.address();
    let mut open = client(&proxy, LONG_TIMEOUT);
    assert!(ping(&mut open).is_ok());
    proxy.delay(Duration::from_secs(60));
    drop(proxy);
    assert_closed(&mut open);
    assert_eq!(
        Client::connect(&address, SHORT_TIMEOUT).expect_err("the proxy is gone").kind(),
        ErrorKind::ConnectionRefused
    );
}

#[test]
fn connections_above_the_limit_are_closed() {
    let proxy = proxy();
    let mut open: Vec<_> = (0..MAX_CONNECTIONS).map(|_| client(&proxy, LONG_TIMEOUT)).collect();
    for client in &mut open {
        assert!(ping(client).is_ok());
    }
    assert_closed(&mut client(&proxy, LONG_TIMEOUT));
    assert!(ping(&mut open[0]).is_ok());
}

#[test]
fn a_server_may_be_restarted_behind_a_proxy() {
    let mut server = RedisServer::builder().password("p@ss").start();
    let proxy = Proxy::start(&server);
    assert!(proxy.url().starts_with("redis://:p%40ss@127.0.0.1:"), "{}", proxy.url());
    let mut open = client(&proxy, LONG_TIMEOUT);
    assert_eq!(open.call(&["AUTH", "p@ss"]).expect("a reply").text(), "OK");
    server.kill();
    assert_closed(&mut open);
    assert_closed(&mut client(&proxy, LONG_TIMEOUT));
    server.restart();
    let mut again = client(&proxy, LONG_TIMEOUT);
    assert_eq!(again.call(&["AUTH", "p@ss"]).expect("a reply").text(), "OK");
}
