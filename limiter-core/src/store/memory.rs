//! The embedded store: sharded maps of counts, bounded, with expired keys collected a few at a time.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::{AlgorithmInput, CounterKind, Outcome};
use crate::clock::{Clock, Moment};
use crate::overflow::Overflows;
use crate::request::{Request, StoreReply};
use crate::sync::process::forked;
use crate::sync::{MutexGuard, Seed, seed};
use crate::{Error, Key, Limit, Source};

mod arithmetic;
mod common;
mod expiring_map;
mod write_op;
mod denial_snapshots;
mod folded;
mod shard;
mod shards;

use arithmetic::Arithmetic;
use denial_snapshots::DenialSnapshots;
use shard::Shard;
use shards::Shards;
use write_op::WriteOp;

/// Counters in this process. A child of `fork` has a copy of them.
///
/// A decision fails where its shard's lock was held by another thread at a fork, and nowhere else.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    shards: Shards,
    denials: DenialSnapshots,
    seed: Seed,
    clock: Clock,
    overflows: Arc<Overflows>,
}

const MOST_SHARDS: usize = 64;
/// Keys that are worth a lock of their own: among so many, chance fills all shards about evenly.
const LEAST: usize = 4096;
/// Counters of the whole store that newcomers share. Those who share one together take what one of them may take.
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
        Self { shards, denials: DenialSnapshots::new(count), seed, clock, overflows }
    }

    /// Knows how often keys had to share a count.
    pub(crate) fn overflows(&self) -> Arc<Overflows> {
        Arc::clone(&self.overflows)
    }

    /// The same for a call that does not wait.
    #[cfg(test)]
    pub(crate) fn decide(&self, requests: &[Request<'_>]) -> StoreReply {
        self.decide_within(requests, Duration::ZERO).expect("no lock is orphaned")
    }

    /// Decides, and takes the permits if all of them fit; for a call that may wait so long for its turn, where its
    /// algorithm gives turns.
    pub(crate) fn decide_within(&self, requests: &[Request<'_>], max_wait: Duration) -> Result<StoreReply, Error> {
        if let [request] = requests {
            let max_wait = u64::try_from(max_wait.as_micros()).unwrap_or(u64::MAX);
            return self.decide_one(request, max_wait, |told| Ok(told.answer()), || Err(forked()));
        }
        let texts = texts(requests);
        let mut held = self.hold(requests, &texts)?;
        let now = self.clock.now();
        let answer = summary(&held.look(requests, now), now);
        if !answer.allowed {
            return Ok(answer);
        }
        // They fit, and nobody comes between.
        held.take(requests, now, WriteOp::Record);
        let free: Vec<_> = requests.iter().map(|request| Request { cost: 0, ..*request }).collect();
        Ok(summary(&held.look(&free, now), now))
    }

    /// What [`decide`](Self::decide) would say, taking nothing.
    pub(crate) fn peek(&self, requests: &[Request<'_>]) -> Result<StoreReply, Error> {
        let texts = texts(requests);
        let held = self.hold(requests, &texts)?;
        let now = self.clock.now();
        Ok(summary(&held.look(requests, now), now))
    }

    /// Takes the permits whether they fit or not, because another store has admitted them; gives their stamp.
    pub(crate) fn record(&self, requests: &[Request<'_>]) -> Result<u64, Error> {
        self.take(requests, WriteOp::Record)
    }

    /// Makes permits taken at `stamp` count from now, because another store has admitted them since; gives their stamp.
    pub(crate) fn renew(&self, requests: &[Request<'_>], stamp: u64) -> Result<u64, Error> {
        self.take(requests, WriteOp::Renew { stamp })
    }

    /// Gives back permits taken at `stamp`.
    pub(crate) fn refund(&self, requests: &[Request<'_>], stamp: u64) -> Result<(), Error> {
        for request in requests.iter().filter(|request| request.cost > 0) {
            let text = request.key.encoding();
            let key_hash = self.key_hash(&text, request.key, request.limit);
            let mut shard = self.lock(key_hash.shard)?;
            self.denials.invalidate(key_hash.shard, key_hash.hash);
            shard.refund(&key_hash, &ask(request.limit, request.cost, 0, self.clock.now()), stamp);
        }
        Ok(())
    }

    /// Gives back permits taken at `stamp` from a place; nothing if the key has left it since, as nothing of it counted
    /// any more.
    pub(crate) fn refund_at(&self, place: EntryId, limit: Limit, cost: u32, stamp: u64) -> Result<(), Error> {
        let index = self.shard(place.hash);
        let mut shard = self.lock(index)?;
        self.denials.invalidate(index, place.hash);
        shard.refund_at(place, &ask(limit, cost, 0, self.clock.now()), stamp);
        Ok(())
    }

    /// Forgets what a key has taken.
    pub(crate) fn reset(&self, key: &Key, limit: Limit) -> Result<(), Error> {
        let text = key.encoding();
        let key_hash = self.key_hash(&text, key, limit);
        let mut shard = self.lock(key_hash.shard)?;
        self.denials.invalidate(key_hash.shard, key_hash.hash);
        shard.forget(&key_hash, limit.into());
        Ok(())
    }

    /// Decides about one request, for a call that may wait so many microseconds for its turn, and gives what `say` makes
    /// of it; under a lock, which it must not take time with. Gives what `orphaned` makes where that lock is taken for good.
    ///
    /// What was written before a lock is let go of can be read at once after that. Written after it, it would make whoever
    /// moves it wait.
    #[inline(always)]
    pub(crate) fn decide_one<R>(
        &self,
        request: &Request<'_>,
        max_wait: u64,
        say: impl FnOnce(&MemoryReply) -> R,
        orphaned: impl FnOnce() -> R,
    ) -> R {
        let text = request.key.encoding();
        let key_hash = self.key_hash(&text, request.key, request.limit);
        let ask = |now| AlgorithmInput { max_wait, ..ask(request.limit, request.cost, 0, now) };
        if self.denials.may_contain(&key_hash, request.cost) {
            let now = self.clock.now();
            if let Some(outcome) = self.denials.get(&key_hash, &ask(now)) {
                return say(&MemoryReply { outcome, now, place: None });
            }
        }
        let Some(mut shard) = self.shards.try_lock(key_hash.shard) else {
            return match self.decide_contended(request.limit, &key_hash, ask) {
                Some(told) => say(&told),
                None => orphaned(),
            };
        };
        let found = shard.find(&key_hash, request.limit.into());
        // Read under the lock, so that the stamps of one count never go back.
        let now = self.clock.now();
        let ask = ask(now);
        let joined = found.and_then(|place| shard.join(place, &ask));
        let Some((outcome, id)) = joined else { return say(&self.decide_in_full(shard, found, &key_hash, &ask, now)) };
        self.denials.invalidate(key_hash.shard, key_hash.hash);
        let said = say(&MemoryReply { outcome, now, place: Some(EntryId { hash: key_hash.hash, id }) });
        drop(shard);
        said
    }

    /// Decides under a lock that is waited for. Apart from the rest, which then keeps its guard in registers.
    #[cold]
    #[inline(never)]
    fn decide_contended(
        &self,
        limit: Limit,
        key_hash: &KeyHash<'_>,
        ask: impl FnOnce(Moment) -> AlgorithmInput,
    ) -> Option<MemoryReply> {
        let shard = self.shards.lock(key_hash.shard)?;
        let found = shard.find(key_hash, limit.into());
        let now = self.clock.now();
        Some(self.decide_in_full(shard, found, key_hash, &ask(now), now))
    }

    /// Whatever it takes. Apart from the rest, which is then short and keeps what it says out of memory.
    #[inline(never)]
    fn decide_in_full(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        found: Option<usize>,
        key_hash: &KeyHash<'_>,
        ask: &AlgorithmInput,
        now: Moment,
    ) -> MemoryReply {
        let told = shard.take_at(found, key_hash, ask, WriteOp::Decide);
        if told.outcome.allowed {
            self.denials.invalidate(key_hash.shard, key_hash.hash);
        } else if told.id.is_some() {
            self.denials.insert(key_hash, ask, &told.outcome);
        }
        drop(shard);
        if told.shared {
            self.overflows.count(1);
        }
        MemoryReply { outcome: told.outcome, now, place: told.id.map(|id| EntryId { hash: key_hash.hash, id }) }
    }

    fn take(&self, requests: &[Request<'_>], op: WriteOp) -> Result<u64, Error> {
        let texts = texts(requests);
        let mut held = self.hold(requests, &texts)?;
        let now = self.clock.now();
        held.take(requests, now, op);
        Ok(now.micros())
    }

    fn lock(&self, shard: usize) -> Result<MutexGuard<'_, Shard>, Error> {
        self.shards.lock(shard).ok_or_else(forked)
    }

    /// Locks what the requests are about, in one order for all, so that two decisions never wait for each other.
    fn hold<'a>(&'a self, requests: &[Request<'_>], texts: &'a [Cow<'_, [u8]>]) -> Result<LockedShards<'a>, Error> {
        let key_hash =
            |(request, text): (&Request<'_>, &'a Cow<'_, [u8]>)| self.key_hash(text, request.key, request.limit);
        let hashes: Vec<KeyHash<'_>> = requests.iter().zip(texts).map(key_hash).collect();
        let mut shards: Vec<usize> = hashes.iter().map(|key_hash| key_hash.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let shards = shards.into_iter().map(|index| Ok((index, self.lock(index)?))).collect::<Result<_, Error>>()?;
        Ok(LockedShards { hashes, shards, store: self })
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
        let shard = |key: &Key| self.key_hash(&key.encoding(), key, limit).shard;
        shard(first) != shard(second)
    }

    #[inline(always)]
    fn key_hash<'a>(&self, subject: &'a [u8], key: &Key, limit: Limit) -> KeyHash<'a> {
        let of_text = key.hash_by(|| {
            let mut hasher = self.seed.build_hasher();
            hasher.write(subject);
            hasher.finish()
        });
        let hash = self.seed.hash_one((of_text, CounterKind::from(limit)));
        KeyHash { subject, hash, shard: self.shard(hash) }
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

/// What a request's count is found by.
struct KeyHash<'a> {
    subject: &'a [u8],
    hash: u64,
    shard: usize,
}

/// Where a key that has taken something is, for as long as it has not left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryId {
    hash: u64,
    /// Given to no other key of the shard, ever.
    id: u64,
}

/// What is said to one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryReply {
    pub(crate) outcome: Outcome,
    pub(crate) now: Moment,
    /// The key's own, if it has one.
    pub(crate) place: Option<EntryId>,
}

impl MemoryReply {
    /// Microseconds from now until then.
    #[inline]
    pub(crate) fn until(&self, micros: u64) -> u64 {
        micros.saturating_sub(self.now.micros())
    }

    fn answer(&self) -> StoreReply {
        let Self { outcome: Outcome { allowed, remaining, retry_at, reset_at, delay }, now, .. } = *self;
        StoreReply {
            allowed,
            request_index: 0,
            remaining,
            retry_after: retry_at.map(|at| now.until_micros(at)),
            reset_after: now.until_micros(reset_at),
            stamp: now.micros(),
            delay: Duration::from_micros(delay),
        }
    }
}

/// The shards of one decision, locked.
struct LockedShards<'a> {
    hashes: Vec<KeyHash<'a>>,
    shards: Vec<(usize, MutexGuard<'a, Shard>)>,
    store: &'a MemoryStore,
}

impl LockedShards<'_> {
    fn look(&self, requests: &[Request<'_>], now: Moment) -> Vec<Outcome> {
        let asks = asks(requests, now).zip(&self.hashes);
        asks.filter_map(|(ask, key_hash)| Some(self.shard(key_hash)?.look(key_hash, &ask))).collect()
    }

    fn take(&mut self, requests: &[Request<'_>], now: Moment, op: WriteOp) {
        let Self { hashes, shards, store } = self;
        for (ask, key_hash) in asks(requests, now).zip(hashes) {
            store.denials.invalidate(key_hash.shard, key_hash.hash);
            let shard = shards.iter_mut().find(|(index, _)| *index == key_hash.shard);
            if let Some(shard::ShardReply { shared: true, .. }) = shard.map(|(_, shard)| shard.take(key_hash, &ask, op))
            {
                store.overflows.count(1);
            }
        }
    }

    fn shard(&self, key_hash: &KeyHash<'_>) -> Option<&Shard> {
        self.shards.iter().find(|(index, _)| *index == key_hash.shard).map(|(_, shard)| &**shard)
    }
}

fn texts<'a>(requests: &[Request<'a>]) -> Vec<Cow<'a, [u8]>> {
    requests.iter().map(|request| request.key.encoding()).collect()
}

fn asks<'a>(requests: &'a [Request<'_>], now: Moment) -> impl Iterator<Item = AlgorithmInput> + 'a {
    let pending = |index: usize| requests[index].pending(&requests[..index]);
    requests.iter().enumerate().map(move |(index, request)| ask(request.limit, request.cost, pending(index), now))
}

#[inline]
fn ask(limit: Limit, cost: u32, pending: u32, now: Moment) -> AlgorithmInput {
    AlgorithmInput {
        floor: now.floor_millis(),
        ceil: now.ceil_millis(),
        micros: now.micros(),
        span: limit.into(),
        max: limit.max(),
        burst: limit.burst(),
        cost,
        pending,
        max_wait: 0,
    }
}

/// The decision that several outcomes make.
fn summary(outcomes: &[Outcome], now: Moment) -> StoreReply {
    let denies = outcomes.iter().position(|outcome| !outcome.allowed);
    let tightest = || (0..outcomes.len()).min_by_key(|index| outcomes[*index].remaining);
    let request_index = denies.or_else(tightest).unwrap_or(0);
    let (remaining, reset_at) =
        outcomes.get(request_index).map_or((u32::MAX, 0), |told| (told.remaining, told.reset_at));
    let never = outcomes.iter().any(|outcome| outcome.retry_at.is_none());
    let retry_at = outcomes.iter().filter_map(|outcome| outcome.retry_at).max().unwrap_or(0);
    // Only a decision of one request has a delay.
    let delay = outcomes.iter().map(|outcome| outcome.delay).max().unwrap_or(0);
    StoreReply {
        allowed: denies.is_none(),
        request_index,
        remaining,
        retry_after: (!never).then(|| now.until_micros(retry_at)),
        reset_after: now.until_micros(reset_at),
        stamp: now.micros(),
        delay: Duration::from_micros(delay),
    }
}

#[cfg(test)]
mod tests;
