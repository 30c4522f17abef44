//! The in-process stand-in: a mirror of what this process admitted, kept warm while the store is well.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
use crate::Source;
use crate::clock::Clock;
use crate::overflow::Overflows;
use crate::store::memory::MemoryStore;
use crate::store::naming::Naming;
use crate::store::{Answer, Question};
use crate::{Error, Key, Limit};

mod marks;

pub(crate) use marks::{Marks, Slots};

/// Decides while the store cannot, and for as long as a permit counts after its last failure has a say beside it: a
/// store that comes back empty would hand out every quota a second time.
///
/// The mirror counts `fixed_window` and `sliding_counter` by the sliding window's log, since their edges are those of the
/// server's clock. So its `remaining`, `retry_after` and `reset_after` for them are the log's.
///
/// Of a limit that several instances share it gives its share away and no more, so that all of them together stay
/// within it. Nothing is written back to the store. What the mirror keeps of an admission is stamped when the store's answer
/// arrives, so it is never older than the store's own.
#[derive(Debug)]
pub(crate) struct Standby {
    mirror: MemoryStore,
    clock: Clock,
    marks: Marks,
    /// Instances that share each limit.
    instances: NonZeroU32,
    /// When it was made in a child of `fork`, in microseconds of the clock; 0 if it was not.
    since: u64,
}

/// What a stand-in is made for.
#[derive(Debug)]
pub(crate) struct Role {
    /// Keys that it keeps apart.
    pub(crate) max_keys: usize,
    /// Instances that share each limit.
    pub(crate) instances: NonZeroU32,
    /// Slots that the store spreads its keys over, or 1.
    pub(crate) slots: u16,
    /// By which it does.
    pub(crate) naming: Arc<Naming>,
}

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
    #[cfg(test)]
    pub(crate) fn new(role: &Role, clock: Clock) -> Self {
        Self::counting(role, clock.clone(), Overflows::new(Source::Standby, role.max_keys, clock))
    }

    /// Counts overflows of the mirror where those of a stand-in before it are counted.
    pub(crate) fn counting(role: &Role, clock: Clock, overflows: Arc<Overflows>) -> Self {
        let mirror = MemoryStore::mirror(role.max_keys, clock.clone(), overflows);
        Self {
            mirror,
            clock,
            marks: Marks::new(role.slots, Arc::clone(&role.naming)),
            instances: role.instances,
            since: 0,
        }
    }

    /// The stand-in of a child of `fork`.
    pub(crate) fn for_child(self) -> Self {
        Self { since: self.clock.now().micros(), ..self }
    }

    /// # Errors
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked), in a child of the process that made it.
    pub(crate) fn decide(&self, questions: &[Question<'_>], patience: Duration) -> Result<Answer, Error> {
        self.shared(questions, |questions| self.mirror.decide_within(questions, patience))
    }

    /// # Errors
    /// As for [`decide`](Self::decide).
    pub(crate) fn peek(&self, questions: &[Question<'_>]) -> Result<Answer, Error> {
        self.shared(questions, |questions| self.mirror.peek(questions))
    }

    /// Puts the questions to the mirror with this instance's share of their limits.
    fn shared(
        &self,
        questions: &[Question<'_>],
        ask: impl FnOnce(&[Question<'_>]) -> Result<Answer, Error>,
    ) -> Result<Answer, Error> {
        if self.instances == NonZeroU32::MIN {
            return ask(questions);
        }
        let share = |limit: Limit| limit.share_of(self.instances);
        let shares: Vec<_> =
            questions.iter().map(|question| Question { limit: share(question.limit), ..*question }).collect();
        let answer = ask(&shares)?;
        let fits = |question: &Question<'_>| question.cost <= question.limit.most_at_once();
        Ok(match (answer.allowed, answer.retry_after) {
            // Too much for a share, but not for the limit: the store may allow it once it is back.
            (false, None) if questions.iter().all(fits) => Answer { retry_after: Some(SOON), ..answer },
            _ => answer,
        })
    }

    /// Notes permits that the stand-in did not grant; gives their stamp.
    ///
    /// Here and below, nothing is done in a child of the process that made it where a lock was held at the fork: the child
    /// has a stand-in of its own.
    pub(crate) fn record(&self, questions: &[Question<'_>]) -> u64 {
        self.mirror.record(questions).unwrap_or(0)
    }

    /// Gives back permits that were taken, held or noted at `stamp`.
    pub(crate) fn refund(&self, questions: &[Question<'_>], stamp: u64) {
        // Permits from before it was made are those of the process that this one was forked from.
        if stamp >= self.since {
            let _ = self.mirror.refund(questions, stamp);
        }
    }

    pub(crate) fn reset(&self, key: &Key, limit: Limit) {
        let _ = self.mirror.reset(key, limit);
    }

    /// The store failed a call, which the stand-in may have admitted then.
    pub(crate) fn call_failed(&self, questions: &[Question<'_>]) {
        self.marks.call_failed(questions, self.clock.now().ceil_millis());
    }
}

/// When a call may try again that nobody can promise anything.
const SOON: Duration = Duration::from_secs(1);

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no store answers beside the stand-in"))]
impl Standby {
    /// The store failed several calls at the same moment.
    pub(crate) fn calls_failed<'q>(&self, questions: impl Iterator<Item = Question<'q>>) {
        let now = self.clock.now().ceil_millis();
        questions.for_each(|question| self.marks.call_failed(&[question], now));
    }

    /// A server may have lost what it knew of its slots.
    pub(crate) fn server_failed(&self, slots: &Slots) {
        self.marks.server_failed(slots, self.clock.now().ceil_millis());
    }

    /// Returns whether the store may have lost permits that the mirror recorded at `stamp`.
    pub(crate) fn may_be_lost(&self, questions: &[Question<'_>], stamp: u64) -> bool {
        self.marks.has_server_failed_since(questions, stamp / 1000)
    }

    /// Asks the stand-in first, if the store failed not so long ago that nothing from before counts.
    pub(crate) fn before(&self, questions: &[Question<'_>], patience: Duration) -> Before {
        if !self.recovering(questions) {
            return Before::StoreAlone;
        }
        match self.decide(questions, patience) {
            Ok(answer) if answer.allowed => Before::Held(answer),
            Ok(answer) => Before::Denied(answer),
            // Only the process that made it has a worker that gets here.
            Err(_) => Before::StoreAlone,
        }
    }

    /// The same for a look, which holds nothing: the stand-in's denial, if it has a say.
    pub(crate) fn objection(&self, questions: &[Question<'_>]) -> Option<Answer> {
        let answer = self.recovering(questions).then(|| self.peek(questions))?.ok()?;
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
            Some(held) if answer.allowed => Ok(self.mirror.renew(questions, held.stamp).unwrap_or(0)),
            Some(held) => {
                self.refund(questions, held.stamp);
                Ok(0)
            }
            None if answer.allowed => {
                // A child of `fork` has a standby limiter of its own.
                let Ok(own) = self.decide(questions, patience) else { return Ok(0) };
                if own.allowed {
                    return Ok(own.stamp);
                }
                self.record_if_store_is_sound(questions).ok_or(own)
            }
            None => Ok(0),
        }
    }

    /// The same for admissions by the store that are of one kind, put in one question, where nothing is held: the stamp of
    /// them all. `None` if the stand-in has had a say since, and would deny one of them.
    pub(crate) fn after_all(&self, question: &Question<'_>) -> Option<u64> {
        let questions = [*question];
        let own = self.decide(&questions, Duration::ZERO).ok()?;
        if own.allowed { Some(own.stamp) } else { self.record_if_store_is_sound(&questions) }
    }

    /// Records permits beyond the mirror's own limit; `None`, and nothing recorded, if the standby limiter is consulted.
    ///
    /// The record comes first. A failure that is marked after it finds the permits here; one that is marked before it is
    /// found here.
    fn record_if_store_is_sound(&self, questions: &[Question<'_>]) -> Option<u64> {
        let stamp = self.record(questions);
        if self.recovering(questions) {
            self.refund(questions, stamp);
            return None;
        }
        Some(stamp)
    }

    fn recovering(&self, questions: &[Question<'_>]) -> bool {
        self.marks.are_recent(questions, self.clock.now().floor_millis())
    }
}

#[cfg(all(test, feature = "redis", feature = "test-util", not(limiter_loom)))]
mod tests;
