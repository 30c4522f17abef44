//! One decision on its way to Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::request::{CountedReply, RefundInfo, StoreFailure};
use crate::request::{OwnedRequest, Request};
use crate::{Error, ErrorKind, Layout};

pub(crate) type Reply = Result<CountedReply, StoreFailure>;

/// Owns what it needs: its caller may be gone before it is answered.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) action: Action,
    pub(crate) asked: Arc<[OwnedRequest]>,
    pub(crate) until: Deadline,
    pub(crate) reply: oneshot::Sender<Reply>,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The permits, waiting so long for a turn where there are turns.
    Take {
        max_wait: Duration,
    },
    Peek,
    Refund(Box<RefundInfo>),
    Reset,
}

/// When an answer is given at the latest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) instant: Instant,
    /// How long that was from the beginning.
    within: Duration,
}

impl Call {
    /// Whether it takes permits of one count, now or not at all: such calls can be put to a server together.
    pub(crate) fn can_be_grouped(&self) -> bool {
        let takes = matches!(self.action, Action::Take { max_wait } if max_wait.is_zero());
        takes && matches!(&*self.asked, [asked] if asked.as_request().limit.layout() == Layout::Compact)
    }

    pub(crate) fn requests(&self) -> Vec<Request<'_>> {
        self.asked.iter().map(OwnedRequest::as_request).collect()
    }
}

impl Deadline {
    pub(crate) fn within(within: Duration) -> Self {
        Self { instant: Instant::now() + within, within }
    }

    /// As long again, from now.
    pub(crate) fn again(self) -> Self {
        Self::within(self.within)
    }

    /// Whether the time from the beginning is the same.
    pub(crate) fn is_as_long_as(self, other: Self) -> bool {
        self.within == other.within
    }

    pub(crate) fn late(self) -> Error {
        Error::new(ErrorKind::Timeout, format!("no answer from Redis within {:?}", self.within))
    }
}
