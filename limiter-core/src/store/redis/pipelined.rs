//! A connection to a server that sends commands without waiting for the replies to earlier ones.
//!
//! The client has such a connection too. Between a command and its reply it has two channels and a task more, which took
//! a tenth of the time of a lone call.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};

use crate::Error;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::resp::ReplyFault;
use crate::sync::next_id;

mod direct_writer;
mod reader;
mod transport;

pub(crate) use direct_writer::{DirectPoll, DirectReply, DirectWriter, WriteLoan};
use reader::{AwaitedReply, Reader, Recipient, Reply, ReplySlot};
#[cfg(feature = "tls")]
pub(crate) use transport::TlsStream;
use transport::TransportWriter;
pub(crate) use transport::{Stream, Transport};

/// The unwritten bytes from which on a further command waits. It waits for the socket, at most until its deadline.
const MAX_BUFFERED_BYTES: usize = 8 << 10;

/// The longest reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyBound {
    /// That of a script or of a short command. A decision about 20 000 limits with a report of each has one of 1 MB.
    Script,
    /// That of CLUSTER SLOTS, and of the shared rules with their history.
    Long,
}

impl ReplyBound {
    const fn max_bytes(self) -> usize {
        match self {
            Self::Script => 1 << 20,
            Self::Long => 16 << 20,
        }
    }
}

/// A connection of the worker's thread. Clones are the same connection, which closes with the last of them.
#[derive(Clone)]
pub(crate) struct PipelinedConnection(Rc<OpenConnection>);

struct OpenConnection {
    shared: Rc<Shared>,
    /// The task that reads replies.
    reader: AbortHandle,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.shared.take_back();
        self.reader.abort();
    }
}

/// The identity of a connection in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId(u64);

impl ConnectionId {
    fn next() -> Self {
        Self(next_id())
    }
}

/// The state that senders and reader share.
struct Shared {
    id: ConnectionId,
    /// `None` while it is lent, and once a write has failed or the connection has ended.
    writer: RefCell<Option<TransportWriter>>,
    /// Where the write half is lent to callers, while it is.
    lent_at: RefCell<Option<Arc<DirectWriter>>>,
    output: RefCell<Output>,
    /// Bytes that a caller has read. They come before all that the reader reads.
    read_by_caller: RefCell<Vec<u8>>,
    /// Set while the reader has a part of a reply.
    has_unread: Cell<bool>,
    /// The replies to come, in the order of the commands.
    awaited: RefCell<VecDeque<AwaitedReply>>,
    /// Senders that wait for room in the output.
    waiting_senders: Cell<usize>,
    has_room: Notify,
    /// Set while the reader writes what the socket had no room for.
    reader_writes: Cell<bool>,
    write_error: RefCell<Option<io::Error>>,
    reader_waker: RefCell<Option<Waker>>,
    /// The kind of error that commands get once the connection has ended.
    ended: Cell<Option<io::ErrorKind>>,
    /// The reason why the reader has closed the connection.
    cause: RefCell<Option<Error>>,
    /// Notified when the connection is lost.
    lost: Arc<Notify>,
    /// Gets the messages of channels that the connection is subscribed to.
    on_message: RefCell<Option<MessageHandler>>,
}

/// Gets the values of a message: its channel, and its text.
pub(crate) type MessageHandler = Rc<dyn Fn(&[Value])>;

impl PipelinedConnection {
    /// Starts to use a connected socket. It must be called inside of a `LocalSet`.
    pub(crate) fn new(stream: impl Into<Transport>, lost: Arc<Notify>) -> Self {
        let (reader, writer) = stream.into().into_split();
        let shared = Rc::new(Shared {
            id: ConnectionId::next(),
            writer: RefCell::new(Some(writer)),
            lent_at: RefCell::default(),
            output: RefCell::default(),
            read_by_caller: RefCell::default(),
            has_unread: Cell::new(false),
            awaited: RefCell::default(),
            waiting_senders: Cell::new(0),
            has_room: Notify::new(),
            reader_writes: Cell::new(false),
            write_error: RefCell::default(),
            reader_waker: RefCell::default(),
            ended: Cell::new(None),
            cause: RefCell::default(),
            lost,
            on_message: RefCell::default(),
        });
        let reader = spawn_local(Reader::new(reader, Rc::clone(&shared)).run()).abort_handle();
        Self(Rc::new(OpenConnection { shared, reader }))
    }

    /// Sends a command and waits for its reply, which may be an error of the server.
    ///
    /// # Errors
    /// The connection was lost, or its replies are of no use.
    pub(crate) async fn send(&self, command: &Cmd, bound: ReplyBound) -> RedisResult<Value> {
        self.0.shared.room().await?;
        let reply = self.0.shared.push(command, bound);
        self.0.shared.flush();
        reply.await
    }

    /// Sends two commands and waits for the reply to the second. That to the first is discarded.
    pub(crate) async fn send_behind(&self, first: &Cmd, command: &Cmd, bound: ReplyBound) -> RedisResult<Value> {
        self.0.shared.room().await?;
        self.0.shared.push_unawaited(first);
        let reply = self.0.shared.push(command, bound);
        self.0.shared.flush();
        reply.await
    }

    /// Sends commands together and waits for the replies to all of them.
    pub(crate) async fn send_all(&self, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        self.0.shared.room().await?;
        let replies: Vec<_> = commands.iter().map(|command| self.0.shared.push(command, ReplyBound::Script)).collect();
        self.0.shared.flush();
        let mut values = Vec::with_capacity(replies.len());
        for reply in replies {
            values.push(reply.await?);
        }
        Ok(values)
    }

    /// Sets what gets the messages of channels. A SUBSCRIBE has its confirmation as its reply.
    pub(crate) fn on_message(&self, handler: MessageHandler) {
        self.0.shared.on_message.replace(Some(handler));
    }

    /// The handle by which the worker lends the write half to the callers of this server.
    pub(crate) fn write_loan(&self, at: Arc<DirectWriter>) -> WriteLoan {
        WriteLoan::new(self.clone(), at)
    }

    /// Closes the connection. Commands in flight fail at once.
    pub(crate) fn close(&self) {
        self.0.shared.end(None, io::ErrorKind::ConnectionAborted);
        self.0.shared.wake_reader();
    }

    /// Returns the reason why the connection was closed, if it is an unusable reply.
    pub(crate) fn take_cause(&self) -> Option<Error> {
        self.0.shared.cause.take()
    }
}

impl Shared {
    /// Waits for room in the output, behind other senders that wait.
    async fn room(&self) -> RedisResult<()> {
        // A connection that has ended notifies no one again.
        if self.ended.get().is_none() && (self.waiting_senders.get() > 0 || self.is_full()) {
            let _waiting = WaitingSender::new(&self.waiting_senders);
            loop {
                self.has_room.notified().await;
                if !self.is_full() {
                    break;
                }
            }
        }
        match self.ended.get() {
            Some(kind) => Err(io::Error::from(kind).into()),
            None => Ok(()),
        }
    }

    fn is_full(&self) -> bool {
        self.ended.get().is_none() && self.output.borrow().unwritten() >= MAX_BUFFERED_BYTES
    }

    /// Adds a command to the output, and its reply to those that are awaited.
    fn push(&self, command: &Cmd, bound: ReplyBound) -> Reply {
        let slot = Rc::new(ReplySlot::default());
        self.push_to(command, Recipient::Sender(Rc::clone(&slot)), bound);
        Reply(slot)
    }

    fn push_unawaited(&self, command: &Cmd) {
        self.push_to(command, Recipient::Nobody, ReplyBound::Script);
    }

    fn push_to(&self, command: &Cmd, recipient: Recipient, bound: ReplyBound) {
        self.take_back();
        command.write_packed_command(self.output.borrow_mut().buffer());
        self.awaited.borrow_mut().push_back(AwaitedReply { recipient, bound });
    }

    /// Writes as much of the output as the socket takes. The reader writes the rest.
    fn flush(&self) {
        let written = match &*self.writer.borrow() {
            Some(writer) => self.output.borrow_mut().write_to(writer),
            None => return,
        };
        match written {
            Ok(true) => self.reader_writes.set(false),
            Ok(false) => {
                if !self.reader_writes.replace(true) {
                    self.wake_reader();
                }
            }
            Err(error) => self.write_failed(error),
        }
        if self.waiting_senders.get() > 0 && !self.is_full() {
            self.has_room.notify_one();
        }
    }

    /// Leaves the end of the connection to the reader: the server may have sent a reply before it closed it.
    fn write_failed(&self, error: io::Error) {
        self.reader_writes.set(false);
        // Nothing is written behind a command that is cut.
        self.writer.take();
        self.write_error.replace(Some(error));
        self.wake_reader();
    }

    fn wake_reader(&self) {
        if let Some(waker) = self.reader_waker.take() {
            waker.wake();
        }
    }

    /// Ends the connection after an unusable reply.
    fn end_by_fault(&self, fault: ReplyFault) {
        if fault != ReplyFault::Cut {
            self.cause.replace(Some(CommandError::from(RedisError::from(fault)).into()));
        }
        self.end(Some(fault.into()), io::ErrorKind::BrokenPipe);
        self.lost.notify_one();
    }

    /// Ends the connection, once. The first command in flight gets the error, if there is one, and all others an error
    /// of the kind.
    fn end(&self, error: Option<RedisError>, kind: io::ErrorKind) {
        if self.ended.get().is_some() {
            return;
        }
        self.take_back();
        self.ended.set(Some(kind));
        self.writer.take();
        self.output.take();
        let mut error = error;
        for awaited in self.awaited.take() {
            awaited.recipient.complete(Err(error.take().unwrap_or_else(|| io::Error::from(kind).into())));
        }
        self.has_room.notify_waiters();
    }
}

/// A sender that waits for room, while it does.
struct WaitingSender<'a>(&'a Cell<usize>);

impl<'a> WaitingSender<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for WaitingSender<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

// Commands that are not written yet.

/// The memory that is kept for later commands.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// Packed commands, of which the socket has taken a part.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    written: usize,
}

impl Output {
    /// The buffer that further commands are added to.
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Replaces the output, which is empty, by bytes of which the socket has taken a part.
    fn resume(&mut self, bytes: Vec<u8>, written: usize) {
        (self.bytes, self.written) = (bytes, written);
        if self.unwritten() == 0 {
            self.clear();
        }
    }

    fn unwritten(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Writes as much as the socket takes. Returns true if it has taken all.
    ///
    /// # Errors
    /// The socket is closed. The rest is discarded.
    fn write_to(&mut self, writer: &TransportWriter) -> io::Result<bool> {
        let result = writer.write(&self.bytes, &mut self.written);
        if self.unwritten() == 0 || result.is_err() {
            self.clear();
        } else if self.written > self.unwritten() {
            // A socket that is never quick enough for all commands does not make the buffer grow. Each byte is moved once
            // on average.
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        result
    }

    /// The bytes in memory.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(MAX_KEPT_BYTES);
        self.written = 0;
    }
}

#[cfg(test)]
mod tests;
