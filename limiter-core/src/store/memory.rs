//! The embedded store: sharded maps of counts, bounded, with expired keys collected a few at a time.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash, Hasher};
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
mod denials;
mod folded;
mod shard;

use deed::Deed;
use denials::Denials;
use shard::Shard;

/// Counts in this process.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    denials: Denials,
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
        let denials = Denials::new(shards);
        Self { shards: (0..shards).map(shard).collect(), denials, seed, clock, overflows }
    }

    /// Knows how often keys had to share a count.
    pub(crate) fn overflows(&self) -> Arc<Overflows> {
        Arc::clone(&self.overflows)
    }

    /// The same for a call that does not wait.
    #[cfg(test)]
    pub(crate) fn decide(&self, questions: &[Question<'_>]) -> Answer {
        self.decide_within(questions, Duration::ZERO)
    }

    /// Decides, and takes the permits if all of them fit; for a call that may wait so long for its turn, where its
    /// algorithm gives turns.
    pub(crate) fn decide_within(&self, questions: &[Question<'_>], patience: Duration) -> Answer {
        if let [question] = questions {
            let patience = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
            return self.decide_one(question, patience).answer;
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
            let seat = self.seat(question.key, question.limit);
            let mut shard = lock(&self.shards[seat.shard]);
            self.denials.strike_out(seat.shard, seat.hash);
            shard.refund(&seat, &ask(question.limit, question.cost, 0, self.clock.now()), stamp);
        }
    }

    /// As [`refund`](Self::refund), of permits that were only held: as if they had not been taken.
    pub(crate) fn withdraw(&self, questions: &[Question<'_>], stamp: u64) {
        for question in questions.iter().filter(|question| question.cost > 0) {
            let seat = self.seat(question.key, question.limit);
            let mut shard = lock(&self.shards[seat.shard]);
            self.denials.strike_out(seat.shard, seat.hash);
            shard.withdraw(&seat, &ask(question.limit, question.cost, 0, self.clock.now()), stamp);
        }
    }

    /// Gives back permits taken at `stamp` from a place; nothing if the key has left it since, as nothing of it counted
    /// any more.
    pub(crate) fn refund_at(&self, place: Place, limit: Limit, cost: u32, stamp: u64) {
        let index = self.shard(place.hash);
        let mut shard = lock(&self.shards[index]);
        self.denials.strike_out(index, place.hash);
        shard.refund_at(place, &ask(limit, cost, 0, self.clock.now()), stamp);
    }

    /// Forgets what a key has taken.
    pub(crate) fn reset(&self, key: &Key, limit: Limit) {
        let seat = self.seat(key, limit);
        let mut shard = lock(&self.shards[seat.shard]);
        self.denials.strike_out(seat.shard, seat.hash);
        shard.forget(&seat, limit.into());
    }

    /// Decides about one question, for a call that may wait so many microseconds for its turn.
    #[inline(always)]
    pub(crate) fn decide_one(&self, question: &Question<'_>, patience: u64) -> Told {
        let seat = self.seat(question.key, question.limit);
        let ask = |now| Ask { patience, ..ask(question.limit, question.cost, 0, now) };
        if self.denials.may_know(&seat, question.cost) {
            let now = self.clock.now();
            if let Some(outcome) = self.denials.known(&seat, &ask(now)) {
                return Told { answer: answer(&outcome, now), place: None };
            }
        }
        let mut shard = lock(&self.shards[seat.shard]);
        // Read under the lock, so that the stamps of one count never go back.
        let now = self.clock.now();
        let ask = ask(now);
        let told = shard.take(&seat, &ask, Deed::Decide);
        if told.outcome.allowed {
            self.denials.strike_out(seat.shard, seat.hash);
        } else if told.id.is_some() {
            self.denials.keep(&seat, &ask, &told.outcome);
        }
        drop(shard);
        if told.shared {
            self.overflows.count(1);
        }
        Told { answer: answer(&told.outcome, now), place: told.id.map(|id| Place { hash: seat.hash, id }) }
    }

    fn take(&self, questions: &[Question<'_>], deed: Deed) -> u64 {
        let mut held = self.hold(questions);
        let now = self.clock.now();
        held.take(questions, now, deed);
        now.ceil_micros()
    }

    /// Locks what the questions are about, in one order for all, so that two decisions never wait for each other.
    fn hold<'a>(&'a self, questions: &'a [Question<'_>]) -> Held<'a> {
        let seats: Vec<Seat<'_>> = questions.iter().map(|question| self.seat(question.key, question.limit)).collect();
        let mut shards: Vec<usize> = seats.iter().map(|seat| seat.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let shards = shards.into_iter().map(|index| (index, lock(&self.shards[index]))).collect();
        Held { seats, shards, store: self }
    }

    /// Whether two keys are in different shards.
    #[cfg(all(test, limiter_loom))]
    pub(crate) fn parts(&self, first: &Key, second: &Key, limit: Limit) -> bool {
        self.seat(first, limit).shard != self.seat(second, limit).shard
    }

    #[inline(always)]
    fn seat<'a>(&self, key: &'a Key, limit: Limit) -> Seat<'a> {
        let subject = key.encoding();
        let mut hasher = self.seed.build_hasher();
        hasher.write(&subject);
        Span::from(limit).hash(&mut hasher);
        let hash = hasher.finish();
        Seat { subject, hash, shard: self.shard(hash) }
    }

    /// The shard of what has this hash.
    #[inline]
    fn shard(&self, hash: u64) -> usize {
        // Bits from the middle: the map inside a shard uses the lowest and the highest.
        let middle = (hash >> 16) & u64::from(u32::MAX);
        // As even as a remainder, without a division.
        usize::try_from((middle * self.shards.len() as u64) >> 32).unwrap_or(0)
    }
}

/// What a question's count is found by.
struct Seat<'a> {
    subject: Cow<'a, [u8]>,
    hash: u64,
    shard: usize,
}

/// Where a key that has taken something is, for as long as it has not left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    hash: u64,
    /// Given to no other key of the shard, ever.
    id: u64,
}

/// What is said to one question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) answer: Answer,
    /// The key's own, if it has one.
    pub(crate) place: Option<Place>,
}

/// The shards of one decision, locked.
struct Held<'a> {
    seats: Vec<Seat<'a>>,
    shards: Vec<(usize, MutexGuard<'a, Shard>)>,
    store: &'a MemoryStore,
}

impl Held<'_> {
    fn look(&self, questions: &[Question<'_>], now: Moment) -> Vec<Outcome> {
        let asks = asks(questions, now).zip(&self.seats);
        asks.filter_map(|(ask, seat)| Some(self.shard(seat)?.look(seat, &ask))).collect()
    }

    fn take(&mut self, questions: &[Question<'_>], now: Moment, deed: Deed) {
        let Self { seats, shards, store } = self;
        for (ask, seat) in asks(questions, now).zip(seats) {
            store.denials.strike_out(seat.shard, seat.hash);
            let shard = shards.iter_mut().find(|(index, _)| *index == seat.shard);
            if let Some(shard::Told { shared: true, .. }) = shard.map(|(_, shard)| shard.take(seat, &ask, deed)) {
                store.overflows.count(1);
            }
        }
    }

    fn shard(&self, seat: &Seat<'_>) -> Option<&Shard> {
        self.shards.iter().find(|(index, _)| *index == seat.shard).map(|(_, shard)| &**shard)
    }
}

fn asks<'a>(questions: &'a [Question<'_>], now: Moment) -> impl Iterator<Item = Ask> + 'a {
    let pending = |index: usize| questions[index].pending(&questions[..index]);
    questions.iter().enumerate().map(move |(index, question)| ask(question.limit, question.cost, pending(index), now))
}

#[inline]
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A panic under this lock would be one of ours, and leave a count that is whole.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
fn ask(limit: Limit, cost: u32, pending: u32, now: Moment) -> Ask {
    Ask {
        floor: now.floor_millis(),
        ceil: now.ceil_millis(),
        micros: now.ceil_micros(),
        span: limit.into(),
        max: limit.max(),
        burst: limit.burst(),
        cost,
        pending,
        patience: 0,
    }
}

/// The decision that one outcome makes.
#[inline]
fn answer(outcome: &Outcome, now: Moment) -> Answer {
    Answer {
        allowed: outcome.allowed,
        which: 0,
        remaining: outcome.remaining,
        retry_after: outcome.retry_at.map(|at| now.until_micros(at)),
        reset_after: now.until_micros(outcome.reset_at),
        stamp: now.ceil_micros(),
        delay: if outcome.delay == 0 { Duration::ZERO } else { Duration::from_micros(outcome.delay) },
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
