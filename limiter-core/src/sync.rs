//! Locks and atomics of what several threads share: the standard library's, or loom's where it checks them.
//!
//! Loom runs a model again and again, through every order in which its threads may go on; see `loom_models`.

use std::sync::LazyLock;

#[cfg(not(all(test, limiter_loom)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};

#[cfg(all(test, limiter_loom))]
pub(crate) use loom::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};

/// What makes the hashes of one process unlike those of another, so that nobody can choose keys that collide.
#[cfg(not(test))]
pub(crate) use foldhash::quality::RandomState as Seed;

/// The same in every run of a test, so that it can be repeated.
#[cfg(test)]
pub(crate) use foldhash::quality::FixedState as Seed;

/// The one seed by which keys are hashed: a hash of the program's own text is kept beside it.
pub(crate) fn seed() -> Seed {
    static SEED: LazyLock<Seed> = LazyLock::new(Seed::default);
    SEED.clone()
}

pub(crate) mod process;
#[cfg(all(test, limiter_loom))]
mod loom_models;
