//! One part of the embedded store: a bounded map of counts under one lock.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use indexmap::{Equivalent, IndexMap};

use crate::algorithm::{Ask, Outcome, Span, State};

/// Keys, each with what it has taken, and the hand that goes round to collect the expired ones.
#[derive(Debug)]
pub(super) struct Shard {
    states: IndexMap<Subject, State, BuildHasherDefault<Given>>,
    capacity: usize,
    hand: usize,
    /// What newcomers share while every place is taken by a key that still counts: by place and span.
    shared: HashMap<(u64, Span), State>,
}

/// Slots looked at by every call that adds a key: more than one, so that collecting outruns filling.
const STEP: usize = 2;
/// Slots looked at before a newcomer is sent to the shared counts.
const SEARCH: usize = 16;
/// Shared counts in one shard for each span in use, 65 536 in the store. Those who share one together take what one
/// of them may take: a newcomer can be denied early, and nobody is ever admitted too much.
const SHARED: u64 = 1024;
/// Shared counts in one shard, for all spans together: a program that makes up windows as it goes has no end of them.
const MOST_SHARED: usize = 16 * 1024;

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        Self { states: IndexMap::default(), capacity: capacity.max(1), hand: 0, shared: HashMap::new() }
    }

    /// Runs `decide` on what a key has taken. Only a decision that takes something makes the key known.
    pub(super) fn with_state(
        &mut self,
        subject: String,
        hash: u64,
        ask: &Ask,
        decide: impl FnOnce(&mut State, &Ask) -> Outcome,
    ) -> Outcome {
        if let Some(state) = self.states.get_mut(&Wanted { subject: &subject, span: ask.span, hash }) {
            return decide(state, ask);
        }
        self.collect(STEP, ask.floor);
        if self.states.len() >= self.capacity {
            self.collect(SEARCH, ask.floor);
        }
        let place = (hash % SHARED, ask.span);
        // A key that has shared a count stays with it while that lasts, or it would have its quota twice.
        let shares = self.shared.get(&place).is_some_and(|state| state.dead_at(ask.span.window) > ask.floor);
        let fresh = || State::new(ask.span.algorithm);
        if let Some(state) = self.shared.get_mut(&place).filter(|_| shares) {
            return decide(state, ask);
        }
        let full = self.states.len() >= self.capacity;
        if full && self.shared.len() >= MOST_SHARED {
            return denied(ask);
        }
        let mut state = fresh();
        let outcome = decide(&mut state, ask);
        if state.dead_at(ask.span.window) > ask.floor {
            if full {
                self.shared.insert(place, state);
            } else {
                self.states.insert(Subject { subject: subject.into(), span: ask.span, hash }, state);
            }
        }
        outcome
    }

    pub(super) fn remove(&mut self, subject: &str, span: Span, hash: u64) {
        self.states.swap_remove(&Wanted { subject, span, hash });
    }

    /// Looks at the next few keys and drops those whose permits have all come back.
    fn collect(&mut self, slots: usize, now: u64) {
        for _ in 0..slots {
            let Some((key, state)) = self.states.get_index(self.hand) else {
                self.hand = 0;
                self.shared.retain(|(_, span), state| state.dead_at(span.window) > now);
                return;
            };
            if state.dead_at(key.span.window) <= now {
                self.states.swap_remove_index(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }
}

/// What is left when even the shared counts are all taken: nothing can be counted, so nothing is admitted.
fn denied(ask: &Ask) -> Outcome {
    let later = (ask.floor + ask.span.window) * 1000;
    Outcome { allowed: false, remaining: 0, retry_at: Some(later), reset_at: later, delay: 0 }
}

/// A key of the map, with the hash it was found by.
#[derive(PartialEq, Eq)]
struct Subject {
    subject: Box<str>,
    span: Span,
    hash: u64,
}

/// A key to look for, borrowed.
struct Wanted<'a> {
    subject: &'a str,
    span: Span,
    hash: u64,
}

impl Equivalent<Subject> for Wanted<'_> {
    fn equivalent(&self, key: &Subject) -> bool {
        *self.subject == *key.subject && self.span == key.span
    }
}

impl fmt::Debug for Subject {
    /// Without what the key contains.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("span", &self.span).finish_non_exhaustive()
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
