use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use super::*;
use crate::resp::Client;

/// For what answers, and for what does not.
const LONG: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(200);

fn proxy() -> Proxy {
    Proxy::to(RedisServer::shared().address())
}

fn client(proxy: &Proxy, timeout: Duration) -> Client {
    Client::connect(&proxy.address(), timeout).expect("the proxy accepts")
}

/// A connection on which every byte can be seen.
fn raw(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address).expect("the proxy accepts");
    stream.set_read_timeout(Some(LONG)).expect("not zero");
    stream
}

fn ping(client: &mut Client) -> io::Result<String> {
    client.call(&["PING"]).map(crate::Reply::text)
}

#[track_caller]
fn assert_answers(proxy: &Proxy) {
    assert_eq!(ping(&mut client(proxy, LONG)).expect("a reply"), "PONG");
}

#[track_caller]
fn assert_closed(client: &mut Client) {
    let kind = ping(client).expect_err("the connection is closed").kind();
    assert_ne!(kind, ErrorKind::TimedOut);
}

#[test]
fn passes_more_than_one_chunk_both_ways() {
    let proxy = proxy();
    let mut client = client(&proxy, LONG);
    let text = "x".repeat(300_000);
    assert_eq!(client.call(&["ECHO", &text]).expect("a reply").text(), text);
    assert_eq!(ping(&mut client).expect("a reply"), "PONG");
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn cut_closes_what_is_open_and_what_comes() {
    let server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let mut open = client(&proxy, LONG);
    assert!(ping(&mut open).is_ok());
    proxy.cut();
    assert_closed(&mut open);
    let reached = || server.info("stats")["total_connections_received"].parse::<u32>().expect("a number");
    let before = reached();
    assert_closed(&mut client(&proxy, LONG));
    assert_eq!(reached(), before + 1); // this question's own
    assert_eq!(proxy.connections(), 2);
    proxy.pass();
    assert_answers(&proxy);
}

#[test]
fn stall_accepts_and_swallows() {
    let (proxy, key) = (proxy(), crate::unique("stall"));
    let mut open = client(&proxy, LONG);
    assert!(ping(&mut open).is_ok());
    open.set_timeout(SHORT);
    proxy.stall();
    for client in [&mut open, &mut client(&proxy, SHORT)] {
        let reply = client.call(&["SET", &key, "1"]);
        assert_eq!(reply.expect_err("stalled").kind(), ErrorKind::TimedOut);
    }
    let exists = RedisServer::shared().command(&["EXISTS", &key]).integer();
    assert_eq!(exists, 0);
    proxy.pass();
    assert_closed(&mut open);
    assert_answers(&proxy);
}

/// A connection that was idle meanwhile has lost nothing and goes on.
#[test]
fn stall_leaves_idle_connections_alone() {
    let proxy = proxy();
    let mut open = client(&proxy, LONG);
    assert!(ping(&mut open).is_ok());
    proxy.stall();
    proxy.pass();
    assert!(ping(&mut open).is_ok());
}

#[test]
fn lost_replies_are_to_commands_that_ran() {
    let (proxy, key) = (proxy(), crate::unique("lost"));
    let mut open = client(&proxy, LONG);
    assert!(ping(&mut open).is_ok());
    open.set_timeout(SHORT);
    proxy.lose_replies();
    let reply = open.call(&["INCR", &key]);
    assert_eq!(reply.expect_err("no reply").kind(), ErrorKind::TimedOut);
    assert_eq!(RedisServer::shared().command(&["GET", &key]).text(), "1");
    proxy.pass();
    assert_closed(&mut open);
}

#[test]
fn garbled_replies_make_no_sense_and_the_connection_goes_with_them() {
    let (proxy, key) = (proxy(), crate::unique("garbled"));
    let mut open = client(&proxy, LONG);
    assert!(ping(&mut open).is_ok());
    proxy.garble();
    open.set_timeout(SHORT);
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
    assert_answers(&proxy);
}

#[test]
fn a_reply_that_is_cut_ends_in_its_middle() {
    let (proxy, key) = (proxy(), crate::unique("half"));
    proxy.cut_replies();
    let mut raw = raw(&proxy);
    raw.write_all(format!("SET {key} 1\r\n").as_bytes()).expect("the proxy reads");
    let mut reply = Vec::new();
    raw.read_to_end(&mut reply).expect("an end");
    assert_eq!(reply, b"+O");
    assert_eq!(RedisServer::shared().command(&["GET", &key]).text(), "1");
    assert_closed(&mut client(&proxy, LONG));
    proxy.pass();
    assert_answers(&proxy);
}

#[test]
fn half_open_connections_stay_silent_whatever_follows() {
    let mut server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let mut before = client(&proxy, LONG);
    assert!(ping(&mut before).is_ok());
    proxy.half_open();
    server.kill(); // neither tells anybody, nor keeps new ones from being accepted
    let mut meanwhile = client(&proxy, SHORT);
    server.restart();
    before.set_timeout(SHORT);
    for _ in 0..2 {
        for client in [&mut before, &mut meanwhile] {
            assert_eq!(ping(client).expect_err("nobody is there").kind(), ErrorKind::TimedOut);
        }
        proxy.pass();
        assert_answers(&proxy);
    }
    proxy.cut();
    assert_closed(&mut before);
}

#[test]
fn attempts_are_counted_while_they_last() {
    let proxy = proxy();
    for _ in 0..20 {
        assert_answers(&proxy); // one after the other, and some of the old are still being closed
    }
    let mut open = client(&proxy, LONG);
    assert!(ping(&mut open).is_ok());
    assert_eq!((proxy.connections(), proxy.most_attempts()), (21, 1));

    proxy.forget_counts();
    proxy.stall();
    for number in 1..=5 {
        let mut attempt = client(&proxy, Duration::from_millis(20));
        assert!(ping(&mut attempt).is_err()); // and gives up before the next
        while proxy.connections() < number {
            thread::yield_now();
        }
    }
    assert_eq!((proxy.connections(), proxy.most_attempts()), (5, 1));
    let _three = [(); 3].map(|()| client(&proxy, SHORT));
    while proxy.connections() < 8 {
        thread::yield_now();
    }
    assert_eq!(proxy.most_attempts(), 3);
}

#[test]
fn delay_adds_to_each_reply_once() {
    let (proxy, delay) = (proxy(), Duration::from_millis(500));
    let mut clients: Vec<_> = (0..20).map(|_| client(&proxy, LONG)).collect();
    proxy.delay(delay);
    let began = Instant::now();
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| assert!(ping(client).is_ok()));
        }
    });
    let took = began.elapsed();
    assert!(took >= delay);
    // One after the other they would take 20 delays: more than any machine stands still.
    assert!(took < 10 * delay, "{took:?}");
}

#[test]
fn held_replies_come_when_the_proxy_is_switched_and_not_before() {
    let server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let mut open = client(&proxy, LONG);
    assert!(ping(&mut open).is_ok());
    proxy.hold_replies();
    thread::scope(|scope| {
        let call = scope.spawn(|| open.call(&["INCR", "calls"]));
        // The server has answered, so the reply is held on its way.
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
    let mut open = client(&proxy, LONG);
    assert!(ping(&mut open).is_ok());
    proxy.delay(Duration::from_secs(60));
    drop(proxy);
    assert_closed(&mut open);
    assert_eq!(Client::connect(&address, SHORT).expect_err("nobody listens").kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn connections_are_bounded() {
    let proxy = proxy();
    let mut open: Vec<_> = (0..MAX_CONNECTIONS).map(|_| client(&proxy, LONG)).collect();
    for client in &mut open {
        assert!(ping(client).is_ok());
    }
    assert_closed(&mut client(&proxy, LONG));
    assert!(ping(&mut open[0]).is_ok());
}

#[test]
fn a_server_may_go_and_come_back_behind_it() {
    let mut server = RedisServer::builder().password("p@ss").start();
    let proxy = Proxy::before(&server);
    assert!(proxy.url().starts_with("redis://:p%40ss@127.0.0.1:"), "{}", proxy.url());
    let mut open = client(&proxy, LONG);
    assert_eq!(open.call(&["AUTH", "p@ss"]).expect("a reply").text(), "OK");
    server.kill();
    assert_closed(&mut open);
    assert_closed(&mut client(&proxy, LONG));
    server.restart();
    let mut again = client(&proxy, LONG);
    assert_eq!(again.call(&["AUTH", "p@ss"]).expect("a reply").text(), "OK");
}
