//! The task of a connection that reads replies and completes them, and writes what the socket had no room for.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::mem::replace;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use redis::{PushKind, RedisError, RedisResult, Value};
use tokio::io::ReadBuf;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::transport::TransportReader;
use super::{ReplyBound, Shared};
use crate::store::redis::resp::{FrameScanner, ReplyFault, decode};

/// The bytes of a read. The reply to a batch of 128 calls has 3 200.
const MIN_BUFFER_BYTES: usize = 16 << 10;

/// The attempts to read after a write has failed.
const POLLS_OF_REST: usize = 4;

pub(super) struct Reader {
    transport: TransportReader,
    shared: Rc<Shared>,
    input: Input,
    scanner: FrameScanner,
}

/// The end of a connection that this process has not closed.
enum Ended {
    /// The server has closed it.
    Closed,
    Failed(io::Error),
    WriteFailed(io::Error),
    Unusable(ReplyFault),
}

impl Reader {
    pub(super) fn new(transport: TransportReader, shared: Rc<Shared>) -> Self {
        Self { transport, shared, input: Input::default(), scanner: FrameScanner::default() }
    }

    /// Runs until the connection ends.
    pub(super) async fn run(mut self) {
        let mut ended = poll_fn(|context| self.poll(context)).await;
        if let Some(Ended::WriteFailed(_)) = ended
            && let Some(reason) = self.read_rest().await
        {
            ended = Some(reason);
        }
        let error = match ended {
            Some(Ended::Unusable(fault)) => return self.shared.end_by_fault(fault),
            Some(Ended::Closed) if !self.input.unread().is_empty() => return self.shared.end_by_fault(ReplyFault::Cut),
            Some(Ended::Failed(error) | Ended::WriteFailed(error)) => Some(RedisError::from(error)),
            Some(Ended::Closed) => None,
            None => return,
        };
        self.shared.end(error, io::ErrorKind::BrokenPipe);
        self.shared.lost.notify_one();
    }

    /// Reads and writes until the socket is not ready. The result is ready when the connection has ended: `None` if this
    /// process has closed it.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Ended>> {
        if self.shared.ended.get().is_some() {
            return Poll::Ready(None);
        }
        if let Some(ended) = self.read_available(context) {
            return Poll::Ready(Some(ended));
        }
        if let Some(error) = self.shared.write_error.take() {
            return Poll::Ready(Some(Ended::WriteFailed(error)));
        }
        {
            let mut waker = self.shared.reader_waker.borrow_mut();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
        }
        if self.shared.reader_writes.get()
            && let Err(error) = ready!(self.poll_write(context))
        {
            return Poll::Ready(Some(Ended::WriteFailed(error)));
        }
        Poll::Pending
    }

    /// Reads what a server may have sent before it closed the connection: it may be the reason. Returns the end if there
    /// is one.
    async fn read_rest(&mut self) -> Option<Ended> {
        for _ in 0..POLLS_OF_REST {
            // The runtime learns in between what can be read.
            yield_now().await;
            let ended = poll_fn(|context| Poll::Ready(self.read_available(context))).await;
            if ended.is_some() {
                return ended;
            }
        }
        None
    }

    /// Reads until the socket is not ready. Returns the end if there is one.
    fn read_available(&mut self, context: &mut Context<'_>) -> Option<Ended> {
        if !self.shared.read_by_caller.borrow().is_empty()
            && let Err(fault) = self.complete_replies()
        {
            return Some(Ended::Unusable(fault));
        }
        loop {
            match self.poll_read(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(ended)) => return Some(ended),
                Poll::Pending => return None,
            }
        }
    }

    /// Reads once, and completes the replies that have arrived.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let mut space = ReadBuf::new(self.input.space());
        let read = ready!(read_alone(&self.shared, &mut self.transport, context, &mut space));
        let length = space.filled().len();
        if length == 0 && !self.shared.read_by_caller.borrow().is_empty() {
            // The worker has taken the connection back with these bytes just now.
            if let Err(fault) = self.complete_replies() {
                return Poll::Ready(Err(Ended::Unusable(fault)));
            }
        }
        Poll::Ready(match read {
            Ok(()) if length == 0 => Err(Ended::Closed),
            Ok(()) => {
                self.input.add(length);
                self.complete_replies().map_err(Ended::Unusable)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(Ended::Failed(error)),
        })
    }

    fn complete_replies(&mut self) -> Result<(), ReplyFault> {
        // A caller may have written the command of the first reply.
        self.shared.take_back();
        let read_by_caller = self.shared.read_by_caller.take();
        if !read_by_caller.is_empty() {
            self.input.prepend(&read_by_caller);
        }
        while let Some(kind) = self.input.unread().first() {
            let is_push = *kind == b'>';
            let (bound, is_awaited) = match self.shared.awaited.borrow().front() {
                // A malformed one may be the rest of something else.
                _ if is_push => (ReplyBound::Script, true),
                Some(awaited) => (awaited.bound, awaited.recipient.is_awaited()),
                None => return Err(ReplyFault::Unexpected),
            };
            let Some(length) = self.scanner.scan(self.input.unread(), bound.max_bytes())? else { break };
            let frame = &self.input.unread()[..length];
            // One that cannot be decoded stays the first of the awaited replies, and gets the error.
            let value = if is_awaited { Some(decode(frame)?) } else { None };
            self.input.consume(length);
            if is_push && !self.shared.is_confirmation(value.as_ref()) {
                continue;
            }
            let first = self.shared.awaited.borrow_mut().pop_front();
            if let (Some(awaited), Some(value)) = (first, value) {
                awaited.recipient.complete(Ok(value));
            }
        }
        self.shared.has_unread.set(!self.input.unread().is_empty());
        Ok(())
    }

    /// Writes until the socket has all of the output.
    fn poll_write(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.shared.reader_writes.get() {
            match &*self.shared.writer.borrow() {
                Some(writer) => ready!(writer.poll_ready(context))?,
                None => break,
            }
            self.shared.flush();
        }
        Poll::Ready(Ok(()))
    }
}

impl Shared {
    /// Returns whether a push is the reply to a SUBSCRIBE. Hands on a message.
    fn is_confirmation(&self, push: Option<&Value>) -> bool {
        let Some(Value::Push { kind, data }) = push else { return false };
        if *kind == PushKind::Message
            && let Some(handler) = self.on_message.borrow().clone()
        {
            handler(data);
        }
        *kind == PushKind::Subscribe
    }
}

/// Reads once, while no caller does. If something was read the write half is taken back.
fn read_alone(
    shared: &Shared,
    transport: &mut TransportReader,
    context: &mut Context<'_>,
    space: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let mut result = Poll::Pending;
    shared.take_back_if(|| {
        result = transport.poll_read(context, space);
        result.is_ready()
    });
    result
}

/// Bytes that were read, of which the beginning is consumed.
struct Input {
    bytes: Vec<u8>,
    consumed: usize,
    end: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self { bytes: vec![0; MIN_BUFFER_BYTES], consumed: 0, end: 0 }
    }
}

impl Input {
    fn unread(&self) -> &[u8] {
        &self.bytes[self.consumed..self.end]
    }

    /// The space for the next read. It grows with what has arrived, not with an announced length.
    fn space(&mut self) -> &mut [u8] {
        if self.end == self.bytes.len() {
            if self.consumed > self.bytes.len() / 2 {
                self.bytes.copy_within(self.consumed..self.end, 0);
                (self.consumed, self.end) = (0, self.end - self.consumed);
            } else {
                self.bytes.resize(2 * self.bytes.len(), 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    fn add(&mut self, length: usize) {
        self.end += length;
    }

    /// Adds bytes in front of all others. None is consumed yet.
    fn prepend(&mut self, bytes: &[u8]) {
        let unread = [bytes, self.unread()].concat();
        self.consumed = 0;
        self.end = unread.len();
        self.bytes.resize(self.bytes.len().max(self.end), 0);
        self.bytes[..self.end].copy_from_slice(&unread);
    }

    fn consume(&mut self, length: usize) {
        self.consumed += length;
        if self.consumed == self.end {
            (self.consumed, self.end) = (0, 0);
            if self.bytes.len() > MIN_BUFFER_BYTES {
                *self = Self::default();
            }
        }
    }
}

// The reply to one command, which its sender awaits.

/// The place for a reply. The reader completes it once.
#[derive(Default)]
pub(super) struct ReplySlot(RefCell<SlotState>);

enum SlotState {
    Awaited(Option<Waker>),
    Complete(RedisResult<Value>),
    /// The sender has the reply, or does not wait any more.
    Over,
}

impl Default for SlotState {
    fn default() -> Self {
        Self::Awaited(None)
    }
}

impl ReplySlot {
    fn is_awaited(&self) -> bool {
        matches!(*self.0.borrow(), SlotState::Awaited(_))
    }

    /// Sets the reply, unless the sender does not wait any more.
    fn complete(&self, reply: RedisResult<Value>) {
        if self.is_awaited()
            && let SlotState::Awaited(Some(waker)) = self.0.replace(SlotState::Complete(reply))
        {
            waker.wake();
        }
    }
}

/// A reply to come.
pub(super) struct AwaitedReply {
    pub(super) recipient: Recipient,
    pub(super) bound: ReplyBound,
}

/// The recipient of the reply to a command.
pub(super) enum Recipient {
    /// It is of no interest.
    Nobody,
    /// To a task of the worker's thread.
    Sender(Rc<ReplySlot>),
    /// To a call whose caller has written the command.
    Caller(oneshot::Sender<RedisResult<Value>>),
}

impl Recipient {
    fn is_awaited(&self) -> bool {
        match self {
            Self::Nobody => false,
            Self::Sender(slot) => slot.is_awaited(),
            Self::Caller(call) => !call.is_closed(),
        }
    }

    pub(super) fn complete(self, reply: RedisResult<Value>) {
        match self {
            Self::Nobody => {}
            Self::Sender(slot) => slot.complete(reply),
            // The call may have timed out.
            Self::Caller(call) => drop(call.send(reply)),
        }
    }
}

/// A future of the reply. If it is dropped, the reply is discarded when it comes.
pub(super) struct Reply(pub(super) Rc<ReplySlot>);

impl Future for Reply {
    type Output = RedisResult<Value>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.borrow_mut();
        match &mut *state {
            SlotState::Awaited(Some(waker)) => waker.clone_from(context.waker()),
            SlotState::Awaited(waker) => *waker = Some(context.waker().clone()),
            SlotState::Complete(_) => {
                if let SlotState::Complete(reply) = replace(&mut *state, SlotState::Over) {
                    return Poll::Ready(reply);
                }
            }
            SlotState::Over => {}
        }
        Poll::Pending
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.0.0.replace(SlotState::Over);
    }
}
