//! The embedded store: sharded maps of counts, bounded, with expired keys collected a few at a time.

use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::algorithm::{Ask, Outcome, Span};
use crate::clock::{Clock, Moment};
use crate::overflow::Overflows;
use crate::store::{Answer, Question};
use crate::sync::{Mutex, MutexGuard, Seed};
use crate::{Key, Limit, Source};

mod common;
mod counts;
mod deed;
mod folded;
mod shard;

use deed::Deed;
use shard::{Shard, Told};

/// Counts in this process.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    seed: Seed,
    clock: Clock,
    overflows: Arc<Overflows>,
}

const MOST_SHARDS: usize = 64;
/// Keys that are worth a lock of their own: among so many, chance fills all shards about evenly.
const LEAST: usize = 4096;
/// Counts of the whole store that newcomers share. Those who share one together take what one of them may take.
const SHARING: usize = 65_536;

impl MemoryStore {
    /// A store that keeps up to `capacity` keys apart; those beyond share a fixed number of counts.
    pub(crate) fn new(capacity: usize, clock: Clock, source: Source) -> Self {
        Self::with_sharing(capacity, SHARING, clock, source)
    }

    fn with_sharing(capacity: usize, sharing: usize, clock: Clock, source: Source) -> Self {
        let (shards, seed) = ((capacity / LEAST).clamp(1, MOST_SHARDS), Seed::default());
        let shard = |_| Mutex::new(Shard::new(capacity.div_ceil(shards), sharing / shards, seed.clone()));
        let overflows = Overflows::new(source, capacity, clock.clone());
        Self { shards: (0..shards).map(shard).collect(), seed, clock, overflows }
    }

    /// Knows how often keys had to share a count.
    pub(crate) fn overflows(&self) -> Arc<Overflows> {
        Arc::clone(&self.overflows)
    }

    /// Decides, and takes the permits if all of them fit.
    pub(crate) fn decide(&self, questions: &[Question<'_>]) -> Answer {
        self.decide_within(questions, Duration::ZERO)
    }

    /// The same for a call that may wait so long for its turn, where its algorithm gives turns.
    pub(crate) fn decide_within(&self, questions: &[Question<'_>], patience: Duration) -> Answer {
        if let [question] = questions {
            let patience = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
            return self.decide_one(question, patience);
        }
        let mut held = self.hold(questions);
        let now = self.clock.now();
        let answer = summary(&held.look(questions, now), now);
        if !answer.allowed {
            return answer;
        }
        // They fit, and nobody comes between.
        held.take(questions, now, Deed::Record);
        let free: Vec<_> = questions.iter().map(|question| Question { cost: 0, ..*question }).collect();
        summary(&held.look(&free, now), now)
    }

    /// What [`decide`](Self::decide) would say, taking nothing.
    pub(crate) fn peek(&self, questions: &[Question<'_>]) -> Answer {
        let held = self.hold(questions);
        let now = self.clock.now();
        summary(&held.look(questions, now), now)
    }

    /// Takes the permits whether they fit or not, because another store has admitted them; gives their stamp.
    pub(crate) fn record(&self, questions: &[Question<'_>]) -> u64 {
        self.take(questions, Deed::Record)
    }

    /// Makes permits taken at `stamp` count from now, because another store has admitted them since; gives their stamp.
    pub(crate) fn renew(&self, questions: &[Question<'_>], stamp: u64) -> u64 {
        self.take(questions, Deed::Renew { stamp })
    }

    /// Gives back permits taken at `stamp`.
    pub(crate) fn refund(&self, questions: &[Question<'_>], stamp: u64) {
        for question in questions.iter().filter(|question| question.cost > 0) {
            let place = self.place(question.key, question.limit);
            let mut shard = lock(&self.shards[place.shard]);
            shard.refund(&place, &ask(question, 0, self.clock.now()), stamp);
        }
    }

    /// As [`refund`](Self::refund), of permits that were only held: as if they had not been taken.
    pub(crate) fn withdraw(&self, questions: &[Question<'_>], stamp: u64) {
        for question in questions.iter().filter(|question| question.cost > 0) {
            let place = self.place(question.key, question.limit);
            let mut shard = lock(&self.shards[place.shard]);
            shard.withdraw(&place, &ask(question, 0, self.clock.now()), stamp);
        }
    }

    /// Forgets what a key has taken.
    pub(crate) fn reset(&self, key: &Key, limit: Limit) {
        let place = self.place(key, limit);
        lock(&self.shards[place.shard]).remove(&place, limit.into());
    }

    fn decide_one(&self, question: &Question<'_>, patience: u64) -> Answer {
        let place = self.place(question.key, question.limit);
        let mut shard = lock(&self.shards[place.shard]);
        // Read under the lock, so that the stamps of one count never go back.
        let now = self.clock.now();
        let told = shard.take(&place, &Ask { patience, ..ask(question, 0, now) }, Deed::Decide);
        drop(shard);
        self.overflows.count(told.shared.into());
        summary(&[told.outcome], now)
    }

    fn take(&self, questions: &[Question<'_>], deed: Deed) -> u64 {
        let mut held = self.hold(questions);
        let now = self.clock.now();
        held.take(questions, now, deed);
        now.ceil_micros()
    }

    /// Locks what the questions are about, in one order for all, so that two decisions never wait for each other.
    fn hold(&self, questions: &[Question<'_>]) -> Held<'_> {
        let places: Vec<Place> = questions.iter().map(|question| self.place(question.key, question.limit)).collect();
        let mut shards: Vec<usize> = places.iter().map(|place| place.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let shards = shards.into_iter().map(|index| (index, lock(&self.shards[index]))).collect();
        Held { places, shards, overflows: &self.overflows }
    }

    /// Whether two keys are in different shards.
    #[cfg(all(test, limiter_loom))]
    pub(crate) fn parts(&self, first: &Key, second: &Key, limit: Limit) -> bool {
        self.place(first, limit).shard != self.place(second, limit).shard
    }

    fn place(&self, key: &Key, limit: Limit) -> Place {
        let subject = key.subject().to_string();
        let hash = self.seed.hash_one((&*subject, Span::from(limit)));
        // Bits from the middle: the map inside a shard uses the lowest and the highest.
        let shard = usize::try_from(hash >> 40).unwrap_or(0) % self.shards.len();
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
    overflows: &'a Overflows,
}

impl Held<'_> {
    fn look(&self, questions: &[Question<'_>], now: Moment) -> Vec<Outcome> {
        let asks = asks(questions, now).zip(&self.places);
        asks.filter_map(|(ask, place)| Some(self.shard(place)?.look(place, &ask))).collect()
    }

    fn take(&mut self, questions: &[Question<'_>], now: Moment, deed: Deed) {
        let Self { places, shards, overflows } = self;
        for (ask, place) in asks(questions, now).zip(places) {
            let shard = shards.iter_mut().find(|(index, _)| *index == place.shard);
            if let Some(Told { shared: true, .. }) = shard.map(|(_, shard)| shard.take(place, &ask, deed)) {
                overflows.count(1);
            }
        }
    }

    fn shard(&self, place: &Place) -> Option<&Shard> {
        self.shards.iter().find(|(index, _)| *index == place.shard).map(|(_, shard)| &**shard)
    }
}

fn asks<'a>(questions: &'a [Question<'_>], now: Moment) -> impl Iterator<Item = Ask> + 'a {
    let pending = |index: usize| questions[index].pending(&questions[..index]);
    questions.iter().enumerate().map(move |(index, question)| ask(question, pending(index), now))
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
