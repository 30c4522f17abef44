//! The headers that choose a client's key, and those that do not.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Answer, Connection};
use crate::instance::Instance;
use crate::quota::of_rule;

const RULES: &str = "rules = { service.limit = \"100000/h\", user.limit = \"100000/h\", address.limit = \"1000/h\" }\n";

/// The proxies: the clients of these tests come from `127.0.0.1`.
const TRUSTED: [&str; 2] = ["--proxy", "127.0.0.1"];
const UNTRUSTED: [&str; 4] = ["--proxy", "10.0.0.0/8", "--proxy", "127.0.0.2"];

/// A client whose requests the address limit counts.
struct Client {
    connection: Connection,
    service: Instance,
}

impl Client {
    async fn new(proxies: &[&str]) -> Self {
        let service = Instance::start_with(RULES, proxies);
        Self { connection: Connection::open(service.address).await, service }
    }

    async fn send(&mut self, fields: &[&[u8]]) -> Answer {
        let fields = [&[b"authorization: Bearer 7".as_slice()], fields].concat();
        self.connection.get("/quote", &fields).await
    }

    /// Returns the permits left of the key that a request counts for.
    async fn remaining(&mut self, fields: &[&[u8]]) -> i64 {
        let answer = self.send(fields).await;
        assert_eq!(answer.status, 200, "{fields:?}: {answer:?}");
        of_rule(&answer, "ratelimit", "address")["r"]
    }
}

/// Fields of any shape: each is a list of lines.
fn shapes() -> Vec<Vec<Vec<u8>>> {
    let line = |value: &[u8]| [b"x-forwarded-for: ", value].concat();
    let values: [&[u8]; 18] = [
        b"192.0.2.1",
        b"192.0.2.1, 192.0.2.2",
        b"127.0.0.1",
        b"192.0.2.1:4711",
        b"[2001:db8::1]:4711",
        b"2001:db8::1",
        b"::ffff:192.0.2.1",
        b"",
        b",,,",
        b"unknown",
        b"_hidden",
        b"\"192.0.2.1, 192.0.2.2\"",
        b"192.0.2.1,",
        b"192.0.2.1;for=192.0.2.2",
        b"192.0.2.999",
        b"fe80::1%eth0",
        "größe".as_bytes(),
        b"\xff\xfe",
    ];
    let mut shapes: Vec<_> = values.iter().map(|value| vec![line(value)]).collect();
    shapes.push(vec![line(b"192.0.2.1"), line(b"192.0.2.2"), line(b"192.0.2.3")]);
    for entries in [1_000, 30_000] {
        shapes.push(vec![line("192.0.2.1, ".repeat(entries).as_bytes())]);
    }
    for other in ["forwarded: for=192.0.2.1", "x-real-ip: 192.0.2.1", "cf-connecting-ip: 192.0.2.1"] {
        shapes.push(vec![other.as_bytes().to_vec()]);
    }
    shapes
}

#[tokio::test]
async fn no_header_of_an_untrusted_peer_changes_its_key() {
    let mut client = Client::new(&UNTRUSTED).await;
    let mut before = client.remaining(&[]).await;
    for shape in shapes() {
        let lines: Vec<_> = shape.iter().map(Vec::as_slice).collect();
        let remaining = client.remaining(&lines).await;
        assert_eq!(remaining, before - 1, "{:?}", lines.iter().map(|line| line.escape_ascii().to_string()));
        before = remaining;
    }
}

#[tokio::test]
async fn a_request_with_a_megabyte_of_headers_counts_for_no_key() {
    let mut client = Client::new(&UNTRUSTED).await;
    let before = client.remaining(&[]).await;
    let mut stream = TcpStream::connect(client.service.address).await.expect("the service listens");
    let head = format!("GET /quote HTTP/1.1\r\nx-forwarded-for: {}\r\n\r\n", "192.0.2.1, ".repeat(100_000));
    // The service may close the connection before it has read all: then both fail.
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{}", answer.escape_ascii());
    assert_eq!(client.remaining(&[]).await, before - 1);
}

#[tokio::test]
async fn the_last_entry_of_a_trusted_peer_is_its_key() {
    let mut client = Client::new(&TRUSTED).await;
    let long = ["x-forwarded-for: ", &"198.51.100.7, ".repeat(20_000), "192.0.2.1"].concat();
    // Each case has a key of its own, and its lines have that key alone in common.
    let cases: [&[&[&[u8]]]; 4] = [
        &[
            &[b"x-forwarded-for: 192.0.2.1"],
            &[b"x-forwarded-for: 198.51.100.7, 192.0.2.1"],
            &[b"x-forwarded-for: unknown, _hidden, , \xff, 192.0.2.1"],
            &[b"x-forwarded-for: \"198.51.100.7, 192.0.2.1"],
            &[b"x-forwarded-for: 192.0.2.2", b"x-forwarded-for: 192.0.2.1"],
            &[b"x-forwarded-for: 192.0.2.1:4711"],
            &[b"x-forwarded-for: ::ffff:192.0.2.1"],
            &[long.as_bytes()],
            &[b"x-forwarded-for: 192.0.2.1", b"forwarded: for=192.0.2.2", b"x-real-ip: 192.0.2.3"],
        ],
        &[&[b"x-forwarded-for: 192.0.2.2"], &[b"x-forwarded-for: 192.0.2.1, 192.0.2.2"]],
        &[
            &[b"x-forwarded-for: 2001:db8::1"],
            &[b"x-forwarded-for: [2001:db8::1]:4711"],
            &[b"x-forwarded-for: 2001:db8::ffff"],
        ],
        &[&[b"x-forwarded-for: 2001:db8:0:1::1"]],
    ];
    for case in cases {
        for (count, lines) in (1..).zip(case) {
            let shown: Vec<_> = lines.iter().map(|line| line.escape_ascii().to_string()).collect();
            assert_eq!(client.remaining(lines).await, 1_000 - count, "{shown:?}");
        }
    }
}

#[tokio::test]
async fn a_last_entry_that_is_no_address_is_refused() {
    let mut client = Client::new(&TRUSTED).await;
    let lines: [&[u8]; 9] = [
        b"x-real-ip: 192.0.2.1",
        b"x-forwarded-for: ",
        b"x-forwarded-for: 192.0.2.1,",
        b"x-forwarded-for: 192.0.2.1, unknown",
        b"x-forwarded-for: 192.0.2.1, _hidden",
        b"x-forwarded-for: 192.0.2.1, \"192.0.2.2\"",
        b"x-forwarded-for: 192.0.2.999",
        b"x-forwarded-for: fe80::1%eth0",
        b"x-forwarded-for: 192.0.2.1, \xff",
    ];
    for line in lines {
        let answer = client.send(&[line]).await;
        assert_eq!(answer.status, 400, "{}: {answer:?}", line.escape_ascii());
        assert_eq!(answer.field("ratelimit"), None);
    }
    assert_eq!(client.remaining(&[b"x-forwarded-for: 192.0.2.1"]).await, 999);
}
