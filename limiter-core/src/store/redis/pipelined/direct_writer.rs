//! Direct calls: while a connection is idle, a caller writes its own command, on its own thread, and may poll for the
//! reply.
//!
//! The worker lends its write half to the callers. The first caller that finds it writes one command. The worker takes
//! the write half back before it writes anything itself, and before it completes a reply. Until then the caller may read
//! the reply.

use std::mem::{replace, take};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::{fmt, io};

use redis::{Cmd, RedisResult, Value};
use tokio::sync::oneshot;

use super::reader::{AwaitedReply, Recipient};
use super::transport::{TransportWriter, WriteHalf};
use super::{ConnectionId, PipelinedConnection, ReplyBound, Shared};
use crate::store::redis::busy_polling::Backoff;
use crate::store::redis::resp::{FrameScanner, decode};
use crate::sync::unless_blocked;
use crate::sync::{Mutex, MutexGuard, next_id};

/// The write half of an idle connection, where callers find it.
#[derive(Default)]
pub(crate) struct DirectWriter {
    /// False if no caller can write. So callers lock nothing in vain.
    is_free: AtomicBool,
    /// Set while the worker waits for the lock.
    is_wanted: AtomicBool,
    state: Mutex<WriterState>,
}

#[derive(Default)]
struct WriterState {
    lent: Option<Lent>,
    backoff: Backoff,
}

/// The reply to a command that a caller has written.
#[derive(Debug)]
pub(crate) struct DirectReply {
    id: u64,
    connection: ConnectionId,
    reply: oneshot::Receiver<RedisResult<Value>>,
    /// Set if the caller is to poll for it.
    is_polled: bool,
}

/// The result of one poll of a caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DirectPoll<T> {
    /// The reply has not arrived.
    Pending,
    Ready(T),
    /// The worker has to wait for the reply, or has it.
    LeftToWorker,
}

/// The write half, with all that a caller needs to send a call.
struct Lent {
    connection: ConnectionId,
    writer: WriteHalf,
    /// The buffer of packed commands. Once the connection is used it holds one command.
    buffer: Vec<u8>,
    /// The digests of the scripts.
    digests: Arc<[Arc<str>]>,
    used: Option<Used>,
    /// Bytes that a caller has read and that are not one reply.
    input: Vec<u8>,
}

/// The result of a caller's write.
struct Used {
    id: u64,
    /// The number of bytes that the socket has taken.
    written: io::Result<usize>,
    reply_to: oneshot::Sender<RedisResult<Value>>,
}

/// The most bytes of a reply that a caller reads. That to a lone call has 39.
pub(super) const MAX_READ_BYTES: usize = 256;

impl DirectWriter {
    /// Returns false if no caller can write now.
    pub(crate) fn is_free(&self) -> bool {
        self.is_free.load(Ordering::Relaxed)
    }

    /// Writes the command that `command` returns for the scripts' digests, and returns its reply. It does not wait,
    /// neither for the lock nor for the socket. What the socket has no room for is left to the worker. The worker waits
    /// for the lock, so `command` must not take long.
    ///
    /// Returns `None` if the connection is not idle, or if `command` returns none. Then nothing is written.
    pub(crate) fn write(&self, command: impl FnOnce(&[Arc<str>]) -> Option<Cmd>) -> Option<DirectReply> {
        if !self.is_free() {
            return None;
        }
        let mut state = unless_blocked(self.state.try_lock())?;
        let WriterState { lent, backoff } = &mut *state;
        let Lent { connection, writer, buffer, digests, used, .. } =
            lent.as_mut().filter(|lent| lent.used.is_none())?;
        let command = command(digests)?;
        buffer.clear();
        command.write_packed_command(buffer);
        let written = match writer.try_write(buffer) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            written => written,
        };
        let is_polled = written.as_ref().is_ok_and(|written| *written == buffer.len()) && !backoff.skip();
        let (reply_to, reply) = oneshot::channel();
        let id = next_id();
        *used = Some(Used { id, written, reply_to });
        self.is_free.store(false, Ordering::Relaxed);
        Some(DirectReply { id, connection: *connection, reply, is_polled })
    }

    /// Reads the reply to a command that a caller has written, if it has arrived and the worker has not taken the
    /// connection back. It waits neither for the lock nor for the socket.
    ///
    /// A reply whose value `decode_value` rejects is left to the worker, as is one that has not arrived as a whole.
    pub(crate) fn poll<T>(&self, reply: &DirectReply, decode_value: impl FnOnce(Value) -> Option<T>) -> DirectPoll<T> {
        if self.is_wanted.load(Ordering::Relaxed) {
            return DirectPoll::Pending;
        }
        let Some(mut state) = unless_blocked(self.state.try_lock()) else { return DirectPoll::Pending };
        let WriterState { lent, backoff } = &mut *state;
        let Some(Lent { writer, used, input, .. }) = lent else { return DirectPoll::LeftToWorker };
        if used.as_ref().is_none_or(|used| used.id != reply.id) || !input.is_empty() {
            return DirectPoll::LeftToWorker;
        }
        let mut bytes = [0; MAX_READ_BYTES];
        let frame = match writer.try_read(&mut bytes) {
            // The worker reads the end of the stream as well.
            Ok(0) => return DirectPoll::LeftToWorker,
            Ok(length) => &bytes[..length],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return DirectPoll::Pending;
            }
            Err(_) => return DirectPoll::LeftToWorker,
        };
        // Should `decode_value` panic, no reply is awaited any more.
        let own = used.take();
        match decode_whole(frame).and_then(decode_value) {
            Some(decoded) => {
                backoff.record(true);
                self.is_free.store(true, Ordering::Relaxed);
                DirectPoll::Ready(decoded)
            }
            None => {
                *used = own;
                input.extend_from_slice(frame);
                DirectPoll::LeftToWorker
            }
        }
    }

    /// Records that the reply has not arrived while a caller polled for it.
    pub(crate) fn record_miss(&self) {
        if let Some(mut state) = unless_blocked(self.state.try_lock()) {
            state.backoff.record(false);
        }
    }

    /// Locks the state on the worker's thread: it waits for a caller that is writing or reading. A caller that polls all
    /// the time lets the worker have the lock.
    fn lock(&self) -> MutexGuard<'_, WriterState> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_wanted.store(false, Ordering::Relaxed);
        state
    }

    fn set(&self, state: &mut WriterState, lent: Option<Lent>) -> Option<Lent> {
        self.is_free.store(lent.is_some(), Ordering::Relaxed);
        replace(&mut state.lent, lent)
    }
}

/// Decodes bytes that are one reply. A push of the server is none.
fn decode_whole(bytes: &[u8]) -> Option<Value> {
    let length = FrameScanner::default().scan(bytes, ReplyBound::Script.max_bytes()).ok()??;
    if length == bytes.len() && bytes[0] != b'>' { decode(bytes).ok() } else { None }
}

impl DirectReply {
    /// Returns whether the caller is to poll for it.
    pub(crate) fn is_polled(&self) -> bool {
        self.is_polled
    }

    /// Waits for the reply, or for the end of the connection.
    pub(crate) async fn received(self) -> RedisResult<Value> {
        // Without a reply the connection was dropped.
        self.reply.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::BrokenPipe).into()))
    }
}

// The worker's side: it lends the write half of its connection, and takes it back.

/// Lends the write half of one connection to the callers of its server. The connection is open while this exists.
#[derive(Clone)]
pub(crate) struct WriteLoan {
    connection: PipelinedConnection,
    at: Arc<DirectWriter>,
}

impl WriteLoan {
    pub(super) fn new(connection: PipelinedConnection, at: Arc<DirectWriter>) -> Self {
        Self { connection, at }
    }

    /// Lends the write half, if nothing is in flight, unwritten, unread or waiting. A session of TLS stays on this thread.
    /// It is taken back before the worker writes anything, and before it completes a reply. `digests` are those of the
    /// scripts.
    pub(crate) fn lend(&self, digests: Arc<[Arc<str>]>) {
        let shared = &self.connection.0.shared;
        let is_idle = shared.awaited.borrow().is_empty()
            && shared.output.borrow().unwritten() == 0
            && !shared.has_unread.get()
            && shared.waiting_senders.get() == 0;
        if !is_idle {
            return;
        }
        match shared.writer.take() {
            Some(TransportWriter::Plain(writer)) => {
                let buffer = take(shared.output.borrow_mut().buffer());
                let lent = Lent { connection: shared.id, writer, buffer, digests, used: None, input: Vec::new() };
                self.at.set(&mut self.at.lock(), Some(lent));
                shared.lent_at.replace(Some(Arc::clone(&self.at)));
            }
            other => drop(shared.writer.replace(other)),
        }
    }

    /// Takes the write half back. The reply to a command that a caller has written is awaited from then on.
    pub(crate) fn take_back(&self) {
        self.connection.0.shared.take_back();
    }

    /// Returns whether a caller has written the command of this reply to the connection.
    pub(crate) fn is_of(&self, reply: &DirectReply) -> bool {
        self.connection.0.shared.id == reply.connection
    }
}

impl Shared {
    /// Takes the write half back, if it is lent. The command of a caller comes before all later ones.
    pub(super) fn take_back(&self) {
        self.take_back_if(|| true);
    }

    /// Calls `read`, while no caller reads if the write half is lent. Takes that back if it returns true: it has read
    /// something.
    pub(super) fn take_back_if(&self, read: impl FnOnce() -> bool) {
        let Some(lent_at) = self.lent_at.take() else {
            read();
            return;
        };
        let mut state = lent_at.lock();
        if !read() {
            drop(state);
            self.lent_at.replace(Some(lent_at));
            return;
        }
        let lent = lent_at.set(&mut state, None);
        drop(state);
        if let Some(lent) = lent {
            self.regain(lent);
        }
    }

    /// Uses the write half again. A command of a caller is awaited from now on.
    fn regain(&self, lent: Lent) {
        let Lent { writer, buffer, used, input, .. } = lent;
        self.writer.replace(Some(TransportWriter::Plain(writer)));
        if !input.is_empty() {
            self.read_by_caller.replace(input);
            self.wake_reader();
        }
        let Some(Used { written, reply_to, .. }) = used else { return };
        let recipient = Recipient::Caller(reply_to);
        self.awaited.borrow_mut().push_back(AwaitedReply { recipient, bound: ReplyBound::Script });
        match written {
            Ok(written) => self.output.borrow_mut().resume(buffer, written),
            Err(error) => return self.write_failed(error),
        }
        if self.output.borrow().unwritten() > 0 {
            self.flush();
        }
    }
}

impl fmt::Debug for DirectWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectWriter").field("is_free", &self.is_free).finish_non_exhaustive()
    }
}
