//! The bounds of a connection, and what clients send that break them.

use std::io::{self, BufRead, BufReader};

use limiter_testkit::{RedisServer, poll_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::sleep;

use super::*;

const CHECKED: &str = "*5\r\n:1\r\n:5\r\n:4\r\n:0\r\n:10000\r\n";

#[test]
fn bytes_that_are_no_command_end_the_connection_with_a_reason() {
    let server = TestServer::start();
    let cases: [(&[u8], &str); 5] = [
        (b"*1\r\n$536870912\r\n", "invalid bulk length"),
        (b"*1000000000\r\n", "invalid multibulk length"),
        (b"*2\r\n\x00\xff\r\n", "expected '$', got '\\x00'"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "this port is for RESP, got a request of HTTP"),
        (&[b'x'; 100_000], "a command must have at most 65536 bytes"),
    ];
    for (bytes, reason) in cases {
        let mut client = server.connect();
        client.call("RL.PEEK getId", "*5\r\n:1\r\n:5\r\n:5\r\n:0\r\n:0\r\n");
        client.send(bytes);
        if bytes.starts_with(b"GET") {
            client.expect("-ERR unknown command 'GET'\r\n");
        }
        client.expect(format!("-ERR Protocol error: {reason}\r\n"));
        client.expect_end();
    }
}

#[test]
fn a_million_commands_in_a_pipeline_are_answered_in_order() {
    const COMMANDS: usize = 1_000_000;
    let server = TestServer::start();
    let mut client = server.connect();
    let mut sender = client.stream.try_clone().expect("a socket");
    let sending = std::thread::spawn(move || {
        let commands: String = (0..1_000).map(|index| format!("ECHO {index:03}\r\n")).collect();
        for _ in 0..COMMANDS / 1_000 {
            sender.write_all(commands.as_bytes()).expect("the server reads");
        }
    });
    let replies: String = (0..1_000).map(|index| format!("$3\r\n{index:03}\r\n")).collect();
    for _ in 0..COMMANDS / 1_000 {
        client.expect(&replies);
    }
    sending.join().expect("no panic");
}

#[test]
fn calls_of_a_pipeline_are_decided_in_order_by_the_store() {
    const CALLS: u32 = 1_000;
    let redis = RedisServer::start();
    let rules = "[rules.all]\nlimit = \"1000/h\"\n[rules.getId]\nlimit = \"1000/h\"";
    let builder = Limiter::builder().url(redis.url()).deadline(LONG);
    let server = Setup { builder, rules, token: Some(TOKEN), ..Setup::default() }.start();
    let mut client = server.connect();
    client.call(&format!("AUTH {TOKEN}"), "+OK\r\n");
    for round in 0..3 {
        let commands: Vec<u8> = (0..CALLS).flat_map(|_| array("RL.CHECK all")).collect();
        let last = [array("RL.CHECK all"), array("RL.RESET all"), b"PING\r\nRL.PEEK getId\r\n".to_vec()].concat();
        client.send([commands, last].concat());
        let mut replies = Vec::new();
        let mut lines = BufReader::new(&client.stream);
        for _ in 0..(CALLS + 2) * 6 + 2 {
            let mut line = String::new();
            lines.read_line(&mut line).expect("replies");
            replies.push(line.trim_end().to_owned());
        }
        let calls: Vec<_> = replies.chunks(6).collect();
        for (index, call) in (0..CALLS).zip(&calls) {
            assert_eq!(call[..4], ["*5", ":1", ":1000", &format!(":{}", CALLS - 1 - index)], "{round}");
        }
        assert_eq!(calls[1_000][..4], ["*5", ":0", ":1000", ":0"]);
        assert_eq!(replies[6_006..6_012], ["+OK", "+PONG", "*5", ":1", ":1000", ":1000"]);
    }
}

/// A connection without a socket, by a clock that the runtime moves.
fn connection(setup: Setup) -> (DuplexStream, tokio::task::JoinHandle<io::Result<()>>, watch::Sender<Phase>) {
    let (near, far) = duplex(64 << 10);
    let facts = ServerFacts::new(setup.access());
    let service = setup.service();
    let (phase, watched) = watch::channel(Phase::Serving);
    let task = tokio::spawn(async move { Connection::new(near, &service, &facts, 1).serve(watched).await });
    (far, task, phase)
}

async fn reply(stream: &mut DuplexStream) -> String {
    let mut bytes = vec![0; 1_024];
    let count = stream.read(&mut bytes).await.expect("a reply");
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[tokio::test(start_paused = true)]
async fn half_a_command_ends_the_connection_after_its_time() {
    let (mut client, task, _phase) = connection(Setup::default());
    let began = tokio::time::Instant::now();
    client.write_all(b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nEC").await.expect("sent");
    assert_eq!(reply(&mut client).await, "+PONG\r\n");
    // More bytes are no more time.
    sleep(Duration::from_secs(9)).await;
    client.write_all(b"HO\r\n").await.expect("sent");
    assert_eq!(reply(&mut client).await, "-ERR Protocol error: a command must end within 10 seconds\r\n");
    assert_eq!((reply(&mut client).await, began.elapsed().as_secs()), (String::new(), 10));
    task.await.expect("no panic").expect("no error");
}

#[tokio::test(start_paused = true)]
async fn a_password_has_a_time_and_an_idle_client_has_none() {
    let setup = Setup { token: Some(TOKEN), ..Setup::default() };
    let (mut client, task, _phase) = connection(setup);
    assert_eq!(reply(&mut client).await, "-ERR Protocol error: a password must be sent within 10 seconds\r\n");
    task.await.expect("no panic").expect("no error");
    let setup = Setup { token: Some(TOKEN), ..Setup::default() };
    let (mut client, _task, _phase) = connection(setup);
    client.write_all(&array(&format!("AUTH {TOKEN}"))).await.expect("sent");
    assert_eq!(reply(&mut client).await, "+OK\r\n");
    sleep(Duration::from_secs(86_400)).await;
    client.write_all(b"PING\r\n").await.expect("sent");
    assert_eq!(reply(&mut client).await, "+PONG\r\n");
    // A session that is reset has the time again.
    client.write_all(b"RESET\r\n").await.expect("sent");
    assert_eq!(reply(&mut client).await, "+RESET\r\n");
    sleep(Duration::from_secs(9)).await;
    client.write_all(&array(&format!("AUTH {TOKEN}"))).await.expect("sent");
    assert_eq!(reply(&mut client).await, "+OK\r\n");
}

/// The commands are in the socket when the server closes.
#[tokio::test(start_paused = true)]
async fn a_server_that_closes_answers_the_commands_that_have_come() {
    let (mut client, task, phase) = connection(Setup::default());
    client.write_all(b"PING\r\n").await.expect("sent");
    phase.send(Phase::Closing).expect("a connection");
    assert_eq!(reply(&mut client).await, "+PONG\r\n");
    assert_eq!(reply(&mut client).await, "");
    drop(client);
    task.await.expect("no panic").expect("no error");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_replies_is_read_no_more_and_ends() {
    let (mut client, task, _phase) = connection(Setup::default());
    let began = tokio::time::Instant::now();
    let mut sent = 0;
    // The pipe has room for 64 KiB, and so has the server for replies.
    while client.write_all(b"PING\r\n").await.is_ok() {
        sent += 1;
        assert!(sent < 100_000, "the server reads without an end");
    }
    assert_eq!(began.elapsed().as_secs(), 20);
    let error = task.await.expect("no panic").expect_err("a stall");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_answers_what_it_has_and_ends() {
    let (mut client, task, phase) = connection(Setup::default());
    client.write_all(&array("RL.CHECK getId")).await.expect("sent");
    assert_eq!(reply(&mut client).await, CHECKED);
    phase.send(Phase::Closing).expect("a connection");
    assert_eq!(reply(&mut client).await, "");
    task.await.expect("no panic").expect("no error");
}

#[test]
fn a_client_that_goes_away_ends_its_wait() {
    let policy = ServicePolicy { max_calls: 1, ..ServicePolicy::default() };
    let server = Setup { policy, rules: "[rules.getId]\nlimit = \"5/500ms\"", ..Setup::default() }.start();
    let mut client = server.connect();
    client.call("RL.CHECK getId COST 5", "*5\r\n:1\r\n:5\r\n:0\r\n:0\r\n:500\r\n");
    // The clock stands still, so the wait has no end of its own.
    client.send(array("RL.CHECK getId WAIT 1000"));
    let mut other = server.connect();
    let busy = "-UNAVAILABLE too-many-calls";
    let mut is_busy = |wanted: bool| {
        other.send(array("RL.PEEK getId"));
        let mut bytes = [0; 1_024];
        let count = other.stream.read(&mut bytes).expect("a reply");
        let is_busy = bytes[..count].starts_with(busy.as_bytes());
        if is_busy == wanted { Ok(()) } else { Err(String::from_utf8_lossy(&bytes[..count]).into_owned()) }
    };
    poll_until("the call waits", LONG, String::new, || is_busy(true));
    // Commands behind it have their turn later.
    client.send(array("PING"));
    drop(client);
    poll_until("the wait has ended", LONG, String::new, || is_busy(false));
}

#[test]
fn a_call_that_waits_gets_its_permit_before_later_commands_have_their_turn() {
    let rules = "[rules.one]\nlimit = \"1/500ms\"";
    let builder = Limiter::builder().url("memory:");
    let server = Setup { builder, rules, ..Setup::default() }.start();
    let mut client = server.connect();
    client.send(
        [
            array("RL.CHECK one"),
            array("RL.CHECK one WAIT 1000"),
            array("ECHO end"),
            b"RL.CHECK one WAIT 1000\r\n".to_vec(),
        ]
        .concat(),
    );
    for expected in ["*5\r\n:1\r\n:1\r\n:0\r\n:0\r\n", "*5\r\n:1\r\n:1\r\n:0\r\n:0\r\n"] {
        client.expect(expected);
        let _ = read_line(&mut client);
    }
    client.expect("$3\r\nend\r\n*5\r\n:1\r\n:1\r\n:0\r\n:0\r\n");
}

fn read_line(client: &mut Raw) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while byte[0] != b'\n' {
        client.stream.read_exact(&mut byte).expect("a line");
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).into_owned()
}

#[test]
fn connections_beyond_the_most_get_an_error() {
    let server = Setup { max_connections: 1, ..Setup::default() }.start();
    let mut first = server.connect();
    first.call("PING", "+PONG\r\n");
    let mut second = server.connect();
    second.expect("-ERR max number of clients reached\r\n");
    second.expect_end();
    first.call("QUIT", "+OK\r\n");
    first.expect_end();
    drop(first);
    poll_until("the place is free", LONG, String::new, || {
        let mut third = server.connect();
        let mut bytes = [0; 64];
        let count = third.stream.write_all(b"PING\r\n").and_then(|()| third.stream.read(&mut bytes));
        match count {
            Ok(count) if bytes[..count].starts_with(b"+PONG") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}
