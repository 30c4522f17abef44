//! One type for both kinds of stream a Redis listens on.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An address and a port.
    Tcp(SocketAddr),
}

impl Address {
    /// Connects. For TCP within `timeout`; a Unix socket answers at once.
    pub(crate) fn connect(&self, timeout: Duration) -> io::Result<Socket> {
        match self {
            Self::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
            Self::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, timeout)?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
        }
    }
}

/// A connected stream of either kind.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Ends both directions, for everybody: whoever is blocked in a read or a write returns.
    pub(crate) fn close(&self) {
        // The other end may have closed it already, which is as good.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Whether the other end of a TCP connection has closed it, and nothing is left to read. Whoever reads from it
    /// meanwhile may see a timeout.
    pub(crate) fn has_ended(&self) -> bool {
        let Self::Tcp(stream) = self else { return false };
        // Not `set_nonblocking`: that would be for the writers too.
        let ended = stream.set_read_timeout(Some(Duration::from_millis(1))).and_then(|()| stream.peek(&mut [0]));
        let restored = stream.set_read_timeout(None);
        match ended {
            Ok(length) => length == 0,
            Err(error) => {
                restored.is_err() || !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            }
        }
    }

    /// How long one read or write may block from now on. Not zero.
    pub(crate) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }
}

// By reference, as the streams themselves do it: one thread reads while another writes.

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&*stream).read(buffer),
            Socket::Tcp(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&*stream).write(bytes),
            Socket::Tcp(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
