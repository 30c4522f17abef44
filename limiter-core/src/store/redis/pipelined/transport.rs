//! The bytes of a connection: those of a TCP or Unix socket, with or without TLS.

use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, tcp};
#[cfg(unix)]
use tokio::net::{UnixStream, unix};

#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "tls")]
pub(crate) use tls::TlsStream;
#[cfg(feature = "tls")]
use tls::{TlsReader, TlsWriter};

pub(crate) enum Transport {
    Plain(Stream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
}

impl Transport {
    pub(super) fn into_split(self) -> (TransportReader, TransportWriter) {
        match self {
            Self::Plain(stream) => {
                let (reader, writer) = stream.into_split();
                (TransportReader::Plain(reader), TransportWriter::Plain(writer))
            }
            #[cfg(feature = "tls")]
            Self::Tls(stream) => {
                let (reader, writer) = stream.into_split();
                (TransportReader::Tls(reader), TransportWriter::Tls(writer))
            }
        }
    }
}

impl From<Stream> for Transport {
    fn from(stream: Stream) -> Self {
        Self::Plain(stream)
    }
}

#[cfg(feature = "tls")]
impl From<TlsStream> for Transport {
    fn from(stream: TlsStream) -> Self {
        Self::Tls(Box::new(stream))
    }
}

pub(super) enum TransportReader {
    Plain(ReadHalf),
    #[cfg(feature = "tls")]
    Tls(TlsReader),
}

impl TransportReader {
    /// Reads once. It adds nothing to the buffer at the end of the stream.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(reader) => Pin::new(reader).poll_read(context, buffer),
            #[cfg(feature = "tls")]
            Self::Tls(reader) => reader.poll_read(context, buffer),
        }
    }
}

/// The half to write to. Its drop closes that direction.
pub(super) enum TransportWriter {
    Plain(WriteHalf),
    #[cfg(feature = "tls")]
    Tls(TlsWriter),
}

impl TransportWriter {
    /// Writes as much of the bytes behind `written` as the socket takes, and counts it. Returns true if the socket has taken
    /// all of them.
    ///
    /// # Errors
    /// The socket is closed.
    pub(super) fn write(&self, bytes: &[u8], written: &mut usize) -> io::Result<bool> {
        while *written < bytes.len() {
            let unwritten = &bytes[*written..];
            let result = match self {
                Self::Plain(writer) => writer.try_write(unwritten),
                #[cfg(feature = "tls")]
                Self::Tls(writer) => writer.try_write(unwritten),
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => *written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match self {
            Self::Plain(_) => Ok(true),
            // The session may still have some.
            #[cfg(feature = "tls")]
            Self::Tls(writer) => writer.try_flush(),
        }
    }

    /// Waits until the socket may have room.
    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(writer) => writer.poll_ready(context),
            #[cfg(feature = "tls")]
            Self::Tls(writer) => writer.poll_ready(context),
        }
    }
}

// A connected socket: TCP, or a Unix socket.

pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Tcp(stream) => {
                let (read_half, write_half) = stream.into_split();
                (ReadHalf::Tcp(read_half), WriteHalf::Tcp(write_half))
            }
            #[cfg(unix)]
            Self::Unix(stream) => {
                let (read_half, write_half) = stream.into_split();
                (ReadHalf::Unix(read_half), WriteHalf::Unix(write_half))
            }
        }
    }
}

pub(super) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    #[cfg(unix)]
    Unix(unix::OwnedReadHalf),
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // This remembers a read that did not fill the buffer, where `try_read` would read once more in vain.
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_read(context, buffer),
            #[cfg(unix)]
            Self::Unix(half) => Pin::new(half).poll_read(context, buffer),
        }
    }
}

/// The half to write to. Its drop closes that direction.
pub(super) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    #[cfg(unix)]
    Unix(unix::OwnedWriteHalf),
}

impl WriteHalf {
    /// Writes what the socket has room for.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it has none.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(half) => half.try_write(bytes),
        }
    }

    /// Reads what has arrived, on any thread. The thread that polls the socket is not told of it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has arrived.
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let socket = match self {
            Self::Tcp(half) => SockRef::from(half.as_ref()),
            #[cfg(unix)]
            Self::Unix(half) => SockRef::from(half.as_ref()),
        };
        (&*socket).read(buffer)
    }

    /// Waits until the socket may have room.
    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(half) => half.as_ref().poll_write_ready(context),
            #[cfg(unix)]
            Self::Unix(half) => half.as_ref().poll_write_ready(context),
        }
    }
}
