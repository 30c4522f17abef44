//! One question on its way to Redis.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::guard::{Failure, Settled};
use crate::store::memory::Question;
use crate::{Key, Limit};

pub(super) type Reply = Result<Settled, Failure>;

/// Owns what it needs: its caller may be gone before it is answered.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) action: Action,
    pub(super) key: Key,
    pub(super) limit: Limit,
    pub(super) cost: u32,
    /// When an answer is given at the latest.
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Reply>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Take,
    Peek,
    Reset,
}

impl Call {
    pub(super) fn question(&self) -> Question<'_> {
        Question { key: &self.key, limit: self.limit, cost: self.cost }
    }
}
