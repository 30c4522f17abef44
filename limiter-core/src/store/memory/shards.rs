//! The shards of a store, each under a lock of its own.

use std::hint::spin_loop;
use std::sync::atomic::AtomicU32;

use crate::store::memory::shard::Shard;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, process};

/// The attempts to take a lock before the call reads the process id. A decision under the lock takes less time.
const SPINS: u32 = if cfg!(all(test, limiter_loom)) { 0 } else { 100 };

/// The shards, with what is needed to detect a lock that a fork has left taken.
#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[LockedShard]>,
    /// True after a wait for the lock has timed out.
    orphaned: Box<[AtomicBool]>,
    /// The process that last waited for a lock and got it; at first the one that created it. In that process every
    /// holder of the lock is a running thread.
    homes: Box<[AtomicU32]>,
}

/// A shard under its lock. It shares no cache line with another one, and its lock is in the line of its first fields.
#[derive(Debug)]
#[repr(align(64))]
struct LockedShard(Mutex<Shard>);

impl Shards {
    pub(super) fn new(count: usize, shard: impl Fn() -> Shard) -> Self {
        let here = process::id();
        Self {
            shards: (0..count).map(|_| LockedShard(Mutex::new(shard()))).collect(),
            orphaned: (0..count).map(|_| AtomicBool::new(false)).collect(),
            homes: (0..count).map(|_| AtomicU32::new(here)).collect(),
        }
    }

    /// Changes the shards to what a child of `fork` inherits.
    #[cfg(all(test, not(limiter_loom)))]
    pub(super) fn simulate_fork(&self) {
        self.homes.iter().for_each(|home| home.store(0, Ordering::Relaxed));
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    /// Locks a shard if no other thread has locked it.
    #[inline(always)]
    pub(super) fn try_lock(&self, index: usize) -> Option<MutexGuard<'_, Shard>> {
        self.shards[index].0.try_lock().ok()
    }

    /// Locks a shard. `None` in a child of `fork`, if another thread of the parent held the lock at the fork.
    #[inline]
    pub(super) fn lock(&self, index: usize) -> Option<MutexGuard<'_, Shard>> {
        self.try_lock(index).or_else(|| self.lock_contended(index))
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, index: usize) -> Option<MutexGuard<'_, Shard>> {
        for _ in 0..SPINS {
            spin_loop();
            if let Ok(shard) = self.shards[index].0.try_lock() {
                return Some(shard);
            }
        }
        let (orphaned, home) = (&self.orphaned[index], &self.homes[index]);
        // After one call has timed out, later ones wait for a shorter time.
        let max_wait =
            if orphaned.load(Ordering::Relaxed) { process::ORPHANED_LOCK_TIMEOUT } else { process::LOCK_TIMEOUT };
        let shard = process::lock_contended(&self.shards[index].0, home.load(Ordering::Relaxed), max_wait);
        if shard.is_some() {
            home.store(process::id(), Ordering::Relaxed);
        }
        if shard.is_none() != orphaned.load(Ordering::Relaxed) {
            orphaned.store(shard.is_none(), Ordering::Relaxed);
        }
        shard
    }
}
