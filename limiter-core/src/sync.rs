//! The locks and atomics of data that threads share: the standard library's, or loom's in its models.
//!
//! Loom runs each model in every possible interleaving of its threads; see `loom_models`.

use std::sync::atomic::AtomicU64 as StdAtomicU64;
use std::sync::{LazyLock, PoisonError, TryLockError};

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

/// Locks a mutex. A panic under the lock leaves a valid value, so a poisoned one is used.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading: see [`lock`].
#[inline]
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing: see [`lock`].
#[inline]
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the guard of an attempt to lock, unless another thread holds the lock.
pub(crate) fn unless_blocked<G>(attempt: Result<G, TryLockError<G>>) -> Option<G> {
    match attempt {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

pub(crate) mod process;
#[cfg(all(test, limiter_loom))]
mod loom_models;
