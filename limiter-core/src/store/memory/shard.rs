//! One part of the embedded store: a bounded map of logs under one lock.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use indexmap::{Equivalent, IndexMap};

use crate::algorithm::sliding_window::{Ask, Log, Outcome};

/// Keys, each with its log, and the hand that goes round to collect the expired ones.
#[derive(Debug)]
pub(super) struct Shard {
    logs: IndexMap<Subject, Log, BuildHasherDefault<Given>>,
    capacity: usize,
    hand: usize,
    /// What newcomers share while every place is taken by a key that still counts: by place and window.
    shared: HashMap<(u64, u64), Log>,
}

/// Slots looked at by every call that adds a key: more than one, so that collecting outruns filling.
const STEP: usize = 2;
/// Slots looked at before a newcomer is sent to the shared logs.
const SEARCH: usize = 16;
/// Shared logs in one shard for each window in use, 65 536 in the store. Those who share one together take what one
/// of them may take: a newcomer can be denied early, and nobody is ever admitted too much.
const SHARED: u64 = 1024;

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        Self { logs: IndexMap::default(), capacity: capacity.max(1), hand: 0, shared: HashMap::new() }
    }

    /// Runs `decide` on the log of a key. Only a decision that takes something makes the key known.
    pub(super) fn with_log(
        &mut self,
        subject: String,
        hash: u64,
        ask: &Ask,
        decide: impl FnOnce(&mut Log, &Ask) -> Outcome,
    ) -> Outcome {
        if let Some(log) = self.logs.get_mut(&Wanted { subject: &subject, window: ask.window, hash }) {
            return decide(log, ask);
        }
        self.collect(STEP, ask.floor);
        if self.logs.len() >= self.capacity {
            self.collect(SEARCH, ask.floor);
        }
        let place = (hash % SHARED, ask.window);
        // A key that has shared a log stays with it while that counts, or it would have its quota twice.
        let shares = self.shared.get(&place).is_some_and(|log| log.dead_at(ask.window) > ask.floor);
        if shares || self.logs.len() >= self.capacity {
            return decide(self.shared.entry(place).or_default(), ask);
        }
        let mut log = Log::default();
        let outcome = decide(&mut log, ask);
        if log.dead_at(ask.window) > ask.floor {
            self.logs.insert(Subject { subject: subject.into(), window: ask.window, hash }, log);
        }
        outcome
    }

    pub(super) fn remove(&mut self, subject: &str, window: u64, hash: u64) {
        self.logs.swap_remove(&Wanted { subject, window, hash });
    }

    /// Looks at the next few keys and drops those whose permits have all come back.
    fn collect(&mut self, slots: usize, now: u64) {
        for _ in 0..slots {
            let Some((key, log)) = self.logs.get_index(self.hand) else {
                self.hand = 0;
                self.shared.retain(|(_, window), log| log.dead_at(*window) > now);
                return;
            };
            if log.dead_at(key.window) <= now {
                self.logs.swap_remove_index(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.logs.len()
    }
}

/// A key of the map, with the hash it was found by.
#[derive(Debug, PartialEq, Eq)]
struct Subject {
    subject: Box<str>,
    window: u64,
    hash: u64,
}

/// A key to look for, borrowed.
struct Wanted<'a> {
    subject: &'a str,
    window: u64,
    hash: u64,
}

impl Equivalent<Subject> for Wanted<'_> {
    fn equivalent(&self, key: &Subject) -> bool {
        *self.subject == *key.subject && self.window == key.window
    }
}

impl Hash for Subject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for Wanted<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Passes on the hash that the store has computed already, with a key that nobody outside knows.
#[derive(Debug, Default)]
struct Given(u64);

impl Hasher for Given {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
