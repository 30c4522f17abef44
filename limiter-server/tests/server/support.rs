//! A server of a test, and a client that shows what is on the wire.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::time::Duration;

use limiter_server::{ListenAddress, Server};
use rate_limited::{Builder, Limiter, RuleSet};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The rules of most tests.
pub(crate) const RULES: &str = r#"
    [rules.search]
    key = "search:{user_id}"
    limit = "2/h"
    [rules.two]
    limits = ["2/h", "5/d"]
    [rules.tokens]
    key = "tokens:{org}"
    limit = "1000/h"
    [rules.later]
    limit = "5/h"
    postpaid = true
    [rules.erp]
    key = "erp:{tenant}"
    limit = "1 concurrent"
    [rules.unset]
    key = "unset:{user_id}"
    mode = "enforce"
    [rules.shut]
    mode = "deny"
"#;

/// A builder of a limiter in memory with these rules.
pub(crate) fn builder(rules: &str) -> Builder {
    let rules: RuleSet = rules.parse().expect("rules");
    Limiter::builder().url("memory:").rules(rules).report_limits(true).receipt_secret([7; 32])
}

/// The server of these rules.
pub(crate) fn server(rules: &str) -> Server {
    Server::new(builder(rules).build().expect("valid"))
}

/// Runs a server until the test ends. Returns its address.
pub(crate) async fn run(server: Server) -> SocketAddr {
    run_until(server, pending()).await.0
}

/// Runs a server until a future is ready. Returns its address, and the task that ends with it.
pub(crate) async fn run_until(
    server: Server,
    end: impl Future<Output = ()> + Send + 'static,
) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let bound = server.bind(&"127.0.0.1:0".parse().expect("an address")).await.expect("a free port");
    let ListenAddress::Tcp(address) = bound.address().clone() else { panic!("a port") };
    (address, tokio::spawn(bound.run(end)))
}

/// A response as it was received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    /// The fields by their names in lower case.
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// The status and the code of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.field("content-type"), "application/problem+json", "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], self.status, "{self:?}");
        (self.status, body["code"].as_str().unwrap_or_default().to_owned())
    }
}

/// A connection that is kept.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.expect("the server listens"), buffer: Vec::new() }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    /// Sends a request with these lines of its head and a body.
    pub(crate) async fn send(&mut self, head: &str, body: &str) {
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        self.write(format!("{head}\r\nhost: test\r\n{length}\r\n{body}")).await;
    }

    /// Reads a response. `None` if the connection has ended.
    pub(crate) async fn receive(&mut self) -> Option<Received> {
        loop {
            if let Some((received, used)) = parse(&self.buffer) {
                self.buffer.drain(..used);
                return Some(received);
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Reads all until the connection ends, and returns the first line.
    pub(crate) async fn receive_head(&mut self) -> String {
        self.stream.read_to_end(&mut self.buffer).await.expect("an end");
        String::from_utf8_lossy(&self.buffer).lines().next().unwrap_or_default().to_owned()
    }

    pub(crate) async fn ask(&mut self, head: &str, body: &str) -> Received {
        self.send(head, body).await;
        self.receive().await.expect("a response")
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Received {
        self.ask(&format!("POST {path} HTTP/1.1\r\ncontent-type: application/json"), body).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Received {
        self.ask(&format!("GET {path} HTTP/1.1"), "").await
    }

    /// Returns whether the server closes the connection within a time.
    pub(crate) async fn is_closed_within(&mut self, longest: Duration) -> bool {
        matches!(tokio::time::timeout(longest, self.receive()).await, Ok(None))
    }
}

/// Parses a whole response. Returns it with its length.
fn parse(bytes: &[u8]) -> Option<(Received, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).expect("ASCII");
    let (first, lines) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let field = |line: &str| {
        let (name, value) = line.split_once(':').expect("a field");
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let fields: BTreeMap<_, _> = lines.lines().map(field).collect();
    let length: usize = fields.get("content-length").map_or(0, |length| length.parse().expect("a length"));
    let body = bytes.get(end + 4..end + 4 + length)?;
    let body = String::from_utf8(body.to_vec()).expect("UTF-8");
    Some((Received { status, fields, body }, end + 4 + length))
}
