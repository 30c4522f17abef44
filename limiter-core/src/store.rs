//! The stores of counters. A store returns its failures; `Guard` applies the failure policy to them.

#[cfg(not(feature = "redis"))]
mod absent;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "test-util")]
mod slow;

#[cfg(not(feature = "redis"))]
pub(crate) use absent::RedisStore;
#[cfg(feature = "redis")]
pub(crate) use redis::RedisStore;
#[cfg(feature = "test-util")]
pub(crate) use slow::SlowStore;
