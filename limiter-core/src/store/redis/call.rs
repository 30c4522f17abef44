//! One decision on its way to Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::guard::{Failure, Granted, Settled};
use crate::store::{Asked, Question};
use crate::{Error, ErrorKind, Layout};

pub(super) type Reply = Result<Settled, Failure>;

/// Owns what it needs: its caller may be gone before it is answered.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) action: Action,
    pub(super) asked: Arc<[Asked]>,
    pub(super) until: Until,
    pub(super) reply: oneshot::Sender<Reply>,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    /// The permits, waiting so long for a turn where there are turns.
    Take {
        patience: Duration,
    },
    Peek,
    Refund(Box<Granted>),
    Reset,
}

/// When an answer is given at the latest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    pub(super) instant: Instant,
    /// How long that was from the beginning.
    within: Duration,
}

impl Call {
    /// Whether it takes permits of one count, now or not at all: such calls can be put to a server together.
    pub(super) fn can_be_grouped(&self) -> bool {
        let takes = matches!(self.action, Action::Take { patience } if patience.is_zero());
        takes && matches!(&*self.asked, [asked] if asked.question().limit.layout() == Layout::Compact)
    }

    pub(super) fn questions(&self) -> Vec<Question<'_>> {
        self.asked.iter().map(Asked::question).collect()
    }
}

impl Until {
    pub(super) fn within(within: Duration) -> Self {
        Self { instant: Instant::now() + within, within }
    }

    /// As long again, from now.
    pub(super) fn again(self) -> Self {
        Self::within(self.within)
    }

    /// Whether the time from the beginning is the same.
    pub(super) fn is_as_long_as(self, other: Self) -> bool {
        self.within == other.within
    }

    pub(super) fn late(self) -> Error {
        Error::new(ErrorKind::Timeout, format!("no answer from Redis within {:?}", self.within))
    }
}
