//! A blocking client of the Redis protocol RESP2, with a deadline for each call.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use crate::socket::{Address, Socket};

mod reply;

pub use reply::Reply;

/// One connection to a server. Calls run one after the other.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<DeadlineSocket>,
    timeout: Duration,
}

impl Client {
    /// Connects to a server. `timeout` bounds the connection attempt, and then each call as a whole.
    ///
    /// # Errors
    ///
    /// No server listens there, or it does not reply in time.
    pub fn connect(address: &Address, timeout: Duration) -> io::Result<Self> {
        let socket = address.connect(timeout)?;
        let deadline = Instant::now() + timeout;
        let stream = BufReader::new(DeadlineSocket { socket, deadline });
        Ok(Self { stream, timeout })
    }

    /// Sets the timeout of each following call as a whole.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends one command and returns its reply. An error reply of the server is [`Reply::Error`].
    ///
    /// # Errors
    ///
    /// The connection failed, the deadline passed, or the reply is not RESP2. The connection must not be used
    /// afterwards.
    pub fn call(&mut self, arguments: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.stream.get_mut().deadline = Instant::now() + self.timeout;
        self.stream.get_mut().write_all(&encode(arguments))?;
        read_reply(&mut self.stream)
    }
}

/// Encodes a command as an array of bulk strings.
fn encode(arguments: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn read_reply(stream: &mut impl BufRead) -> io::Result<Reply> {
    let line = read_line(stream)?;
    let Some((kind, rest)) = line.split_at_checked(1) else {
        return Err(malformed_error(&line));
    };
    match kind {
        "+" => Ok(Reply::Status(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => rest.parse().map(Reply::Integer).map_err(|_| malformed_error(&line)),
        "$" | "*" if rest == "-1" => Ok(Reply::Nil),
        "$" => {
            let length: usize = rest.parse().map_err(|_| malformed_error(&line))?;
            let mut bytes = vec![0; length];
            stream.read_exact(&mut bytes)?;
            match read_line(stream)? {
                end if end.is_empty() => Ok(Reply::Bulk(bytes)),
                end => Err(malformed_error(&end)),
            }
        }
        "*" => {
            let length: usize = rest.parse().map_err(|_| malformed_error(&line))?;
            let items = (0..length).map(|_| read_reply(stream)).collect::<io::Result<_>>()?;
            Ok(Reply::Array(items))
        }
        _ => Err(malformed_error(&line)),
    }
}

/// Reads a line and returns it without its end. Only bulk strings carry bytes that are not text.
fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(content) => Ok(content.to_owned()),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
    }
}

fn malformed_error(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a RESP2 reply: {line:?}"))
}

/// A socket with one deadline for all reads and writes of a call.
#[derive(Debug)]
struct DeadlineSocket {
    socket: Socket,
    deadline: Instant,
}

impl DeadlineSocket {
    fn set_remaining_timeout(&self) -> io::Result<()> {
        match self.deadline.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => self.socket.set_timeout(left),
            _ => Err(timeout_error()),
        }
    }
}

impl Read for DeadlineSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.set_remaining_timeout()?;
        (&self.socket).read(buffer).map_err(normalize_timeout)
    }
}

impl Write for DeadlineSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.set_remaining_timeout()?;
        (&self.socket).write(bytes).map_err(normalize_timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Maps both error kinds of a socket's timeout, `WouldBlock` and `TimedOut`, to `TimedOut`. Systems differ in the kind.
fn normalize_timeout(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { timeout_error() } else { error }
}

fn timeout_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no reply within the deadline")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_any_bytes() {
        let arguments: [&[u8]; 2] = [b"GET", b"a\r\n\0"];
        assert_eq!(encode(&arguments), b"*2\r\n$3\r\nGET\r\n$4\r\na\r\n\0\r\n");
    }

    #[test]
    fn reads_every_kind_of_reply() -> io::Result<()> {
        let nested = Reply::Array(vec![Reply::Integer(-7), Reply::Array(Vec::new()), Reply::Nil]);
        let table: [(&[u8], Reply); 7] = [
            (b"+OK\r\n", Reply::Status("OK".into())),
            (b"-ERR no\r\n", Reply::Error("ERR no".into())),
            (b":12\r\n", Reply::Integer(12)),
            (b"$4\r\n\r\n\xff\0\r\n", Reply::Bulk(b"\r\n\xff\0".to_vec())),
            (b"$-1\r\n", Reply::Nil),
            (b"*-1\r\n", Reply::Nil),
            (b"*3\r\n:-7\r\n*0\r\n$-1\r\n", nested),
        ];
        for (mut bytes, expected) in table {
            assert_eq!(read_reply(&mut bytes)?, expected);
            assert!(bytes.is_empty());
        }
        Ok(())
    }

    #[test]
    fn rejects_truncated_and_malformed_replies() {
        let table: [&[u8]; 8] =
            [b"", b"+OK", b"$4\r\nab", b"*2\r\n:1\r\n", b"?\r\n", b"\r\n", b"$2\r\nabc\r\n", b":x\r\n"];
        for mut bytes in table {
            assert!(read_reply(&mut bytes).is_err(), "{bytes:?}");
        }
    }
}
