//! The embedded store: sharded maps of counts, bounded, with expired keys collected a few at a time.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::{Ask, Outcome, Span};
use crate::clock::{Clock, Moment};
use crate::overflow::Overflows;
use crate::store::{Answer, Question};
use crate::sync::process::forked;
use crate::sync::{MutexGuard, Seed, seed};
use crate::{Error, Key, Limit, Source};

mod arithmetic;
mod common;
mod counts;
mod deed;
mod denials;
mod folded;
mod shard;
mod shards;

use arithmetic::Arithmetic;
use deed::Deed;
use denials::Denials;
use shard::Shard;
use shards::Shards;

/// Counts in this process. A child of `fork` has a copy of them.
///
/// A decision fails where its shard's lock was held by another thread at a fork, and nowhere else.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    shards: Shards,
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
        let overflows = Overflows::new(source, capacity, clock.clone());
        Self::with_sharing(capacity, SHARING, clock, overflows, Arithmetic::Own)
    }

    /// A store that counts for another one, whose clock has other edges. Adds its overflows to those that are given.
    pub(crate) fn mirror(capacity: usize, clock: Clock, overflows: Arc<Overflows>) -> Self {
        Self::with_sharing(capacity, SHARING, clock, overflows, Arithmetic::Strictest)
    }

    fn with_sharing(
        capacity: usize,
        sharing: usize,
        clock: Clock,
        overflows: Arc<Overflows>,
        arithmetic: Arithmetic,
    ) -> Self {
        let (count, seed) = ((capacity / LEAST).clamp(1, MOST_SHARDS), seed());
        let shard = || Shard::new(capacity.div_ceil(count), sharing / count, arithmetic, seed.clone());
        let shards = Shards::new(count, shard);
        Self { shards, denials: Denials::new(count), seed, clock, overflows }
    }

    /// Knows how often keys had to share a count.
    pub(crate) fn overflows(&self) -> Arc<Overflows> {
        Arc::clone(&self.overflows)
    }

    /// The same for a call that does not wait.
    #[cfg(test)]
    pub(crate) fn decide(&self, questions: &[Question<'_>]) -> Answer {
        self.decide_within(questions, Duration::ZERO).expect("no lock is orphaned")
    }

    /// Decides, and takes the permits if all of them fit; for a call that may wait so long for its turn, where its
    /// algorithm gives turns.
    pub(crate) fn decide_within(&self, questions: &[Question<'_>], patience: Duration) -> Result<Answer, Error> {
        if let [question] = questions {
            let patience = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
            return self.decide_one(question, patience, |told| Ok(told.answer()), || Err(forked()));
        }
        let texts = texts(questions);
        let mut held = self.hold(questions, &texts)?;
        let now = self.clock.now();
        let answer = summary(&held.look(questions, now), now);
        if !answer.allowed {
            return Ok(answer);
        }
        // They fit, and nobody comes between.
        held.take(questions, now, Deed::Record);
        let free: Vec<_> = questions.iter().map(|question| Question { cost: 0, ..*question }).collect();
        Ok(summary(&held.look(&free, now), now))
    }

    /// What [`decide`](Self::decide) would say, taking nothing.
    pub(crate) fn peek(&self, questions: &[Question<'_>]) -> Result<Answer, Error> {
        let texts = texts(questions);
        let held = self.hold(questions, &texts)?;
        let now = self.clock.now();
        Ok(summary(&held.look(questions, now), now))
    }

    /// Takes the permits whether they fit or not, because another store has admitted them; gives their stamp.
    pub(crate) fn record(&self, questions: &[Question<'_>]) -> Result<u64, Error> {
        self.take(questions, Deed::Record)
    }

    /// Makes permits taken at `stamp` count from now, because another store has admitted them since; gives their stamp.
    pub(crate) fn renew(&self, questions: &[Question<'_>], stamp: u64) -> Result<u64, Error> {
        self.take(questions, Deed::Renew { stamp })
    }

    /// Gives back permits taken at `stamp`.
    pub(crate) fn refund(&self, questions: &[Question<'_>], stamp: u64) -> Result<(), Error> {
        for question in questions.iter().filter(|question| question.cost > 0) {
            let text = question.key.encoding();
            let seat = self.seat(&text, question.key, question.limit);
            let mut shard = self.lock(seat.shard)?;
            self.denials.strike_out(seat.shard, seat.hash);
            shard.refund(&seat, &ask(question.limit, question.cost, 0, self.clock.now()), stamp);
        }
        Ok(())
    }

    /// Gives back permits taken at `stamp` from a place; nothing if the key has left it since, as nothing of it counted
    /// any more.
    pub(crate) fn refund_at(&self, place: Place, limit: Limit, cost: u32, stamp: u64) -> Result<(), Error> {
        let index = self.shard(place.hash);
        let mut shard = self.lock(index)?;
        self.denials.strike_out(index, place.hash);
        shard.refund_at(place, &ask(limit, cost, 0, self.clock.now()), stamp);
        Ok(())
    }

    /// Forgets what a key has taken.
    pub(crate) fn reset(&self, key: &Key, limit: Limit) -> Result<(), Error> {
        let text = key.encoding();
        let seat = self.seat(&text, key, limit);
        let mut shard = self.lock(seat.shard)?;
        self.denials.strike_out(seat.shard, seat.hash);
        shard.forget(&seat, limit.into());
        Ok(())
    }

    /// Decides about one question, for a call that may wait so many microseconds for its turn, and gives what `say` makes
    /// of it; under a lock, which it must not take time with. Gives what `orphaned` makes where that lock is taken for good.
    ///
    /// What was written before a lock is let go of can be read at once after that. Written after it, it would make whoever
    /// moves it wait.
    #[inline(always)]
    pub(crate) fn decide_one<R>(
        &self,
        question: &Question<'_>,
        patience: u64,
        say: impl FnOnce(&Told) -> R,
        orphaned: impl FnOnce() -> R,
    ) -> R {
        let text = question.key.encoding();
        let seat = self.seat(&text, question.key, question.limit);
        let ask = |now| Ask { patience, ..ask(question.limit, question.cost, 0, now) };
        if self.denials.may_know(&seat, question.cost) {
            let now = self.clock.now();
            if let Some(outcome) = self.denials.known(&seat, &ask(now)) {
                return say(&Told { outcome, now, place: None });
            }
        }
        let Some(mut shard) = self.shards.try_lock(seat.shard) else {
            return match self.decide_contended(question.limit, &seat, ask) {
                Some(told) => say(&told),
                None => orphaned(),
            };
        };
        let found = shard.find(&seat, question.limit.into());
        // Read under the lock, so that the stamps of one count never go back.
        let now = self.clock.now();
        let ask = ask(now);
        let joined = found.and_then(|place| shard.join(place, &ask));
        let Some((outcome, id)) = joined else { return say(&self.decide_in_full(shard, found, &seat, &ask, now)) };
        self.denials.strike_out(seat.shard, seat.hash);
        let said = say(&Told { outcome, now, place: Some(Place { hash: seat.hash, id }) });
        drop(shard);
        said
    }

    /// Decides under a lock that is waited for. Apart from the rest, which then keeps its guard in registers.
    #[cold]
    #[inline(never)]
    fn decide_contended(&self, limit: Limit, seat: &Seat<'_>, ask: impl FnOnce(Moment) -> Ask) -> Option<Told> {
        let shard = self.shards.lock(seat.shard)?;
        let found = shard.find(seat, limit.into());
        let now = self.clock.now();
        Some(self.decide_in_full(shard, found, seat, &ask(now), now))
    }

    /// Whatever it takes. Apart from the rest, which is then short and keeps what it says out of memory.
    #[inline(never)]
    fn decide_in_full(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        found: Option<usize>,
        seat: &Seat<'_>,
        ask: &Ask,
        now: Moment,
    ) -> Told {
        let told = shard.take_at(found, seat, ask, Deed::Decide);
        if told.outcome.allowed {
            self.denials.strike_out(seat.shard, seat.hash);
        } else if told.id.is_some() {
            self.denials.keep(seat, ask, &told.outcome);
        }
        drop(shard);
        if told.shared {
            self.overflows.count(1);
        }
        Told { outcome: told.outcome, now, place: told.id.map(|id| Place { hash: seat.hash, id }) }
    }

    fn take(&self, questions: &[Question<'_>], deed: Deed) -> Result<u64, Error> {
        let texts = texts(questions);
        let mut held = self.hold(questions, &texts)?;
        let now = self.clock.now();
        held.take(questions, now, deed);
        Ok(now.micros())
    }

    fn lock(&self, shard: usize) -> Result<MutexGuard<'_, Shard>, Error> {
        self.shards.lock(shard).ok_or_else(forked)
    }

    /// Locks what the questions are about, in one order for all, so that two decisions never wait for each other.
    fn hold<'a>(&'a self, questions: &[Question<'_>], texts: &'a [Cow<'_, [u8]>]) -> Result<Held<'a>, Error> {
        let seat = |(question, text): (&Question<'_>, &'a Cow<'_, [u8]>)| self.seat(text, question.key, question.limit);
        let seats: Vec<Seat<'_>> = questions.iter().zip(texts).map(seat).collect();
        let mut shards: Vec<usize> = seats.iter().map(|seat| seat.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let shards = shards.into_iter().map(|index| Ok((index, self.lock(index)?))).collect::<Result<_, Error>>()?;
        Ok(Held { seats, shards, store: self })
    }

    /// As a child of the process that made it sees it.
    #[cfg(all(test, not(limiter_loom)))]
    pub(crate) fn of_another_process(&mut self) {
        self.shards.of_another_process();
    }

    /// Runs something while every lock is held.
    #[cfg(all(test, not(limiter_loom)))]
    pub(crate) fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        let _held: Vec<_> = (0..self.shards.len()).map(|shard| self.lock(shard).expect("no lock is held")).collect();
        run()
    }

    /// Whether two keys are in different shards.
    #[cfg(all(test, limiter_loom))]
    pub(crate) fn parts(&self, first: &Key, second: &Key, limit: Limit) -> bool {
        let shard = |key: &Key| self.seat(&key.encoding(), key, limit).shard;
        shard(first) != shard(second)
    }

    #[inline(always)]
    fn seat<'a>(&self, subject: &'a [u8], key: &Key, limit: Limit) -> Seat<'a> {
        let of_text = key.hash_by(|| {
            let mut hasher = self.seed.build_hasher();
            hasher.write(subject);
            hasher.finish()
        });
        let hash = self.seed.hash_one((of_text, Span::from(limit)));
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
    subject: &'a [u8],
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
    pub(crate) outcome: Outcome,
    pub(crate) now: Moment,
    /// The key's own, if it has one.
    pub(crate) place: Option<Place>,
}

impl Told {
    /// Microseconds from now until then.
    #[inline]
    pub(crate) fn until(&self, micros: u64) -> u64 {
        micros.saturating_sub(self.now.micros())
    }

    fn answer(&self) -> Answer {
        let Self { outcome: Outcome { allowed, remaining, retry_at, reset_at, delay }, now, .. } = *self;
        Answer {
            allowed,
            which: 0,
            remaining,
            retry_after: retry_at.map(|at| now.until_micros(at)),
            reset_after: now.until_micros(reset_at),
            stamp: now.micros(),
            delay: Duration::from_micros(delay),
        }
    }
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

fn texts<'a>(questions: &[Question<'a>]) -> Vec<Cow<'a, [u8]>> {
    questions.iter().map(|question| question.key.encoding()).collect()
}

fn asks<'a>(questions: &'a [Question<'_>], now: Moment) -> impl Iterator<Item = Ask> + 'a {
    let pending = |index: usize| questions[index].pending(&questions[..index]);
    questions.iter().enumerate().map(move |(index, question)| ask(question.limit, question.cost, pending(index), now))
}

#[inline]
fn ask(limit: Limit, cost: u32, pending: u32, now: Moment) -> Ask {
    Ask {
        floor: now.floor_millis(),
        ceil: now.ceil_millis(),
        micros: now.micros(),
        span: limit.into(),
        max: limit.max(),
        burst: limit.burst(),
        cost,
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
        stamp: now.micros(),
        delay: Duration::from_micros(delay),
    }
}

#[cfg(test)]
mod tests;
