//! A process of the sale.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use limiter_testkit::RedisServer;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::chromium::WAIT_TIMEOUT;

/// A process that serves the page. It ends with this value.
pub(crate) struct Sale {
    process: Child,
    lines: UnboundedReceiver<String>,
    pub(crate) address: SocketAddr,
}

impl Sale {
    /// Starts a process with these options. It serves until it is killed.
    pub(crate) async fn start(server: &RedisServer, options: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_sale"))
            .args(["--redis", &server.url(), "--listen", "127.0.0.1:0", "--stay"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the sale starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let (sender, lines) = unbounded_channel();
        // All output is read, so that the process never waits for its reader.
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut sale = Self { process, lines, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let line = sale.line_with("http://").await;
        let (_, address) = line.split_once("http://").expect("an address");
        sale.address = address.trim_end_matches('/').parse().expect("an address");
        sale
    }

    /// Waits until all buyers have their answers, and checks the audit of the sale.
    pub(crate) async fn wait_for_buyers(&mut self) {
        let audit = self.line_with("oversold ").await;
        assert_eq!(audit, "oversold 0, bought twice 0, above the limit 0, lost 0");
    }

    /// Waits for a line of the output with this text.
    async fn line_with(&mut self, text: &str) -> String {
        loop {
            let line = timeout(WAIT_TIMEOUT, self.lines.recv()).await;
            let line = line.unwrap_or_else(|_| panic!("no line with {text:?} within {WAIT_TIMEOUT:?}"));
            let line = line.unwrap_or_else(|| panic!("the sale ended before a line with {text:?}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the JSON at a path.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(self.address).await.expect("the sale listens");
        let head = format!("GET {path} HTTP/1.1\r\nhost: sale\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("the sale reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the sale answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// Kills the process (`SIGKILL`).
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Sale {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the only key with this end.
pub(crate) fn key(server: &RedisServer, end: &str) -> String {
    let mut keys = server.keys_with(end);
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}

/// Opens a sale after this time, by the clock of Redis.
pub(crate) fn open_in(server: &RedisServer, sale: &str, time: Duration) {
    let seconds: u64 = server.command(&["TIME"]).array().remove(0).text().parse().expect("seconds");
    let opens_at_ms = 1_000 * (seconds + time.as_secs());
    server.command(&["ZADD", &key(server, ":openings"), &opens_at_ms.to_string(), sale]);
}

/// Opens a sale now.
pub(crate) fn open(server: &RedisServer, sale: &str) {
    open_in(server, sale, Duration::ZERO);
}

/// Removes all items that a sale has left.
pub(crate) fn empty_stock(server: &RedisServer, sale: &str) {
    server.command(&["SET", &key(server, &format!(":{sale}:stock")), "0", "KEEPTTL"]);
}
