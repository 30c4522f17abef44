//! All contestants, one file each.

mod bare_get;
mod governor;
mod multi;
mod ours;
mod scripts;
mod skp;
mod throttlecrab;
mod tower_redis;
mod trypema_hybrid;
mod trypema_local;
mod trypema_redis;

pub mod attribute;
pub mod versions;

use crate::contestant::{Entry, Place};

/// The sorted set that is trimmed first: the design that most limiters on Redis use.
pub const ZSET: &str = "ZSET log";
/// A script call that does nothing.
pub const BARE_SCRIPT: &str = "bare `return 1`";
/// The reference of the bars in process.
pub const GOVERNOR: &str = "governor";
/// The fastest peer on Redis that keeps no counters elsewhere.
pub const TOWER_REDIS: &str = "tower-rate-limit-redis";

/// All contestants, in the order of the tables.
const ALL: [Entry; 17] = [
    ours::IN_PROCESS,
    governor::ENTRY,
    trypema_local::ENTRY,
    throttlecrab::ENTRY,
    skp::IN_PROCESS,
    ours::REDIS,
    trypema_redis::ENTRY,
    trypema_hybrid::ENTRY,
    tower_redis::ENTRY,
    skp::REDIS,
    scripts::ZSET,
    scripts::LAZY_ZSET,
    multi::ENTRY,
    scripts::HASH,
    scripts::LIST,
    scripts::BARE,
    bare_get::ENTRY,
];

/// The contestants of the cases of leases: with leases, without, and the peer that counts in process.
#[cfg(feature = "leases")]
pub const LEASED: [Entry; 3] = [ours::LEASES, ours::REDIS, trypema_hybrid::ENTRY];

/// Returns the contestants whose bytes of a key are compared: the sliding window here, and the published layouts of one.
#[must_use]
pub fn layouts() -> [Entry; 3] {
    [ours::PATIENT, scripts::HASH, scripts::LAZY_ZSET]
}

/// Returns the contestants that keep their counters in one place.
#[must_use]
pub fn counting_in(place: Place) -> Vec<Entry> {
    ALL.into_iter().filter(|entry| entry.place == place).collect()
}
