//! The shards, each under its lock.

use std::process;

use super::shard::Shard;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, process as forks};

#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[Mutex<Shard>]>,
    /// Whether a lock was found taken for good.
    orphaned: Box<[AtomicBool]>,
    /// The process that made them.
    pub(super) home: u32,
}

impl Shards {
    pub(super) fn new(count: usize, shard: impl Fn() -> Shard) -> Self {
        Self {
            shards: (0..count).map(|_| Mutex::new(shard())).collect(),
            orphaned: (0..count).map(|_| AtomicBool::new(false)).collect(),
            home: process::id(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    /// Locks a shard. `None` in a child of the process that made it, if a thread that is not here held the lock at the fork.
    #[inline(always)]
    pub(super) fn lock(&self, index: usize) -> Option<MutexGuard<'_, Shard>> {
        match self.shards[index].try_lock() {
            Ok(shard) => Some(shard),
            Err(_) => self.lock_contended(index),
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, index: usize) -> Option<MutexGuard<'_, Shard>> {
        let orphaned = &self.orphaned[index];
        // Where it was waited for in vain, other calls are not to wait as long.
        let patience = if orphaned.load(Ordering::Relaxed) { forks::SHORT_PATIENCE } else { forks::PATIENCE };
        let shard = forks::lock_contended(&self.shards[index], self.home, patience);
        if shard.is_none() != orphaned.load(Ordering::Relaxed) {
            orphaned.store(shard.is_none(), Ordering::Relaxed);
        }
        shard
    }
}
