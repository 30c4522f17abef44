//! A client of HTTP/1.1 without anything that a test does not need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection that stays open from request to request.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case, and values, in the order of their names.
    fields: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self { stream: BufReader::new(TcpStream::connect(address).expect("the service listens")) }
    }

    /// Returns the answer to a request of a user.
    pub(crate) fn get(&mut self, path: &str, user: &str) -> Answer {
        let head = format!("GET {path} HTTP/1.1\r\nhost: service\r\nx-user: {user}\r\n\r\n");
        self.stream.get_mut().write_all(head.as_bytes()).expect("the service reads");
        let line = self.line();
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut fields = Vec::new();
        while let Some((name, value)) = self.line().split_once(':') {
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        // Fields of different names have no order. Those of one name keep theirs.
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        let mut answer = Answer { status, fields, body: String::new() };
        let length = answer.field("content-length").map_or(0, |length| length.parse().expect("a length"));
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a body");
        answer.body = String::from_utf8(body).expect("UTF-8");
        answer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let bytes = self.stream.read_line(&mut line).expect("the service answers");
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

/// Returns the answer to a request of a user on a connection of its own.
pub(crate) fn get(address: SocketAddr, path: &str, user: &str) -> Answer {
    Connection::open(address).get(path, user)
}
