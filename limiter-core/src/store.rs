//! Where the counts are kept. A store reports; what to do about its failures is the guard's.

use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::Span;
use crate::{Key, Limit};

#[cfg(not(feature = "redis"))]
mod absent;
pub(crate) mod memory;
pub(crate) mod naming;
pub(crate) mod slot;
#[cfg(feature = "redis")]
pub(crate) mod redis;

#[cfg(not(feature = "redis"))]
pub(crate) use absent::RedisStore;
#[cfg(feature = "redis")]
pub(crate) use redis::RedisStore;

/// One question to a store: may `cost` permits be taken? Several make one decision, all or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question<'a> {
    pub(crate) key: &'a Key,
    pub(crate) limit: Limit,
    pub(crate) cost: u32,
}

impl Question<'_> {
    /// Permits that the questions before it in the same decision take of the same count.
    pub(crate) fn pending(&self, before: &[Self]) -> u32 {
        let same = |other: &&Self| Span::from(other.limit) == Span::from(self.limit) && other.key == self.key;
        before.iter().filter(same).fold(0, |sum, other| sum.saturating_add(other.cost))
    }

    /// As many of it in one.
    #[cfg(feature = "redis")]
    pub(crate) fn times(self, many: usize) -> Self {
        Self { cost: u32::try_from(many).unwrap_or(u32::MAX).saturating_mul(self.cost), ..self }
    }
}

/// A question that owns its key.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    key: Key,
    limit: Limit,
    cost: u32,
}

impl Asked {
    /// For a call that another thread decides, and the receipt of it.
    pub(crate) fn all(questions: &[Question<'_>]) -> Arc<[Self]> {
        questions.iter().map(Self::from).collect()
    }

    pub(crate) fn question(&self) -> Question<'_> {
        Question { key: &self.key, limit: self.limit, cost: self.cost }
    }
}

impl From<&Question<'_>> for Asked {
    #[inline]
    fn from(&Question { key, limit, cost }: &Question<'_>) -> Self {
        Self { key: key.clone(), limit, cost }
    }
}

#[cfg(any(feature = "redis", test))]
impl Answer {
    /// An admission without a count: the answer to a refund that the store is not sent.
    pub(crate) const ALLOWED: Self = Self {
        allowed: true,
        which: 0,
        remaining: 0,
        retry_after: Some(Duration::ZERO),
        reset_after: Duration::ZERO,
        stamp: 0,
        delay: Duration::ZERO,
    };
}

/// What a store says about one decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    /// Which question `remaining` and `reset_after` are about: the first that denies, or the one with the least left.
    pub(crate) which: usize,
    pub(crate) remaining: u32,
    /// Until every question would be allowed; `None`: never.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reset_after: Duration,
    /// When the permits were taken, by the store's clock in microseconds: with it they can be given back.
    pub(crate) stamp: u64,
    /// Until the turn that an allowed call was given, where it has to wait for one.
    pub(crate) delay: Duration,
}
