//! A client of HTTP/1.1 without anything that a test does not need.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Returns the value of a field; `None` without it.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the status and the result of a purchase.
    pub(crate) fn result(&self) -> (u16, String) {
        (self.status, self.json()["result"].as_str().unwrap_or_else(|| panic!("no result: {self:?}")).to_owned())
    }
}

/// Sends the head of a request, and a body.
pub(crate) fn open(address: SocketAddr, request: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the service listens");
    let length = body.len();
    let text =
        format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).expect("the service reads");
    stream
}

/// Returns the answer to a request.
pub(crate) fn send(address: SocketAddr, request: &str, body: &str) -> Answer {
    let mut text = String::new();
    open(address, request, body).read_to_string(&mut text).expect("the service answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    send(address, &format!("GET {path}"), "")
}

/// Returns the answer to a purchase.
pub(crate) fn buy(address: SocketAddr, sale: &str, order: &Value) -> Answer {
    send(address, &format!("POST /sales/{sale}/buy"), &order.to_string())
}

pub(crate) fn order(buyer: &str) -> Value {
    json!({ "buyer": buyer, "club": "Lisbon" })
}

/// Returns an order with the id of its request.
pub(crate) fn order_with_request(buyer: &str, request: &str) -> Value {
    json!({ "buyer": buyer, "club": "Lisbon", "request": request })
}
