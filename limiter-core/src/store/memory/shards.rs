//! The shards, each under its lock.

use std::hint::spin_loop;
use std::sync::atomic::AtomicU32;

use crate::store::memory::shard::Shard;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, process};

/// Attempts to take a lock before it is found out which process this is: a decision takes less time.
const SPINS: u32 = if cfg!(all(test, limiter_loom)) { 0 } else { 100 };

#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[Mutex<Shard>]>,
    /// Whether a lock was found taken for good.
    orphaned: Box<[AtomicBool]>,
    /// The process in which a lock was last waited for and taken; at first the one that made it. There it is released by
    /// whoever holds it.
    homes: Box<[AtomicU32]>,
}

impl Shards {
    pub(super) fn new(count: usize, shard: impl Fn() -> Shard) -> Self {
        let here = process::id();
        Self {
            shards: (0..count).map(|_| Mutex::new(shard())).collect(),
            orphaned: (0..count).map(|_| AtomicBool::new(false)).collect(),
            homes: (0..count).map(|_| AtomicU32::new(here)).collect(),
        }
    }

    /// As a child of the process that made it sees it.
    #[cfg(all(test, not(limiter_loom)))]
    pub(super) fn of_another_process(&self) {
        self.homes.iter().for_each(|home| home.store(0, Ordering::Relaxed));
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    /// Locks a shard that no other thread has locked.
    #[inline(always)]
    pub(super) fn try_lock(&self, index: usize) -> Option<MutexGuard<'_, Shard>> {
        self.shards[index].try_lock().ok()
    }

    /// Locks a shard. `None` in a child of the process that made it, if a thread that is not here held the lock at the fork.
    #[inline]
    pub(super) fn lock(&self, index: usize) -> Option<MutexGuard<'_, Shard>> {
        self.try_lock(index).or_else(|| self.lock_contended(index))
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, index: usize) -> Option<MutexGuard<'_, Shard>> {
        for _ in 0..SPINS {
            spin_loop();
            if let Ok(shard) = self.shards[index].try_lock() {
                return Some(shard);
            }
        }
        let (orphaned, home) = (&self.orphaned[index], &self.homes[index]);
        // Where it was waited for in vain, other calls are not to wait as long.
        let max_wait = if orphaned.load(Ordering::Relaxed) { process::SHORT_PATIENCE } else { process::PATIENCE };
        let shard = process::lock_contended(&self.shards[index], home.load(Ordering::Relaxed), max_wait);
        if shard.is_some() {
            home.store(process::id(), Ordering::Relaxed);
        }
        if shard.is_none() != orphaned.load(Ordering::Relaxed) {
            orphaned.store(shard.is_none(), Ordering::Relaxed);
        }
        shard
    }
}
