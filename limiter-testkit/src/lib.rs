//! The test tools of `rate-limited`. The crate is unpublished and for Unix only. It has no Redis client and no runtime,
//! so that it shares no fault with the code that it tests. Runs of the limiter itself are in `limiter-chaos`.
//!
//! | need | tool |
//! |---|---|
//! | a Redis server of one test, removed afterwards | [`RedisServer::start`], [`RedisServer::builder`] |
//! | a Redis server that all tests share, each with its own keys | [`RedisServer::shared`] with [`unique`] |
//! | a shared server on which no key expires, for tests with a manual clock | [`RedisServer::timeless`] |
//! | a network that fails | [`Proxy`] |
//! | host names whose look-up never ends | [`HangingNames`] |
//! | a Redis Cluster | [`Cluster`] |
//! | a master, its replica and three sentinels | [`Sentinels`] |
//! | limiters that live, by their heartbeats and their activity | [`LiveLimiters`] |
//! | a process that forks | [`ForkLibrary`], [`fork()`] |
//! | the expected decisions of a sliding window | [`Oracle`] |
//! | the expected decisions of a fixed window | [`FixedWindowOracle`] |
//! | the expected decisions of a sliding counter | [`SlidingCounterOracle`] |
//! | the expected decisions of the two buckets | [`TokenBucketOracle`], [`LeakyBucketOracle`] |
//! | repeatable random numbers | [`Random`] |
//! | a check of the admissions and denials of a recorded concurrent run | [`history`] |
//! | the times in which the whole machine stalled | [`stalls`] |
//! | a condition that holds after a while | [`poll_until`] |
//! | a long run on request, a short one by default | [`full_or`], [`is_full`] |

mod cluster;
mod fork;
mod full;
pub mod history;
mod live;
mod names;
mod nodes;
mod oracle;
mod preload;
mod proxy;
mod random;
mod resp;
mod sentinel;
mod server;
mod socket;
pub mod stalls;
#[cfg(test)]
mod tls_client;
mod wait;

pub use cluster::{Cluster, ClusterBuilder, Migration, SLOTS, slot_of};
pub use fork::{Child, Ended, ForkLibrary, fork};
pub use full::{full_or, is_full};
pub use live::LiveLimiters;
pub use names::HangingNames;
pub use nodes::{NodeId, Promotion};
pub use oracle::{
    Charged, FixedWindowOracle, LeakyBucketOracle, Oracle, SlidingCounterOracle, TokenBucketOracle, Verdict,
};
pub use proxy::Proxy;
pub use random::Random;
pub use resp::{Client, Reply};
pub use sentinel::{Sentinels, SentinelsBuilder};
pub use server::{RedisServer, RedisServerBuilder, unique};
pub use socket::Address;
pub use wait::poll_until;
