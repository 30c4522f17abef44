//! The server's end of a connection, with or without TLS.

use std::io;
use std::sync::Arc;

use redis::Value;
use tokio::net::UnixStream;

use crate::store::redis::pipelined::{PipelinedConnection, Stream};
use crate::store::redis::resp::{FrameScanner, decode};

pub(super) struct Peer {
    stream: UnixStream,
    #[cfg(feature = "tls")]
    session: Option<Box<rustls::ServerConnection>>,
    /// The bytes of commands, decrypted.
    received: Vec<u8>,
}

impl Peer {
    pub(super) fn plain(stream: UnixStream) -> Self {
        Self {
            stream,
            #[cfg(feature = "tls")]
            session: None,
            received: Vec::new(),
        }
    }

    /// Sends bytes. With TLS they are one or more records.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        #[cfg(feature = "tls")]
        if self.session.is_some() {
            let records = self.encrypt(bytes);
            return self.write_to_socket(&records).await;
        }
        self.write_to_socket(bytes).await;
    }

    /// Sends bytes without encryption.
    pub(super) async fn write_to_socket(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.stream.writable().await.expect("a socket");
            match self.stream.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    /// Reads at most so many bytes of the socket. Returns false at the end of the stream.
    async fn read(&mut self, max_bytes: usize) -> bool {
        let mut buffer = vec![0; max_bytes];
        loop {
            self.stream.readable().await.expect("a socket");
            match self.stream.try_read(&mut buffer) {
                Ok(length) => {
                    self.receive(&buffer[..length]);
                    return length > 0;
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        #[cfg(feature = "tls")]
        if self.session.is_some() {
            return self.decrypt(bytes);
        }
        self.received.extend(bytes);
    }

    /// Reads one command, in pieces of at most so many bytes, and returns its last argument.
    pub(super) async fn command(&mut self, max_bytes: usize) -> Option<String> {
        let mut scanner = FrameScanner::default();
        loop {
            if let Some(length) = scanner.scan(&self.received, usize::MAX).expect("a command") {
                let command = decode(&self.received[..length]).expect("a command");
                self.received.drain(..length);
                let Value::Array(mut parts) = command else { panic!("{command:?}") };
                let Some(Value::BulkString(last)) = parts.pop() else { panic!("no argument") };
                return Some(String::from_utf8(last).expect("text"));
            }
            if !self.read(max_bytes).await {
                return None;
            }
        }
    }

    pub(super) async fn expect_closed(mut self) {
        while self.read(1 << 16).await {}
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            let end = io::Read::read(&mut session.reader(), &mut [0]);
            assert_eq!(end.expect("a `close_notify`"), 0);
        }
    }
}

/// A connection without encryption, or with it.
#[derive(Clone, Copy, Debug)]
pub(super) enum PeerKind {
    Plain,
    #[cfg(feature = "tls")]
    Tls,
}

impl PeerKind {
    pub(super) const ALL: &[Self] = &[
        Self::Plain,
        #[cfg(feature = "tls")]
        Self::Tls,
    ];

    /// Opens a connection and its other end.
    pub(super) async fn connect(self) -> (PipelinedConnection, Peer) {
        let (stream, peer) = UnixStream::pair().expect("two sockets");
        // From now on a write fails only if the socket has no room.
        stream.writable().await.expect("a socket");
        match self {
            Self::Plain => {
                let connection = PipelinedConnection::new(Stream::Unix(stream), Arc::default());
                (connection, Peer::plain(peer))
            }
            #[cfg(feature = "tls")]
            Self::Tls => {
                let (stream, peer) = super::tls::shake_hands(stream, peer).await;
                (PipelinedConnection::new(stream, Arc::default()), peer)
            }
        }
    }
}

#[cfg(feature = "tls")]
impl Peer {
    pub(super) fn with_session(stream: UnixStream, mut session: rustls::ServerConnection) -> Self {
        session.set_buffer_limit(None);
        Self { stream, session: Some(Box::new(session)), received: Vec::new() }
    }

    pub(super) fn session(&mut self) -> &mut rustls::ServerConnection {
        self.session.as_mut().expect("TLS")
    }

    /// Returns the records of these bytes, behind those that the session has to send.
    pub(super) fn encrypt(&mut self, bytes: &[u8]) -> Vec<u8> {
        let session = self.session();
        io::Write::write_all(&mut session.writer(), bytes).expect("memory");
        let mut records = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut records).expect("memory");
        }
        records
    }

    fn decrypt(&mut self, mut records: &[u8]) {
        let Self { session, received, .. } = self;
        let session = session.as_mut().expect("TLS");
        while !records.is_empty() {
            session.read_tls(&mut records).expect("memory");
            let length = session.process_new_packets().expect("a record").plaintext_bytes_to_read();
            let start = received.len();
            received.resize(start + length, 0);
            io::Read::read_exact(&mut session.reader(), &mut received[start..]).expect("memory");
        }
    }
}
