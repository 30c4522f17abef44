//! A client of HTTP that writes several requests at once.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::{ClientRound, Kind, ROUND};

pub(crate) const RULES: &str = "[rules.search]\nkey = \"search:{user_id}\"\nlimit = \"1000000000/h\"\n";

/// A connection that is kept.
pub(crate) struct HttpConnection {
    stream: TcpStream,
    requests: Vec<u8>,
    buffer: Vec<u8>,
}

/// Sends requests until the end of a round, `depth` in a write.
pub(crate) fn run_client(address: SocketAddr, kind: Kind, depth: usize, client: usize) -> ClientRound {
    let mut connection = HttpConnection::open(address).expect("the server listens");
    let (began, mut answered, mut times) = (Instant::now(), 0, Vec::new());
    while began.elapsed() < ROUND {
        let users = (0..depth).map(|index| (answered + index + client * 100) % 1_000);
        times.push(connection.send(kind, users).expect("the server answers"));
        answered += depth;
    }
    (answered, times)
}

impl HttpConnection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, requests: Vec::new(), buffer: vec![0; 64 << 10] })
    }

    /// Sends a request for each user in one write. Returns the time until all were answered.
    pub(crate) fn send(&mut self, kind: Kind, users: impl Iterator<Item = usize>) -> io::Result<Duration> {
        self.requests.clear();
        let mut open = 0;
        for user in users {
            write_request(kind, user, &mut self.requests);
            open += 1;
        }
        let sent = Instant::now();
        self.stream.write_all(&self.requests)?;
        let mut used = 0;
        while open > 0 {
            used += self.stream.read(&mut self.buffer[used..])?;
            let mut start = 0;
            while let Some(end) = answer_end(&self.buffer[start..used]) {
                start += end;
                open -= 1;
            }
            self.buffer.copy_within(start..used, 0);
            used -= start;
        }
        Ok(sent.elapsed())
    }
}

fn write_request(kind: Kind, user: usize, bytes: &mut Vec<u8>) {
    let (method, path) = match kind {
        Kind::Constant => ("GET", "/healthz"),
        Kind::Check => ("POST", "/v1/check"),
    };
    bytes.extend(format!("{method} {path} HTTP/1.1\r\nhost: bench\r\n").into_bytes());
    match kind {
        Kind::Constant => bytes.extend(b"\r\n"),
        Kind::Check => {
            let body = format!(r#"{{"rule":"search","values":{{"user_id":"{user:04}"}}}}"#);
            let length = body.len();
            bytes.extend(
                format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes(),
            );
        }
    }
}

/// Returns the length of a whole answer with the status 200.
fn answer_end(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).expect("ASCII");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let length = text.split("content-length: ").nth(1)?.lines().next()?.parse::<usize>().ok()?;
    Some(head + 4 + length).filter(|end| *end <= bytes.len())
}
