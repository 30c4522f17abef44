//! Direct writes: while a connection is idle, a caller writes its own command, on its own thread.
//!
//! The worker lends its write half to the callers. The first caller that finds it writes one command. The worker takes
//! the write half back before it writes anything itself, and before it completes a reply.

use std::fmt;
use std::io;
use std::mem::replace;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use redis::{Cmd, RedisResult, Value};
use tokio::sync::oneshot;

use super::ConnectionId;
use super::stream::WriteHalf;
use crate::sync::Mutex;
use crate::sync::process::unless_blocked;

/// The write half of an idle connection, where callers find it.
#[derive(Default)]
pub(crate) struct DirectWriter {
    /// False if no caller can write. So callers lock nothing in vain.
    is_free: AtomicBool,
    lent: Mutex<Option<Lent>>,
}

/// The reply to a command that a caller has written.
#[derive(Debug)]
pub(crate) struct DirectReply {
    connection: ConnectionId,
    reply: oneshot::Receiver<RedisResult<Value>>,
}

/// The write half, with all that a caller needs to send a call.
pub(super) struct Lent {
    pub(super) connection: ConnectionId,
    pub(super) writer: WriteHalf,
    /// The buffer of packed commands. Once the connection is used it holds one command.
    pub(super) buffer: Vec<u8>,
    /// The digest of the batch script.
    pub(super) digest: Arc<str>,
    pub(super) used: Option<Used>,
}

/// The result of a caller's write.
pub(super) struct Used {
    /// The number of bytes that the socket has taken.
    pub(super) written: io::Result<usize>,
    pub(super) reply_to: oneshot::Sender<RedisResult<Value>>,
}

impl DirectWriter {
    /// Returns false if no caller can write now.
    pub(crate) fn is_free(&self) -> bool {
        self.is_free.load(Ordering::Relaxed)
    }

    /// Writes the command that `command` returns for the script's digest, and returns its reply. It does not wait,
    /// neither for the lock nor for the socket. What the socket has no room for is left to the worker. The worker waits
    /// for the lock, so `command` must not take long.
    ///
    /// Returns `None` if the connection is not idle, or if `command` returns none. Then nothing is written.
    pub(crate) fn write(&self, command: impl FnOnce(&str) -> Option<Cmd>) -> Option<DirectReply> {
        if !self.is_free() {
            return None;
        }
        let mut lent = unless_blocked(self.lent.try_lock())?;
        let Lent { connection, writer, buffer, digest, used } = lent.as_mut().filter(|lent| lent.used.is_none())?;
        let command = command(digest)?;
        buffer.clear();
        command.write_packed_command(buffer);
        let written = match writer.try_write(buffer) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            written => written,
        };
        let (reply_to, reply) = oneshot::channel();
        *used = Some(Used { written, reply_to });
        self.is_free.store(false, Ordering::Relaxed);
        Some(DirectReply { connection: *connection, reply })
    }

    pub(super) fn lend(&self, lent: Lent) {
        self.set(Some(lent));
    }

    /// Takes back what was lent. It waits for a caller that is writing.
    pub(super) fn take_back(&self) -> Option<Lent> {
        self.set(None)
    }

    fn set(&self, lent: Option<Lent>) -> Option<Lent> {
        let mut place = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_free.store(lent.is_some(), Ordering::Relaxed);
        replace(&mut *place, lent)
    }
}

impl DirectReply {
    /// The connection that the command was written to.
    pub(crate) fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Waits for the reply, or for the end of the connection.
    pub(crate) async fn received(self) -> RedisResult<Value> {
        // Without a reply the connection was dropped.
        self.reply.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::BrokenPipe).into()))
    }
}

impl fmt::Debug for DirectWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectWriter").field("is_free", &self.is_free).finish_non_exhaustive()
    }
}
