//! Denials that are known to last: until when, so that nobody need be asked before.
//!
//! A store that denies names the first instant at which its answer can change. Until then this process answers by itself:
//! a flood of one key costs the store nothing. What other processes free meanwhile, by a refund or a reset, cannot be seen
//! from here, so after a while it is asked all the same. What this process frees is forgotten here at once.
//!
//! Only a denial is ever remembered, so nobody is admitted by this. And only one that stays true in all it says: a call that
//! wants one permit more than there is. For one that wants several more, permits come back before it fits.

use std::hash::BuildHasher;
use std::sync::PoisonError;
use std::time::Duration;

use crate::algorithm::Span;
use crate::clock::{Clock, Moment};
use crate::store::{Answer, Question};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, Seed};
use crate::{Key, Limit};

/// A fixed number of places, each for the denials of one count: of those that share it, the latest.
#[derive(Debug)]
pub(crate) struct DeniedUntil {
    places: Box<[Place]>,
    hasher: Seed,
    clock: Clock,
    /// The longest time for which the store is not asked.
    longest: Duration,
}

#[derive(Debug)]
struct Place {
    /// The hash of the count that is denied, so that others need no lock; 0 if none is.
    whose: AtomicU64,
    /// How often a count here has changed: what was asked before that may no longer be true.
    changes: AtomicU64,
    /// Of that count, by several limits and costs.
    denials: Mutex<Vec<Denial>>,
}

#[derive(Debug)]
struct Denial {
    key: Key,
    limit: Limit,
    cost: u32,
    asked: Moment,
    /// When the answer can change, at the earliest: the store may have decided as soon as it was asked.
    until: Moment,
    /// When it has changed, at the latest: it has decided before it was heard.
    retry: Moment,
    reset: Moment,
    remaining: u32,
}

/// When the store was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    at: Moment,
    changes: u64,
}

const PLACES: usize = 4096;
/// Denials of one count.
const MOST: usize = 8;

impl DeniedUntil {
    /// Remembers denials for so long, at most.
    pub(crate) fn new(longest: Duration, clock: Clock) -> Self {
        let places = if longest.is_zero() { 0 } else { PLACES };
        let empty =
            || Place { whose: AtomicU64::new(NOBODY), changes: AtomicU64::new(0), denials: Mutex::new(Vec::new()) };
        let places = (0..places).map(|_| empty()).collect();
        Self { places, hasher: Seed::default(), clock, longest }
    }

    /// The store's denial of this very question, if it still stands.
    pub(crate) fn recall(&self, questions: &[Question<'_>]) -> Option<Answer> {
        let [question] = questions else { return None };
        let (place, whose) = self.place(question)?;
        if place.whose.load(Ordering::Acquire) != whose {
            return None;
        }
        let now = self.clock.now();
        let denials = place.lock();
        let known = denials.iter().find(|denial| denial.is_of(question) && denial.stands(now, self.longest))?;
        Some(known.answer(now))
    }

    /// To be called before the store is asked: from then on its answer counts.
    pub(crate) fn asked(&self, questions: &[Question<'_>]) -> Option<Asked> {
        let [question] = questions else { return None };
        let (place, _) = self.place(question)?;
        Some(Asked { at: self.clock.now(), changes: place.changes.load(Ordering::Acquire) })
    }

    /// Remembers what the store said if it is a denial that lasts; forgets what it said before an admission.
    pub(crate) fn note(&self, questions: &[Question<'_>], answer: &Answer, asked: Option<Asked>) {
        if answer.allowed {
            return self.forget(questions);
        }
        let (Some(asked), Some(retry_after), [question]) = (asked, answer.retry_after, questions) else { return };
        let Some((place, whose)) = self.place(question) else { return };
        if answer.remaining.checked_add(1) != Some(question.cost) {
            return;
        }
        let heard = self.clock.now();
        let denial = Denial {
            key: question.key.clone(),
            limit: question.limit,
            cost: question.cost,
            asked: asked.at,
            until: asked.at.after(retry_after),
            retry: heard.after(retry_after),
            reset: heard.after(answer.reset_after),
            remaining: answer.remaining,
        };
        let mut denials = place.lock();
        if place.changes.load(Ordering::Acquire) != asked.changes {
            return;
        }
        denials.retain(|known| {
            known.is_of_the_count(question) && !known.is_of(question) && known.stands(asked.at, self.longest)
        });
        if denials.len() == MOST {
            denials.remove(0);
        }
        denials.push(denial);
        place.whose.store(whose, Ordering::Release);
    }

    /// Something was taken or given back, or may have been: what was said of these counts before is forgotten.
    pub(crate) fn forget(&self, questions: &[Question<'_>]) {
        for (place, _) in questions.iter().filter_map(|question| self.place(question)) {
            place.changes.fetch_add(1, Ordering::AcqRel);
            // Whoever notes a denial just now has seen the change, or is waited for.
            let mut denials = place.lock();
            denials.clear();
            place.whose.store(NOBODY, Ordering::Release);
        }
    }

    /// Where the denials of a count are, or would be, and its hash.
    fn place(&self, question: &Question<'_>) -> Option<(&Place, u64)> {
        if self.places.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one((question.key.head(), Span::from(question.limit))).max(NOBODY + 1);
        let place = usize::try_from(hash % self.places.len() as u64).unwrap_or(0);
        Some((&self.places[place], hash))
    }
}

const NOBODY: u64 = 0;

impl Place {
    fn lock(&self) -> MutexGuard<'_, Vec<Denial>> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Denial {
    fn is_of(&self, question: &Question<'_>) -> bool {
        self.limit == question.limit && self.cost == question.cost && self.key == *question.key
    }

    fn is_of_the_count(&self, question: &Question<'_>) -> bool {
        Span::from(self.limit) == Span::from(question.limit) && self.key == *question.key
    }

    fn stands(&self, now: Moment, longest: Duration) -> bool {
        // By a clock that tests have moved back it was asked in the future.
        self.asked <= now && now < self.until && now < self.asked.after(longest)
    }

    fn answer(&self, now: Moment) -> Answer {
        Answer {
            allowed: false,
            which: 0,
            remaining: self.remaining,
            retry_after: Some(now.until(self.retry)),
            reset_after: now.until(self.reset),
            stamp: 0,
            delay: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENIED: Answer = Answer {
        allowed: false,
        which: 0,
        remaining: 0,
        retry_after: Some(Duration::from_millis(10)),
        reset_after: Duration::from_millis(20),
        stamp: 0,
        delay: Duration::ZERO,
    };

    #[test]
    fn an_answer_from_before_a_change_is_not_remembered() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let question = [Question { key: &key, limit, cost: 1 }];
        let denied = DeniedUntil::new(Duration::from_secs(1), Clock::System);
        let asked = denied.asked(&question);
        denied.forget(&question);
        denied.note(&question, &DENIED, asked);
        assert!(denied.recall(&question).is_none());
        denied.note(&question, &DENIED, denied.asked(&question));
        assert!(denied.recall(&question).is_some());
        denied.note(&question, &Answer { allowed: true, ..DENIED }, denied.asked(&question));
        assert!(denied.recall(&question).is_none());
    }

    #[cfg(feature = "test-util")]
    #[test]
    fn what_was_asked_in_the_future_is_asked_again() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let question = [Question { key: &key, limit, cost: 1 }];
        let clock = crate::ManualClock::new();
        let denied = DeniedUntil::new(Duration::from_secs(1), Clock::Manual(clock.clone()));
        denied.note(&question, &DENIED, denied.asked(&question));
        assert!(denied.recall(&question).is_some());
        clock.rewind(Duration::from_millis(1));
        assert!(denied.recall(&question).is_none());
    }

    #[test]
    fn many_limits_of_one_count_are_no_more_than_a_few_places() {
        let key = Key::new("a");
        let denied = DeniedUntil::new(Duration::from_secs(1), Clock::System);
        let asks = |max: u32| Limit::checked(max, 1000).expect("a limit");
        for max in 1..100 {
            let question = [Question { key: &key, limit: asks(max), cost: 1 }];
            let answer = Answer { retry_after: Some(Duration::from_secs(60)), ..DENIED };
            denied.note(&question, &answer, denied.asked(&question));
        }
        let known = |max| denied.recall(&[Question { key: &key, limit: asks(max), cost: 1 }]).is_some();
        assert_eq!((1..100).filter(|max| known(*max)).count(), MOST);
        assert!(known(99), "the latest");
    }
}
