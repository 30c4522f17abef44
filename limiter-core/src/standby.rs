//! The in-process stand-in: a mirror of what this process admitted, kept warm while the store is well.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::store::Answer;
use crate::store::memory::{MemoryStore, Question};
use crate::{Error, ErrorKind, Key, Limit};

/// Decides while the store cannot, and for one window after its last failure has a say beside it: a store that comes
/// back empty would hand out every quota a second time.
///
/// Nothing is written back to the store. The mirror's stamps are taken when the store's answer arrives, so they are
/// never older than the store's own.
#[derive(Debug)]
pub(crate) struct Standby {
    mirror: MemoryStore,
    clock: Clock,
    /// When the store last failed, in milliseconds of the clock; [`NEVER`] if it has not.
    failed_at: AtomicU64,
}

const NEVER: u64 = 0;

/// What the stand-in says before the store is asked.
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no store answers beside the stand-in"))]
#[derive(Debug)]
pub(crate) enum Before {
    /// The store decides alone.
    StoreAlone,
    /// The stand-in holds the permits for the call; the store must agree.
    Held(Answer),
    /// The stand-in says no, and that is enough.
    Denied(Answer),
}

impl Standby {
    pub(crate) fn new(capacity: usize, clock: Clock) -> Self {
        let mirror = MemoryStore::new(capacity, clock.clone());
        Self { mirror, clock, failed_at: AtomicU64::new(NEVER) }
    }

    pub(crate) fn decide(&self, question: Question<'_>) -> Answer {
        self.mirror.decide(question)
    }

    pub(crate) fn peek(&self, question: Question<'_>) -> Answer {
        self.mirror.peek(question)
    }

    /// Notes permits that the stand-in did not grant.
    pub(crate) fn record(&self, question: Question<'_>) {
        self.mirror.record(question);
    }

    /// Gives back permits that the stand-in held for a call that did not get to run.
    pub(crate) fn release(&self, question: Question<'_>, held: &Answer) {
        self.mirror.refund(question, held.stamp);
    }

    pub(crate) fn reset(&self, key: &Key, limit: Limit) {
        self.mirror.reset(key, limit);
    }

    /// A call failed. What is wrong with its key alone says nothing of the others.
    pub(crate) fn call_failed(&self, error: &Error) {
        if error.is_transient() || error.kind() == ErrorKind::Refused {
            self.store_failed();
        }
    }

    /// The store failed, or may have lost what it knew.
    pub(crate) fn store_failed(&self) {
        // Of several at once the latest stands.
        self.failed_at.fetch_max(self.clock.now().ceil_millis().max(NEVER + 1), Ordering::AcqRel);
    }
}

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no store answers beside the stand-in"))]
impl Standby {
    /// Asks the stand-in first, if the store failed less than a window ago.
    pub(crate) fn before(&self, question: Question<'_>) -> Before {
        if !self.recovering(question.limit) {
            return Before::StoreAlone;
        }
        let answer = self.mirror.decide(question);
        if answer.allowed { Before::Held(answer) } else { Before::Denied(answer) }
    }

    /// The same for a look, which holds nothing: the stand-in's denial, if it has a say.
    pub(crate) fn objection(&self, question: Question<'_>) -> Option<Answer> {
        let answer = self.recovering(question.limit).then(|| self.mirror.peek(question))?;
        (!answer.allowed).then_some(answer)
    }

    /// Squares the mirror with the store's answer.
    pub(crate) fn after(&self, question: Question<'_>, held: Option<&Answer>, answer: &Answer) {
        match held {
            Some(held) if !answer.allowed => self.release(question, held),
            None if answer.allowed => self.record(question),
            _ => {}
        }
    }

    fn recovering(&self, limit: Limit) -> bool {
        match self.failed_at.load(Ordering::Acquire) {
            NEVER => false,
            failed_at => failed_at + limit.window_millis() > self.clock.now().floor_millis(),
        }
    }
}
