//! The embedded store: sharded maps of logs, bounded, with expired keys collected a few at a time.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::algorithm::sliding_window::{Ask, Log, Outcome};
use crate::clock::{Clock, Moment};
use crate::store::Answer;
use crate::{Key, Limit};

mod shard;

use shard::Shard;

/// Counts in this process.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    clock: Clock,
}

/// One question to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) key: &'a Key,
    pub(crate) limit: Limit,
    pub(crate) cost: u32,
}

const SHARDS: usize = 64;

impl MemoryStore {
    /// A store that keeps up to `capacity` keys apart; those beyond share a fixed number of logs.
    pub(crate) fn new(capacity: usize, clock: Clock) -> Self {
        let capacity = capacity.div_ceil(SHARDS);
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(capacity))).collect();
        Self { shards, hasher: RandomState::new(), clock }
    }

    /// Decides, and takes the permits if they fit.
    pub(crate) fn decide(&self, question: Question<'_>) -> Answer {
        self.with_log(question, |log, ask| log.decide(ask))
    }

    /// What [`decide`](Self::decide) would say, taking nothing.
    pub(crate) fn peek(&self, question: Question<'_>) -> Answer {
        self.with_log(question, |log, ask| log.peek(ask))
    }

    /// Takes the permits whether they fit or not: another store has admitted them.
    pub(crate) fn record(&self, question: Question<'_>) {
        self.with_log(question, |log, ask| {
            log.record(ask);
            log.peek(ask)
        });
    }

    /// Gives back permits taken at `stamp`.
    pub(crate) fn refund(&self, question: Question<'_>, stamp: u64) {
        self.with_log(question, |log, ask| {
            log.refund(ask, stamp);
            log.peek(ask)
        });
    }

    /// Forgets what a key has taken.
    pub(crate) fn reset(&self, key: &Key, limit: Limit) {
        let subject = key.subject().to_string();
        let (shard, hash) = self.shard(&subject, limit);
        shard.lock().unwrap_or_else(PoisonError::into_inner).remove(&subject, limit.window_millis(), hash);
    }

    fn with_log(&self, question: Question<'_>, decide: impl FnOnce(&mut Log, &Ask) -> Outcome) -> Answer {
        let subject = question.key.subject().to_string();
        let (shard, hash) = self.shard(&subject, question.limit);
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that the stamps of one log never go back.
        let now = self.clock.now();
        let ask = question.ask(now);
        let outcome = shard.with_log(subject, hash, &ask, decide);
        drop(shard);
        answer(&outcome, now)
    }

    fn shard(&self, subject: &str, limit: Limit) -> (&Mutex<Shard>, u64) {
        let hash = self.hasher.hash_one((subject, limit.window_millis()));
        // The top bits: the map inside a shard uses the others.
        let index = usize::try_from(hash >> 58).unwrap_or(0);
        (&self.shards[index % SHARDS], hash)
    }
}

impl Question<'_> {
    fn ask(&self, now: Moment) -> Ask {
        Ask {
            floor: now.floor_millis(),
            ceil: now.ceil_millis(),
            window: self.limit.window_millis(),
            max: self.limit.max(),
            cost: self.cost,
        }
    }
}

fn answer(outcome: &Outcome, now: Moment) -> Answer {
    Answer {
        allowed: outcome.allowed,
        remaining: outcome.remaining,
        retry_after: outcome.retry_at.map(|at| now.until_millis(at)),
        reset_after: now.until_millis(outcome.reset_at),
        stamp: outcome.stamp,
    }
}

#[cfg(test)]
mod tests;
