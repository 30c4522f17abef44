//! Denials that are known to last: until when, so that nobody need be asked before.
//!
//! A store that denies names the first instant at which its answer can change. Until then this process answers by itself:
//! a flood of one key costs the store nothing. What other processes free meanwhile, by a refund or a reset, cannot be seen
//! from here, so after a while it is asked all the same. What this process frees is forgotten here at once.
//!
//! Only a denial is ever remembered, so nobody is admitted by this. And only one that stays true in all it says: a call that
//! wants one permit more than there is. For one that wants several more, permits come back before it fits.

use std::hash::BuildHasher;
use std::time::Duration;

use crate::algorithm::Span;
use crate::clock::{Clock, Moment};
use crate::store::{Answer, Question};
use crate::sync::process::{self, read_at_home, write_at_home};
use crate::sync::{AtomicU64, Ordering, RwLock, RwLockWriteGuard, Seed, fence};
use crate::{Key, Limit};

/// A fixed number of places, each for the denials of one count: of those that share it, the latest.
///
/// What every call looks at is apart from what only those write who hear from the store, so that no line of it goes to and
/// fro between threads while nobody is denied.
#[derive(Debug)]
pub(crate) struct DeniedUntil {
    /// The hash of the count that is denied, so that others need no lock; 0 if none is.
    whose: Box<[AtomicU64]>,
    /// How often a count has changed: what was asked before that may no longer be true.
    changes: Box<[AtomicU64]>,
    /// Of one count, by several limits and costs.
    denials: Box<[RwLock<Vec<Denial>>]>,
    hasher: Seed,
    clock: Clock,
    /// The longest time for which the store is not asked.
    longest: Duration,
    /// The process that made it. In a child of that, what is locked counts as unknown.
    home: u32,
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

/// Few where loom watches each of them.
const PLACES: usize = if cfg!(all(test, limiter_loom)) { 1 } else { 4096 };
/// Denials of one count.
const MOST: usize = 8;

impl DeniedUntil {
    /// Remembers denials for so long, at most.
    pub(crate) fn new(longest: Duration, clock: Clock) -> Self {
        let places = if longest.is_zero() { 0 } else { PLACES };
        let numbers = || (0..places).map(|_| AtomicU64::new(NOBODY)).collect();
        let denials = (0..places).map(|_| RwLock::new(Vec::new())).collect();
        Self {
            whose: numbers(),
            changes: numbers(),
            denials,
            hasher: Seed::default(),
            clock,
            longest,
            home: process::id(),
        }
    }

    /// The store's denial of this very question, if it still stands.
    pub(crate) fn recall(&self, questions: &[Question<'_>]) -> Option<Answer> {
        let [question] = questions else { return None };
        let (place, whose) = self.place(question)?;
        if self.whose[place].load(Ordering::Acquire) != whose {
            return None;
        }
        let now = self.clock.now();
        let denials = read_at_home(&self.denials[place], self.home)?;
        let known = denials.iter().find(|denial| denial.is_of(question) && denial.stands(now, self.longest))?;
        Some(known.answer(now))
    }

    /// Something was taken or given back, or may have been: what was said of these counts before is forgotten.
    pub(crate) fn forget(&self, questions: &[Question<'_>]) {
        for (place, _) in questions.iter().filter_map(|question| self.place(question)) {
            self.changes[place].fetch_add(1, Ordering::AcqRel);
            // Whoever notes a denial just now sees the change after that, or is seen here.
            fence(Ordering::SeqCst);
            if self.whose[place].load(Ordering::Acquire) != NOBODY
                && let Some(mut denials) = self.lock(place)
            {
                self.clear(place, &mut denials);
            }
        }
    }

    fn clear(&self, place: usize, denials: &mut Vec<Denial>) {
        denials.clear();
        self.whose[place].store(NOBODY, Ordering::Release);
    }

    /// Where the denials of a count are, or would be, and its hash.
    fn place(&self, question: &Question<'_>) -> Option<(usize, u64)> {
        if self.whose.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one((question.key.head(), Span::from(question.limit))).max(NOBODY + 1);
        Some((usize::try_from(hash % self.whose.len() as u64).unwrap_or(0), hash))
    }

    fn lock(&self, place: usize) -> Option<RwLockWriteGuard<'_, Vec<Denial>>> {
        write_at_home(&self.denials[place], self.home)
    }
}

#[cfg_attr(not(any(test, feature = "redis")), expect(dead_code, reason = "without it no store is asked"))]
impl DeniedUntil {
    /// To be called before the store is asked: from then on its answer counts.
    pub(crate) fn asked(&self, question: &Question<'_>) -> Option<Asked> {
        let (place, _) = self.place(question)?;
        Some(Asked { at: self.clock.now(), changes: self.changes[place].load(Ordering::Acquire) })
    }

    /// What the store said to calls of one kind that went together, the admitted ones first. Forgets what it said before
    /// an admission, and remembers a denial that lasts.
    pub(crate) fn note(
        &self,
        question: &Question<'_>,
        asked: Option<Asked>,
        has_admitted: bool,
        denial: Option<&Answer>,
    ) {
        let Some(Asked { at, changes }) = asked else { return };
        let admissions = u64::from(has_admitted);
        if has_admitted {
            self.forget(&[*question]);
        }
        if let Some(answer) = denial {
            self.remember(question, Asked { at, changes: changes.wrapping_add(admissions) }, answer);
        }
    }

    fn remember(&self, question: &Question<'_>, asked: Asked, answer: &Answer) {
        let (Some(retry_after), Some((place, whose))) = (answer.retry_after, self.place(question)) else { return };
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
        let Some(mut denials) = self.lock(place) else { return };
        let has_changed = || self.changes[place].load(Ordering::Acquire) != asked.changes;
        if has_changed() {
            return;
        }
        denials.retain(|known| {
            known.is_of_the_count(question) && !known.is_of(question) && known.stands(asked.at, self.longest)
        });
        if denials.len() == MOST {
            denials.remove(0);
        }
        // Mostly it is the only one.
        denials.reserve_exact(1);
        denials.push(denial);
        self.whose[place].store(whose, Ordering::Release);
        fence(Ordering::SeqCst);
        if has_changed() {
            self.clear(place, &mut denials);
        }
    }
}

const NOBODY: u64 = 0;

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
        let asked = denied.asked(&question[0]);
        denied.forget(&question);
        denied.note(&question[0], asked, false, Some(&DENIED));
        assert!(denied.recall(&question).is_none());
        denied.note(&question[0], denied.asked(&question[0]), false, Some(&DENIED));
        assert!(denied.recall(&question).is_some());
        denied.note(&question[0], denied.asked(&question[0]), true, None);
        assert!(denied.recall(&question).is_none());
    }

    #[test]
    fn a_denial_after_admissions_of_the_same_call_is_remembered_unless_something_else_changed() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let question = [Question { key: &key, limit, cost: 1 }];
        let denied = DeniedUntil::new(Duration::from_secs(1), Clock::System);
        let asked = denied.asked(&question[0]);
        denied.note(&question[0], asked, true, Some(&DENIED));
        assert!(denied.recall(&question).is_some());
        let asked = denied.asked(&question[0]);
        denied.forget(&question);
        denied.note(&question[0], asked, true, Some(&DENIED));
        assert!(denied.recall(&question).is_none());
    }

    #[cfg(feature = "test-util")]
    #[test]
    fn what_was_asked_in_the_future_is_asked_again() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let question = [Question { key: &key, limit, cost: 1 }];
        let clock = crate::ManualClock::new();
        let denied = DeniedUntil::new(Duration::from_secs(1), Clock::Manual(clock.clone()));
        denied.note(&question[0], denied.asked(&question[0]), false, Some(&DENIED));
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
            denied.note(&question[0], denied.asked(&question[0]), false, Some(&answer));
        }
        let known = |max| denied.recall(&[Question { key: &key, limit: asks(max), cost: 1 }]).is_some();
        assert_eq!((1..100).filter(|max| known(*max)).count(), MOST);
        assert!(known(99), "the latest");
    }
}
