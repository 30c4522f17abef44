//! A client of HTTP/1.1 without anything that a test does not need.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A connection that stays open from request to request.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case, and values, in the order of the answer.
    fields: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the service listens");
        Self { stream: BufReader::new(stream) }
    }

    /// Returns the answer to a request without a body. The fields are lines without their ends.
    pub(crate) async fn get(&mut self, path: &str, fields: &[&[u8]]) -> Answer {
        self.send_head(&format!("GET {path}"), fields).await;
        self.answer().await
    }

    /// Sends the head of a request.
    pub(crate) async fn send_head(&mut self, request: &str, fields: &[&[u8]]) {
        let mut head = format!("{request} HTTP/1.1\r\nhost: service\r\n").into_bytes();
        for field in fields {
            head.extend_from_slice(field);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        self.send(&head).await;
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the service reads");
    }

    /// Reads an answer. The body is empty if its length is unknown.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.line().await;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut fields = Vec::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(':') else { break };
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Answer { status, fields, body: String::new() };
        let length = answer.field("content-length").map_or(0, |length| length.parse().expect("a length"));
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.expect("a body");
        answer.body = String::from_utf8(body).expect("UTF-8");
        answer
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let bytes = self.stream.read_line(&mut line).await.expect("the service answers");
        assert!(bytes > 0, "the service has closed the connection");
        line.trim_end().to_owned()
    }
}

impl Answer {
    /// The values of all lines of a field, as one list; `None` without a line.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self.fields.iter().filter(|field| field.0 == name).map(|field| &*field.1).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

/// Returns the answer to a request on a connection of its own, with text fields.
pub(crate) async fn get(address: SocketAddr, path: &str, fields: &[&str]) -> Answer {
    let fields: Vec<_> = fields.iter().map(|field| field.as_bytes()).collect();
    Connection::open(address).await.get(path, &fields).await
}
