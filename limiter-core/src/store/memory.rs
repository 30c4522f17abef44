//! The embedded store: sharded, bounded maps of counters. Each insertion removes a few expired ones.

use std::borrow::Cow;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::{AlgorithmInput, CounterKind, Outcome};
use crate::block::BlockedKeys;
use crate::clock::{Clock, Moment};
use crate::overflow::Overflows;
use crate::request::sharing::{self, in_memory};
use crate::request::{CallOptions, CountedReply, PerRequest, Request, RequestReport, StoreReply};
use crate::sync::{MutexGuard, Seed, seed};
use crate::{Key, Limit, Source};

mod shared_counter;
mod key_bytes;
mod shard;
mod denial_snapshots;
mod charge;
mod nameless;
mod blocks;
mod periods;

use denial_snapshots::DenialSnapshots;
use shard::{Shard, Shards};
use shared_counter::{Arithmetic, WriteOp};

/// The counters of a limiter in this process.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    shards: Shards,
    denials: DenialSnapshots,
    blocked_keys: BlockedKeys,
    seed: Seed,
    clock: Clock,
    overflows: Arc<Overflows>,
}

const MAX_SHARDS: usize = 64;
/// The least capacity of a shard, in keys. From so many on, hashing fills all shards about evenly.
const MIN_SHARD_KEYS: usize = 4096;
/// The number of shared counters, which count new keys while the store is full. The keys of one counter together take
/// at most what one of them may take.
const SHARED_COUNTERS: usize = 65_536;

impl MemoryStore {
    /// Creates a store that counts up to `capacity` keys exactly. Further keys share a fixed number of counters.
    pub(crate) fn new(capacity: usize, clock: Clock, source: Source) -> Self {
        let overflows = Overflows::new(source, capacity, clock.clone());
        Self::with_shared_counters(capacity, SHARED_COUNTERS, clock, overflows, Arithmetic::Own)
    }

    /// Creates a store that mirrors another one, whose windows have other edges. It adds its overflows to those given.
    pub(crate) fn mirror(capacity: usize, clock: Clock, overflows: Arc<Overflows>) -> Self {
        Self::with_shared_counters(capacity, SHARED_COUNTERS, clock, overflows, Arithmetic::Strictest)
    }

    fn with_shared_counters(
        capacity: usize,
        shared_counters: usize,
        clock: Clock,
        overflows: Arc<Overflows>,
        arithmetic: Arithmetic,
    ) -> Self {
        let (count, seed) = ((capacity / MIN_SHARD_KEYS).clamp(1, MAX_SHARDS), seed());
        let keys = overflows.keys();
        let shard =
            || Shard::new(capacity.div_ceil(count), shared_counters / count, arithmetic, seed.clone(), keys.clone());
        let shards = Shards::new(count, shard);
        let (denials, blocked_keys) = (DenialSnapshots::new(count), BlockedKeys::new(capacity));
        Self { shards, denials, blocked_keys, seed, clock, overflows }
    }

    /// Returns the counter of decisions that had to use a shared counter.
    pub(crate) fn overflows(&self) -> Arc<Overflows> {
        Arc::clone(&self.overflows)
    }

    /// Decides without a wait: see [`decide_within`](Self::decide_within).
    #[cfg(test)]
    pub(crate) fn decide(&self, requests: &[Request<'_>]) -> StoreReply {
        self.decide_within(requests, Duration::ZERO)
    }

    /// Decides, and takes the permits if all of them fit. Where the algorithm grants turns, the delay until the turn is
    /// at most `max_wait`.
    pub(crate) fn decide_within(&self, requests: &[Request<'_>], max_wait: Duration) -> StoreReply {
        if let [request] = requests
            && !request.role.is_postpaid()
        {
            let max_wait = u64::try_from(max_wait.as_micros()).unwrap_or(u64::MAX);
            return self.decide_one(request, max_wait, MemoryReply::store_reply);
        }
        self.decide_several(requests, None)
    }

    /// Decides without a wait about several requests, with a report of each.
    #[cold]
    pub(crate) fn decide_with_reports(&self, requests: &[Request<'_>]) -> CountedReply {
        let mut per_request = PerRequest::default();
        let reply = self.decide_each(requests, &mut per_request);
        CountedReply::with_reports(reply, per_request)
    }

    /// Decides without a wait about several requests. Adds the report of each.
    pub(crate) fn decide_each(&self, requests: &[Request<'_>], per_request: &mut PerRequest) -> StoreReply {
        self.decide_several(requests, Some(per_request))
    }

    /// Decides without a wait. Adds the report of each request, as it is afterwards, and the reply about each observed
    /// one, which a denial has not.
    fn decide_several(&self, requests: &[Request<'_>], per_request: Option<&mut PerRequest>) -> StoreReply {
        let blocked = self.blocked(requests, true);
        let encodings = self.hashed_encodings(requests);
        let mut locked = self.lock_all(&encodings);
        let now = self.clock.now();
        let before = locked.peek(requests, now);
        let (enforced, observed) = before.split_at(sharing::enforced(requests));
        let reply =
            blocked.unwrap_or_else(|| self.begin_blocks(requests, enforced, merge_outcomes(enforced, now), now));
        if !reply.allowed {
            if let Some(per_request) = per_request {
                per_request.reports = locked.reports(requests, now);
            }
            return reply;
        }
        // The permits fit, and the locks are still held.
        locked.apply(requests, now, WriteOp::Record);
        let after = locked.peek(&of_no_cost(requests), now);
        let (enforced, observed_after) = after.split_at(enforced.len());
        let or_denial = |(before, after): (&Outcome, &Outcome)| if before.allowed { *after } else { *before };
        let observed: Vec<_> = observed.iter().zip(observed_after).map(or_denial).collect();
        if let Some(per_request) = per_request {
            per_request.reports = reports_of(enforced, now);
            per_request.observed =
                observed.iter().map(|outcome| merge_outcomes(slice::from_ref(outcome), now)).collect();
        }
        merge_outcomes(enforced, now)
    }

    /// Returns the reply that a decision would have, and takes nothing.
    pub(crate) fn peek(&self, requests: &[Request<'_>]) -> StoreReply {
        self.peek_several(requests, None)
    }

    /// Returns the reply that a decision would have, and takes nothing. With a report of each request if the options want
    /// them.
    pub(crate) fn peek_with_options(&self, requests: &[Request<'_>], options: &CallOptions) -> CountedReply {
        if !options.wants_reports {
            return CountedReply::from_store(self.peek(requests), 0);
        }
        let mut per_request = PerRequest::default();
        let reply = self.peek_each(requests, &mut per_request);
        CountedReply::with_reports(reply, per_request)
    }

    /// Returns the reply that a decision about several requests would have, and takes nothing. Adds the report of each.
    #[cold]
    pub(crate) fn peek_each(&self, requests: &[Request<'_>], per_request: &mut PerRequest) -> StoreReply {
        self.peek_several(requests, Some(per_request))
    }

    fn peek_several(&self, requests: &[Request<'_>], per_request: Option<&mut PerRequest>) -> StoreReply {
        let blocked = self.blocked(requests, false);
        let encodings = self.hashed_encodings(requests);
        let locked = self.lock_all(&encodings);
        let now = self.clock.now();
        if let Some(per_request) = per_request {
            per_request.reports = locked.reports(requests, now);
        }
        blocked.unwrap_or_else(|| merge_outcomes(&locked.peek(&requests[..sharing::enforced(requests)], now), now))
    }

    /// Takes permits that another store has admitted, even beyond the limit. Returns their stamp.
    pub(crate) fn record(&self, requests: &[Request<'_>]) -> u64 {
        self.apply(requests, WriteOp::Record)
    }

    /// Changes the stamp of permits taken at `stamp` to now, because another store has admitted them since. Returns the
    /// new stamp.
    pub(crate) fn restamp(&self, requests: &[Request<'_>], stamp: u64) -> u64 {
        self.apply(requests, WriteOp::Restamp { stamp })
    }

    /// Returns permits taken at `stamp`.
    #[cfg(test)]
    pub(crate) fn refund(&self, requests: &[Request<'_>], stamp: u64) {
        self.refund_part(requests, stamp, u32::MAX);
    }

    /// Returns at most `max_permits` of each request, taken at `stamp`. The cost of a request is what the call holds.
    pub(crate) fn refund_part(&self, requests: &[Request<'_>], stamp: u64, max_permits: u32) {
        for (request, kept) in sharing::refunds(requests, max_permits, in_memory) {
            let returned = request.cost;
            if returned == 0 {
                continue;
            }
            let encoding = self.hashed_encoding(request.key, request.limit);
            let key_hash = self.key_hash(&encoding);
            let mut shard = self.shards.lock(key_hash.shard);
            self.denials.invalidate(key_hash.shard, key_hash.hash);
            shard.refund(&key_hash, &self.input(request.limit, returned, kept, self.clock.now()), stamp);
        }
    }

    /// Removes all permits that a key has taken, and ends its block.
    pub(crate) fn reset(&self, request: &Request<'_>) {
        let (key, limit) = (request.key, request.limit);
        self.forget_block(request);
        let encoding = self.hashed_encoding(key, limit);
        let key_hash = self.key_hash(&encoding);
        let mut shard = self.shards.lock(key_hash.shard);
        self.denials.invalidate(key_hash.shard, key_hash.hash);
        shard.clear(&key_hash, limit.into());
    }

    /// Decides one request as [`decide_unblocked`](Self::decide_unblocked) does, under the block of its rule.
    #[inline(always)]
    pub(crate) fn decide_one<R>(
        &self,
        request: &Request<'_>,
        max_wait: u64,
        use_reply: impl FnOnce(&MemoryReply) -> R,
    ) -> R {
        match request.block {
            Some(block) => use_reply(&self.decide_one_or_block(request, block, max_wait)),
            None => self.decide_unblocked(request, max_wait, use_reply),
        }
    }

    /// Decides one request without a look at blocks, and returns what `use_reply` makes of the reply. The delay until the
    /// turn is at most `max_wait` microseconds.
    ///
    /// `use_reply` runs under the lock and must be short. The unlock drains the store buffer, so the value that
    /// `use_reply` built can be moved right after it. A value built after the unlock would stall on store-to-load
    /// forwarding.
    #[inline(always)]
    pub(crate) fn decide_unblocked<R>(
        &self,
        request: &Request<'_>,
        max_wait: u64,
        use_reply: impl FnOnce(&MemoryReply) -> R,
    ) -> R {
        let encoding = self.hashed_encoding(request.key, request.limit);
        let key_hash = self.key_hash(&encoding);
        let input = move |now| AlgorithmInput { max_wait, ..self.input(request.limit, request.cost, 0, now) };
        if request.cost == 1 && self.denials.may_contain(key_hash.shard, key_hash.hash) {
            let now = self.clock.now();
            if let Some(outcome) = self.denials.get(&key_hash, &input(now)) {
                return use_reply(&MemoryReply { outcome, now, entry: None, is_blocked: false, is_shared: false });
            }
        }
        let Some(mut shard) = self.shards.try_lock(key_hash.shard) else {
            return use_reply(&self.decide_contended(key_hash, input));
        };
        // The clock is read under the lock, so that the stamps of one counter never decrease.
        let now = self.clock.now();
        let (outcome, id) = match shard.decide_fast_path(&key_hash, &input(now)) {
            Ok(decided) => decided,
            // With an input of its own, so that the compiler keeps that of the fast path in registers.
            Err(found) => return use_reply(&self.decide_slow_path(shard, found, key_hash, &input(now), now)),
        };
        self.denials.invalidate(key_hash.shard, key_hash.hash);
        let result = use_reply(&MemoryReply {
            outcome,
            now,
            entry: Some(EntryId { hash: key_hash.hash, id }),
            is_blocked: false,
            is_shared: false,
        });
        drop(shard);
        result
    }

    /// Decides after waiting for the lock. A function of its own, so that `decide_one` keeps its guard in registers.
    #[cold]
    #[inline(never)]
    fn decide_contended(&self, key_hash: KeyHash<'_>, input: impl FnOnce(Moment) -> AlgorithmInput) -> MemoryReply {
        let shard = self.shards.lock(key_hash.shard);
        let now = self.clock.now();
        let input = input(now);
        let found = shard.find(&key_hash, input.kind);
        self.decide_slow_path(shard, found, key_hash, &input, now)
    }

    /// Decides in every case that the fast path does not cover. A function of its own, so that `decide_one` stays short
    /// and keeps its reply in registers.
    #[inline(never)]
    fn decide_slow_path(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        found: Option<usize>,
        key_hash: KeyHash<'_>,
        input: &AlgorithmInput,
        now: Moment,
    ) -> MemoryReply {
        let reply = shard.apply_at(found, &key_hash, input, WriteOp::Decide);
        if reply.outcome.allowed {
            self.denials.invalidate(key_hash.shard, key_hash.hash);
        } else if reply.id.is_some() {
            self.denials.insert(&key_hash, input, &reply.outcome);
        }
        drop(shard);
        if reply.shared {
            self.overflows.count(1);
        }
        let entry = reply.id.map(|id| EntryId { hash: key_hash.hash, id });
        MemoryReply { outcome: reply.outcome, now, entry, is_blocked: false, is_shared: reply.shared }
    }

    fn apply(&self, requests: &[Request<'_>], op: WriteOp) -> u64 {
        let encodings = self.hashed_encodings(requests);
        let mut locked = self.lock_all(&encodings);
        let now = self.clock.now();
        locked.apply(requests, now, op);
        now.micros()
    }

    fn inputs<'a>(
        &self,
        requests: &'a [Request<'_>],
        now: Moment,
    ) -> impl Iterator<Item = AlgorithmInput> + use<'a, '_> {
        let pending = |index: usize| sharing::pending(requests, index, in_memory);
        let input =
            move |(index, request): (usize, &Request<'_>)| self.input(request.limit, request.cost, pending(index), now);
        requests.iter().enumerate().map(input)
    }

    #[inline]
    fn input(&self, limit: Limit, cost: u32, pending: u32, now: Moment) -> AlgorithmInput {
        AlgorithmInput {
            floor: now.floor_millis(),
            ceil: now.ceil_millis(),
            micros: now.micros(),
            kind: limit.into(),
            max: limit.max(),
            burst: limit.burst(),
            cost,
            pending,
            max_wait: 0,
            calendar: limit.calendar_periods().map(|calendar| self.calendar_time(calendar, now)),
        }
    }

    /// Locks the shards of the requests in ascending order, so that two decisions never wait for each other.
    fn lock_all<'a>(&'a self, encodings: &'a [HashedEncoding<'_>]) -> LockedShards<'a> {
        let hashes: Vec<KeyHash<'_>> = encodings.iter().map(|encoding| self.key_hash(encoding)).collect();
        let mut shards: Vec<usize> = hashes.iter().map(|key_hash| key_hash.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let shards = shards.into_iter().map(|index| (index, self.shards.lock(index))).collect();
        LockedShards { hashes, shards, store: self }
    }

    /// Runs a function while every lock is held.
    #[cfg(all(test, not(limiter_loom)))]
    pub(crate) fn with_all_locked<R>(&self, run: impl FnOnce() -> R) -> R {
        let _guards: Vec<_> = (0..self.shards.len()).map(|shard| self.shards.lock(shard)).collect();
        run()
    }

    /// Returns true if two keys are in different shards.
    #[cfg(all(test, limiter_loom))]
    pub(crate) fn in_different_shards(&self, first: &Key, second: &Key, limit: Limit) -> bool {
        let shard = |key: &Key| self.key_hash(&self.hashed_encoding(key, limit)).shard;
        shard(first) != shard(second)
    }

    #[inline(always)]
    fn hashed_encoding<'k>(&self, key: &'k Key, limit: Limit) -> HashedEncoding<'k> {
        key.hashed_encoding(&self.seed, CounterKind::from(limit))
    }

    #[inline(always)]
    fn key_hash<'a>(&self, (encoding, hash): &'a HashedEncoding<'_>) -> KeyHash<'a> {
        KeyHash { encoding, hash: *hash, shard: self.shard_index(*hash) }
    }

    fn hashed_encodings<'k>(&self, requests: &[Request<'k>]) -> Vec<HashedEncoding<'k>> {
        requests.iter().map(|request| self.hashed_encoding(request.key, request.limit)).collect()
    }

    /// Returns the index of the shard of a hash.
    #[inline]
    fn shard_index(&self, hash: u64) -> usize {
        // The middle bits: the map of a shard uses the lowest and the highest.
        let middle = (hash >> 16) & u64::from(u32::MAX);
        // Spreads as evenly as a remainder, without a division.
        usize::try_from((middle * self.shards.len() as u64) >> 32).unwrap_or(0)
    }
}

/// An encoded key, and the hash of its counter.
type HashedEncoding<'a> = (Cow<'a, [u8]>, u64);

/// The encoded key of a request, the hash of its counter, and its shard.
#[derive(Clone, Copy)]
struct KeyHash<'a> {
    encoding: &'a [u8],
    hash: u64,
    shard: usize,
}

/// The identity of a key's entry, valid until the entry is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryId {
    hash: u64,
    /// A number that the shard never assigns again.
    id: u64,
}

impl EntryId {
    /// The hash of the entry's counter: see [`Key::counter_hash`].
    pub(crate) fn counter_hash(self) -> u64 {
        self.hash
    }
}

/// Permits of one call from an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPermits {
    pub(crate) entry: EntryId,
    /// The permits that the call has not returned.
    pub(crate) held: u32,
    /// The time at which they were taken, in microseconds.
    pub(crate) stamp: u64,
}

/// The reply to one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryReply {
    pub(crate) outcome: Outcome,
    pub(crate) now: Moment,
    /// The entry of the key, if it has one.
    pub(crate) entry: Option<EntryId>,
    /// The key is blocked.
    pub(crate) is_blocked: bool,
    /// Other keys use the same counter, since the store is full.
    pub(crate) is_shared: bool,
}

impl MemoryReply {
    /// Returns the microseconds from now until an instant.
    #[inline]
    pub(crate) fn until(&self, micros: u64) -> u64 {
        micros.saturating_sub(self.now.micros())
    }

    fn store_reply(&self) -> StoreReply {
        let Self { outcome: Outcome { allowed, remaining, retry_at, reset_at, delay }, now, is_blocked, .. } = *self;
        StoreReply {
            allowed,
            request_index: 0,
            remaining,
            retry_after: retry_at.map(|at| now.until_micros(at)),
            reset_after: now.until_micros(reset_at),
            stamp: now.micros(),
            delay: Duration::from_micros(delay),
            is_blocked,
        }
    }
}

/// The locked shards of one decision.
struct LockedShards<'a> {
    hashes: Vec<KeyHash<'a>>,
    shards: Vec<(usize, MutexGuard<'a, Shard>)>,
    store: &'a MemoryStore,
}

impl LockedShards<'_> {
    /// Returns the outcome of each request, in their order, and takes nothing.
    fn peek(&self, requests: &[Request<'_>], now: Moment) -> Vec<Outcome> {
        let inputs = self.store.inputs(requests, now).zip(&self.hashes);
        inputs.filter_map(|(input, key_hash)| Some(self.shard(key_hash)?.peek(key_hash, &input))).collect()
    }

    /// Returns the report of each request that is not observed, as it is now.
    fn reports(&self, requests: &[Request<'_>], now: Moment) -> Vec<RequestReport> {
        reports_of(&self.peek(&of_no_cost(&requests[..sharing::enforced(requests)]), now), now)
    }

    fn apply(&mut self, requests: &[Request<'_>], now: Moment, op: WriteOp) {
        let Self { hashes, shards, store } = self;
        for (input, key_hash) in store.inputs(&sharing::takes(requests, in_memory), now).zip(hashes) {
            store.denials.invalidate(key_hash.shard, key_hash.hash);
            let shard = shards.iter_mut().find(|(index, _)| *index == key_hash.shard);
            if let Some(shard::ShardReply { shared: true, .. }) =
                shard.map(|(_, shard)| shard.apply(key_hash, &input, op))
            {
                store.overflows.count(1);
            }
        }
    }

    fn shard(&self, key_hash: &KeyHash<'_>) -> Option<&Shard> {
        self.shards.iter().find(|(index, _)| *index == key_hash.shard).map(|(_, shard)| &**shard)
    }
}

fn of_no_cost<'a>(requests: &[Request<'a>]) -> Vec<Request<'a>> {
    requests.iter().map(|request| Request { cost: 0, ..*request }).collect()
}

fn reports_of(outcomes: &[Outcome], now: Moment) -> Vec<RequestReport> {
    let report = |&Outcome { remaining, reset_at, .. }: &Outcome| RequestReport {
        remaining,
        reset_after: now.until_micros(reset_at),
    };
    outcomes.iter().map(report).collect()
}

/// Merges the outcomes of several requests into the reply of one decision.
fn merge_outcomes(outcomes: &[Outcome], now: Moment) -> StoreReply {
    let denying = outcomes.iter().position(|outcome| !outcome.allowed);
    let tightest = || (0..outcomes.len()).min_by_key(|index| outcomes[*index].remaining);
    let request_index = denying.or_else(tightest).unwrap_or(0);
    let (remaining, reset_at) =
        outcomes.get(request_index).map_or((u32::MAX, 0), |outcome| (outcome.remaining, outcome.reset_at));
    let never = outcomes.iter().any(|outcome| outcome.retry_at.is_none());
    let retry_at = outcomes.iter().filter_map(|outcome| outcome.retry_at).max().unwrap_or(0);
    // Only a decision of one request has a delay.
    let delay = outcomes.iter().map(|outcome| outcome.delay).max().unwrap_or(0);
    StoreReply {
        allowed: denying.is_none(),
        request_index,
        remaining,
        retry_after: (!never).then(|| now.until_micros(retry_at)),
        reset_after: now.until_micros(reset_at),
        stamp: now.micros(),
        delay: Duration::from_micros(delay),
        is_blocked: false,
    }
}

#[cfg(test)]
mod tests;
