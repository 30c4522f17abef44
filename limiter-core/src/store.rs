//! The stores of counters. A store returns its failures; `Guard` applies the failure policy to them.

pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "test-util")]
mod slow;

#[cfg(feature = "redis")]
pub(crate) use redis::RedisStore;
#[cfg(feature = "test-util")]
pub(crate) use slow::SlowStore;
