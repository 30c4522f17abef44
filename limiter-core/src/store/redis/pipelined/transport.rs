//! The bytes of a connection, with or without TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use super::stream::{ReadHalf, Stream, WriteHalf};
#[cfg(feature = "tls")]
use super::tls::{TlsReader, TlsStream, TlsWriter};

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
    /// Takes bytes to write. With TLS they may not be on the socket before [`try_flush`](Self::try_flush).
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the socket has no room.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(writer) => writer.try_write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(writer) => writer.try_write(bytes),
        }
    }

    /// Writes what the socket has room for. Returns true if it has all bytes.
    pub(super) fn try_flush(&self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
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
