//! A connected socket with TLS.
//!
//! The session is between the halves of the socket. It has no task and no waker of its own: what it could not write
//! stays in it until the writer is flushed again.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustls::ClientConnection;
use tokio::io::{AsyncRead, ReadBuf};

use super::{ReadHalf, Stream, WriteHalf};

/// The bytes of commands that the session encrypts before the socket has taken them: one record.
const MAX_SESSION_BYTES: usize = 16 << 10;

/// A socket after the handshake, with its session.
pub(crate) struct TlsStream {
    socket: Stream,
    session: ClientConnection,
}

impl TlsStream {
    pub(crate) fn new(socket: Stream, session: ClientConnection) -> Self {
        Self { socket, session }
    }

    pub(super) fn into_split(self) -> (TlsReader, TlsWriter) {
        let (read_half, write_half) = self.socket.into_split();
        let mut session = self.session;
        session.set_buffer_limit(Some(MAX_SESSION_BYTES));
        let session = Rc::new(RefCell::new(session));
        let reader = TlsReader { socket: read_half, session: Rc::clone(&session), failed: None };
        (reader, TlsWriter { socket: write_half, session })
    }
}

pub(crate) struct TlsReader {
    socket: ReadHalf,
    session: Rc<RefCell<ClientConnection>>,
    /// The error that is returned once all before it is read.
    failed: Option<io::Error>,
}

impl TlsReader {
    /// Reads what has been decrypted, and from the socket if there is nothing. It adds nothing at the end of the
    /// stream. An end without a `close_notify` is one too: the reader finds out whether a reply is cut.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut session = self.session.borrow_mut();
        loop {
            match session.reader().read(buffer.initialize_unfilled()) {
                Ok(length) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                // There is nothing, and the end of the stream may have come.
                Err(error) => match (self.failed.take(), error.kind()) {
                    (Some(failed), _) => return Poll::Ready(Err(failed)),
                    (None, io::ErrorKind::WouldBlock) => {}
                    (None, io::ErrorKind::UnexpectedEof) => return Poll::Ready(Ok(())),
                    (None, _) => return Poll::Ready(Err(error)),
                },
            }
            let mut socket = SocketReader { socket: &mut self.socket, context };
            match session.read_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
            if let Err(error) = session.process_new_packets() {
                self.failed = Some(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }
}

/// The socket as the session reads it.
struct SocketReader<'a, 'b> {
    socket: &'a mut ReadHalf,
    context: &'a mut Context<'b>,
}

impl Read for SocketReader<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        match Pin::new(&mut *self.socket).poll_read(self.context, &mut buffer) {
            Poll::Ready(read) => read.map(|()| buffer.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// The half to write to. Its drop sends a `close_notify` if the socket has room, and closes that direction.
pub(crate) struct TlsWriter {
    socket: WriteHalf,
    session: Rc<RefCell<ClientConnection>>,
}

impl TlsWriter {
    /// Encrypts at most one record, once the socket has taken the records before it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it has not.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        if !self.try_flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.session.borrow_mut().writer().write(bytes)
    }

    /// Writes what the socket has room for. Returns true if it has taken all records.
    pub(super) fn try_flush(&self) -> io::Result<bool> {
        let mut session = self.session.borrow_mut();
        while session.wants_write() {
            match session.write_tls(&mut SocketWriter(&self.socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_ready(context)
    }
}

impl Drop for TlsWriter {
    fn drop(&mut self) {
        self.session.borrow_mut().send_close_notify();
        // The connection has ended, so an error changes nothing.
        let _ = self.try_flush();
    }
}

/// The socket as the session writes to it.
struct SocketWriter<'a>(&'a WriteHalf);

impl Write for SocketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
