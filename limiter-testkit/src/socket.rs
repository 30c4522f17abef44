//! Addresses and connected streams, over Unix sockets and TCP.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// An address that a server listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An address and a port.
    Tcp(SocketAddr),
}

impl Address {
    /// Connects to the address. A TCP connection must be made within `timeout`; a Unix socket connects at once.
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
    /// Shuts down both directions. A thread that is blocked in a read or a write returns.
    pub(crate) fn close(&self) {
        // The peer may have closed it already.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Returns true if the peer of a TCP connection has closed it and no data is left to read. A concurrent read may
    /// see a timeout.
    pub(crate) fn has_ended(&self) -> bool {
        let Self::Tcp(stream) = self else { return false };
        // `set_nonblocking` would affect the writers too.
        let ended = stream.set_read_timeout(Some(Duration::from_millis(1))).and_then(|()| stream.peek(&mut [0]));
        let restored = stream.set_read_timeout(None);
        match ended {
            Ok(length) => length == 0,
            Err(error) => {
                restored.is_err() || !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            }
        }
    }

    /// Sets the timeout of each following read and write. It must not be zero.
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

// Implemented for references, as for the standard streams: one thread reads while another writes.

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
