//! Where the counts are kept. A store reports; what to do about its failures is the guard's.

use std::time::Duration;

pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(not(feature = "redis"))]
mod absent;

#[cfg(not(feature = "redis"))]
pub(crate) use absent::RedisStore;
#[cfg(feature = "redis")]
pub(crate) use redis::RedisStore;

/// What a store says about one question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) remaining: u32,
    /// `None`: never.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reset_after: Duration,
    /// The permits' stamp by the store's clock, in milliseconds: with it they can be given back.
    pub(crate) stamp: u64,
}
