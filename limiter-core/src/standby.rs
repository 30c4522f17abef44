//! The in-process stand-in: a mirror of what this process admitted, kept warm while the store is well.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::store::memory::MemoryStore;
use crate::store::{Answer, Question};
use crate::{Key, Limit};

/// Decides while the store cannot, and for as long as a permit counts after its last failure has a say beside it: a store that comes
/// back empty would hand out every quota a second time.
///
/// Nothing is written back to the store. What the mirror keeps of an admission is stamped when the store's answer
/// arrives, so it is never older than the store's own.
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

    pub(crate) fn decide(&self, questions: &[Question<'_>], patience: Duration) -> Answer {
        self.mirror.decide_within(questions, patience)
    }

    pub(crate) fn peek(&self, questions: &[Question<'_>]) -> Answer {
        self.mirror.peek(questions)
    }

    /// Notes permits that the stand-in did not grant; gives their stamp.
    pub(crate) fn record(&self, questions: &[Question<'_>]) -> u64 {
        self.mirror.record(questions)
    }

    /// Gives back permits that were taken, or noted, at `stamp`.
    pub(crate) fn refund(&self, questions: &[Question<'_>], stamp: u64) {
        self.mirror.refund(questions, stamp);
    }

    /// Gives back permits that the stand-in held for a call that did not get to run.
    pub(crate) fn release(&self, questions: &[Question<'_>], held: &Answer) {
        self.refund(questions, held.stamp);
    }

    pub(crate) fn reset(&self, key: &Key, limit: Limit) {
        self.mirror.reset(key, limit);
    }

    /// The store failed a call, which the stand-in may have admitted then, or may have lost what it knew.
    pub(crate) fn store_failed(&self) {
        // Of several at once the latest stands.
        self.failed_at.fetch_max(self.clock.now().ceil_millis().max(NEVER + 1), Ordering::AcqRel);
    }
}

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no store answers beside the stand-in"))]
impl Standby {
    /// Asks the stand-in first, if the store failed not so long ago that nothing from before counts.
    pub(crate) fn before(&self, questions: &[Question<'_>], patience: Duration) -> Before {
        if !self.recovering(questions) {
            return Before::StoreAlone;
        }
        let answer = self.mirror.decide_within(questions, patience);
        if answer.allowed { Before::Held(answer) } else { Before::Denied(answer) }
    }

    /// The same for a look, which holds nothing: the stand-in's denial, if it has a say.
    pub(crate) fn objection(&self, questions: &[Question<'_>]) -> Option<Answer> {
        let answer = self.recovering(questions).then(|| self.mirror.peek(questions))?;
        (!answer.allowed).then_some(answer)
    }

    /// Squares the mirror with the store's answer; gives the mirror's stamp of what was taken.
    ///
    /// # Errors
    /// The stand-in's denial, if it has had a say since the call was sent: meanwhile it may have admitted others.
    pub(crate) fn after(
        &self,
        questions: &[Question<'_>],
        patience: Duration,
        held: Option<&Answer>,
        answer: &Answer,
    ) -> Result<u64, Answer> {
        match held {
            // The store's stamp is younger than the hold.
            Some(held) if answer.allowed => Ok(self.mirror.renew(questions, held.stamp)),
            Some(held) => {
                self.release(questions, held);
                Ok(0)
            }
            None if answer.allowed => {
                // Taken first and judged then: whoever asks the stand-in meanwhile sees it.
                let own = self.mirror.decide_within(questions, patience);
                match own.allowed {
                    true => Ok(own.stamp),
                    false if self.recovering(questions) => Err(own),
                    false => Ok(self.record(questions)),
                }
            }
            None => Ok(0),
        }
    }

    fn recovering(&self, questions: &[Question<'_>]) -> bool {
        let longest = questions.iter().map(|question| question.limit.memory_millis()).max();
        match (self.failed_at.load(Ordering::Acquire), longest) {
            (NEVER, _) | (_, None) => false,
            (failed_at, Some(memory)) => failed_at.saturating_add(memory) > self.clock.now().floor_millis(),
        }
    }
}
