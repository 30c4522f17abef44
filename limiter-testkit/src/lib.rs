//! What the tests of `rate-limited` stand on. Unpublished, Unix only, and without a Redis client or a runtime, so that
//! it shares no fault with what it tests. (The features `faults` and `attack` have both: they run the limiter itself.)
//!
//! | to have | take |
//! |---|---|
//! | a real Redis that is yours and gone afterwards | [`RedisServer::start`], [`RedisServer::builder`] |
//! | a real Redis for every test that only needs keys of its own | [`RedisServer::shared`] with [`unique`] |
//! | the same, with keys that never expire, for a clock that a test moves | [`RedisServer::timeless`] |
//! | a network that fails | [`Proxy`] |
//! | host names whose look-up never ends | [`HangingNames`] |
//! | masters and replicas that share the keys | [`Cluster`] |
//! | a master, its replica, and sentinels that replace it | [`Sentinels`] |
//! | a process that forks | [`ForkLibrary`], [`fork()`] |
//! | what a sliding window must answer | [`Oracle`] |
//! | what the other algorithms must answer | [`FixedWindowOracle`], [`SlidingCounterOracle`], [`TokenBucketOracle`], [`LeakyBucketOracle`] |
//! | schedules that can be repeated | [`Random`] |
//! | whether a recorded concurrent run kept its limit, and denied nothing that had room | [`history`] |
//! | times in which the machine itself stood still | [`stalls`] |
//! | a long run that is a short one by default | [`full_or`], [`is_full`] |
//! | what a fault does to a limiter under load, measured | `faults`, by the feature of that name |
//! | random schedules against the oracles, and attacks of many kinds for hours | `schedule` and `attack`, by the feature `attack` |

#[cfg(feature = "attack")]
pub mod attack;
mod cluster;
#[cfg(feature = "faults")]
pub mod faults;
mod fork;
mod full;
pub mod history;
mod names;
mod nodes;
mod oracle;
mod preload;
mod proxy;
mod random;
mod resp;
#[cfg(feature = "attack")]
pub mod schedule;
mod sentinel;
mod server;
mod socket;
pub mod stalls;
mod wait;

pub use cluster::{Cluster, ClusterBuilder, Migration, SLOTS, slot_of};
pub use fork::{Child, Ended, ForkLibrary, fork};
pub use full::{full_or, is_full};
pub use names::HangingNames;
pub use nodes::{NodeId, Promotion};
pub use oracle::{FixedWindowOracle, LeakyBucketOracle, Oracle, SlidingCounterOracle, TokenBucketOracle, Verdict};
pub use proxy::Proxy;
pub use random::Random;
pub use resp::{Client, Reply};
pub use sentinel::{Sentinels, SentinelsBuilder};
pub use server::{RedisServer, RedisServerBuilder, unique};
pub use socket::Address;
