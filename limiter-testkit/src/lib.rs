//! What the tests of `rate-limited` stand on. Unpublished, Unix only, and without a Redis client or a runtime, so that
//! it shares no fault with what it tests.
//!
//! | to have | take |
//! |---|---|
//! | a real Redis that is yours and gone afterwards | [`RedisServer::start`], [`RedisServer::builder`] |
//! | a real Redis for every test that only needs keys of its own | [`RedisServer::shared`] with [`unique`] |
//! | a network that fails | [`Proxy`] |
//! | what a sliding window must answer | [`Oracle`] |
//! | what the other algorithms must answer | [`FixedWindowOracle`], [`SlidingCounterOracle`], [`TokenBucketOracle`], [`LeakyBucketOracle`] |
//! | schedules that can be repeated | [`Random`] |
//! | whether a recorded concurrent run kept its limit | [`history`] |

pub mod history;
mod oracle;
mod proxy;
mod random;
mod resp;
mod server;
mod socket;

pub use oracle::{FixedWindowOracle, LeakyBucketOracle, Oracle, SlidingCounterOracle, TokenBucketOracle, Verdict};
pub use proxy::Proxy;
pub use random::Random;
pub use resp::{Client, Reply};
pub use server::{RedisServer, RedisServerBuilder, unique};
pub use socket::Address;
