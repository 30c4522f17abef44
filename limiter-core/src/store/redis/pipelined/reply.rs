//! The reply to one command, which its sender awaits.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use redis::{RedisResult, Value};
use tokio::sync::oneshot;

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
    pub(super) fn is_awaited(&self) -> bool {
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
pub(super) struct Reply(Rc<ReplySlot>);

impl Reply {
    pub(super) fn new(slot: Rc<ReplySlot>) -> Self {
        Self(slot)
    }
}

impl Future for Reply {
    type Output = RedisResult<Value>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.borrow_mut();
        match &mut *state {
            SlotState::Awaited(Some(waker)) => waker.clone_from(context.waker()),
            SlotState::Awaited(waker) => *waker = Some(context.waker().clone()),
            SlotState::Complete(_) => {
                if let SlotState::Complete(reply) = std::mem::replace(&mut *state, SlotState::Over) {
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
