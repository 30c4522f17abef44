//! One decision on its way to Redis.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::guard::{Failure, Granted, Settled};
use crate::store::{Asked, Question};

pub(super) type Reply = Result<Settled, Failure>;

/// Owns what it needs: its caller may be gone before it is answered.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) action: Action,
    pub(super) asked: Box<[Asked]>,
    /// How long an answer may take, and so when it is given at the latest.
    pub(super) within: Duration,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Reply>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// The permits, waiting so long for a turn where there are turns.
    Take {
        patience: Duration,
    },
    Peek,
    Refund(Granted),
    Reset,
}

impl Call {
    pub(super) fn questions(&self) -> Vec<Question<'_>> {
        self.asked.iter().map(Asked::question).collect()
    }
}
