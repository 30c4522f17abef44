//! The embedded store: sharded maps of counts, bounded, with expired keys collected a few at a time.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::algorithm::{Ask, Outcome, Span, State};
use crate::clock::{Clock, Moment};
use crate::store::{Answer, Question};
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

const SHARDS: usize = 64;

impl MemoryStore {
    /// A store that keeps up to `capacity` keys apart; those beyond share a fixed number of counts.
    pub(crate) fn new(capacity: usize, clock: Clock) -> Self {
        let capacity = capacity.div_ceil(SHARDS);
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(capacity))).collect();
        Self { shards, hasher: RandomState::new(), clock }
    }

    /// Decides, and takes the permits if all of them fit.
    pub(crate) fn decide(&self, questions: &[Question<'_>]) -> Answer {
        self.decide_within(questions, Duration::ZERO)
    }

    /// The same for a call that may wait so long for its turn, where its algorithm gives turns.
    pub(crate) fn decide_within(&self, questions: &[Question<'_>], patience: Duration) -> Answer {
        if let [question] = questions {
            let patience = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
            return self.one(question, |state, ask| state.decide(&Ask { patience, ..*ask }));
        }
        let mut held = self.hold(questions);
        let now = self.clock.now();
        let looks = held.ask(questions, now, |state, ask| state.peek(ask));
        let answer = summary(&looks, now);
        if !answer.allowed {
            return answer;
        }
        // They fit, and nobody comes between.
        held.ask(questions, now, |state, ask| {
            state.record(ask);
            state.peek(ask)
        });
        let left = held.ask(questions, now, |state, ask| state.peek(&Ask { cost: 0, pending: 0, ..*ask }));
        summary(&left, now)
    }

    /// What [`decide`](Self::decide) would say, taking nothing.
    pub(crate) fn peek(&self, questions: &[Question<'_>]) -> Answer {
        let mut held = self.hold(questions);
        let now = self.clock.now();
        summary(&held.ask(questions, now, |state, ask| state.peek(ask)), now)
    }

    /// Takes the permits whether they fit or not, because another store has admitted them; gives their stamp.
    pub(crate) fn record(&self, questions: &[Question<'_>]) -> u64 {
        let record = |state: &mut State, ask: &Ask| {
            state.record(ask);
            state.peek(ask)
        };
        let mut held = self.hold(questions);
        let now = self.clock.now();
        held.ask(questions, now, record);
        now.ceil_micros()
    }

    /// Makes permits taken at `stamp` count from now, because another store has admitted them since; gives their stamp.
    pub(crate) fn renew(&self, questions: &[Question<'_>], stamp: u64) -> u64 {
        let mut held = self.hold(questions);
        let now = self.clock.now();
        held.ask(questions, now, |state, ask| {
            state.renew(ask, stamp);
            state.peek(ask)
        });
        now.ceil_micros()
    }

    /// Gives back permits taken at `stamp`.
    pub(crate) fn refund(&self, questions: &[Question<'_>], stamp: u64) {
        for question in questions.iter().filter(|question| question.cost > 0) {
            self.one(question, |state, ask| {
                state.refund(ask, stamp);
                state.peek(ask)
            });
        }
    }

    /// Forgets what a key has taken.
    pub(crate) fn reset(&self, key: &Key, limit: Limit) {
        let place = self.place(key, limit);
        lock(&self.shards[place.shard]).remove(&place.subject, limit.into(), place.hash);
    }

    fn one(&self, question: &Question<'_>, decide: impl FnOnce(&mut State, &Ask) -> Outcome) -> Answer {
        let place = self.place(question.key, question.limit);
        let mut shard = lock(&self.shards[place.shard]);
        // Read under the lock, so that the stamps of one count never go back.
        let now = self.clock.now();
        let outcome = shard.with_state(place.subject, place.hash, &ask(question, 0, now), decide);
        drop(shard);
        summary(&[outcome], now)
    }

    /// Locks what the questions are about, in one order for all, so that two decisions never wait for each other.
    fn hold(&self, questions: &[Question<'_>]) -> Held<'_> {
        let places: Vec<Place> = questions.iter().map(|question| self.place(question.key, question.limit)).collect();
        let mut shards: Vec<usize> = places.iter().map(|place| place.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let shards = shards.into_iter().map(|index| (index, lock(&self.shards[index]))).collect();
        Held { places, shards }
    }

    fn place(&self, key: &Key, limit: Limit) -> Place {
        let subject = key.subject().to_string();
        let hash = self.hasher.hash_one((&*subject, Span::from(limit)));
        // Bits from the middle: the map inside a shard uses the lowest and the highest.
        let shard = usize::try_from((hash >> 32) % SHARDS as u64).unwrap_or(0);
        Place { subject, hash, shard }
    }
}

/// Where a question's count is.
struct Place {
    subject: String,
    hash: u64,
    shard: usize,
}

/// The shards of one decision, locked.
struct Held<'a> {
    places: Vec<Place>,
    shards: Vec<(usize, MutexGuard<'a, Shard>)>,
}

impl Held<'_> {
    fn ask(
        &mut self,
        questions: &[Question<'_>],
        now: Moment,
        mut decide: impl FnMut(&mut State, &Ask) -> Outcome,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(questions.len());
        for (index, (question, place)) in questions.iter().zip(&self.places).enumerate() {
            let ask = ask(question, question.pending(&questions[..index]), now);
            let shard = self.shards.iter_mut().find(|(index, _)| *index == place.shard);
            if let Some((_, shard)) = shard {
                outcomes.push(shard.with_state(place.subject.clone(), place.hash, &ask, &mut decide));
            }
        }
        outcomes
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A panic under this lock would be one of ours, and leave a count that is whole.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(question: &Question<'_>, pending: u32, now: Moment) -> Ask {
    Ask {
        floor: now.floor_millis(),
        ceil: now.ceil_millis(),
        micros: now.ceil_micros(),
        span: question.limit.into(),
        max: question.limit.max(),
        burst: question.limit.burst(),
        cost: question.cost,
        pending,
        patience: 0,
    }
}

/// The decision that several outcomes make.
fn summary(outcomes: &[Outcome], now: Moment) -> Answer {
    let denies = outcomes.iter().position(|outcome| !outcome.allowed);
    let tightest = || (0..outcomes.len()).min_by_key(|index| outcomes[*index].remaining);
    let which = denies.or_else(tightest).unwrap_or(0);
    let (remaining, reset_at) = outcomes.get(which).map_or((u32::MAX, 0), |told| (told.remaining, told.reset_at));
    let never = outcomes.iter().any(|outcome| outcome.retry_at.is_none());
    let retry_at = outcomes.iter().filter_map(|outcome| outcome.retry_at).max().unwrap_or(0);
    // Only a decision of one question has a delay.
    let delay = outcomes.iter().map(|outcome| outcome.delay).max().unwrap_or(0);
    Answer {
        allowed: denies.is_none(),
        which,
        remaining,
        retry_after: (!never).then(|| now.until_micros(retry_at)),
        reset_after: now.until_micros(reset_at),
        stamp: now.ceil_micros(),
        delay: Duration::from_micros(delay),
    }
}

#[cfg(test)]
mod tests;
