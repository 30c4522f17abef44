//! The locks and atomics of data that threads share: the standard library's, or loom's in its models.
//!
//! Loom runs each model in every possible interleaving of its threads; see `loom_models`.

use std::sync::LazyLock;
use std::sync::atomic::AtomicU64 as StdAtomicU64;

#[cfg(not(all(test, limiter_loom)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(all(test, limiter_loom))]
pub(crate) use loom::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

/// A random seed: hashes differ between processes, so a client cannot choose keys that collide.
#[cfg(not(test))]
pub(crate) use foldhash::quality::RandomState as Seed;

/// A fixed seed, so that tests can be repeated.
#[cfg(test)]
pub(crate) use foldhash::quality::FixedState as Seed;

/// Returns the process's seed of key hashes. It is the same for all stores, because constant keys cache their hash.
pub(crate) fn seed() -> Seed {
    static SEED: LazyLock<Seed> = LazyLock::new(Seed::default);
    SEED.clone()
}

/// Returns a number that no earlier call in this process has returned.
pub(crate) fn next_id() -> u64 {
    // Loom's atomics cannot be static.
    static NEXT: StdAtomicU64 = StdAtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) mod process;
#[cfg(all(test, limiter_loom))]
mod loom_models;
