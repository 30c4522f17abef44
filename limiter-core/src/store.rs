//! The stores of counters. A store returns its failures; `Guard` applies the failure policy to them.

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
