//! Where the counts are kept. A store reports; what to do about its failures is the guard's.

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
