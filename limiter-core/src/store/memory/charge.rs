//! Charges and settlements: permits that are counted whether they fit or not, or returned once the cost is known.

use crate::Limit;
use crate::algorithm::{CounterLevel, CounterState};
use crate::clock::Moment;
use crate::request::settlement::{self, CounterChange};
use crate::request::sharing::in_memory;
use crate::request::{ChargeReply, DecisionReply, Request};
use crate::store::memory::{EntryPermits, KeyHash, LockedShards, MemoryStore};

impl MemoryStore {
    /// Counts permits also beyond the limits, as many as the counters have room for.
    pub(crate) fn charge(&self, requests: &[Request<'_>]) -> DecisionReply {
        self.change(&settlement::charges(requests, in_memory), 0)
    }

    /// Changes what the requests of a call count, of permits that were taken at `stamp`: from their costs to `after`. What
    /// is added counts also beyond the limits, as far as the counters have room.
    pub(crate) fn settle(&self, requests: &[Request<'_>], after: &[u32], stamp: u64) -> DecisionReply {
        self.change(&settlement::changes(requests, after, in_memory), stamp)
    }

    /// Makes changes of permits that were taken at `stamp`.
    pub(crate) fn change(&self, changes: &[CounterChange<'_>], stamp: u64) -> DecisionReply {
        let requests = settlement::charged(changes);
        let encodings = self.hashed_encodings(&requests);
        let mut locked = self.lock_all(&encodings);
        let now = self.clock.now();
        let uncounted = locked.change(changes, now, stamp);
        let reply = |(request, level): (&Request<'_>, CounterLevel)| {
            let of_counter = |(other, uncounted): (&Request<'_>, &u32)| in_memory(request, other).then_some(*uncounted);
            let uncounted = requests.iter().zip(&uncounted).filter_map(of_counter).fold(0, u32::saturating_add);
            charge_reply(level, uncounted, now)
        };
        let charges = requests.iter().zip(locked.levels(&requests, now)).map(reply).collect();
        DecisionReply::of_charges(charges, now.micros())
    }

    /// Changes what a call counts in an entry to `after`. If the entry was removed since, none of its permits count any more,
    /// and what is added counts by the hash of the key alone.
    pub(crate) fn settle_entry(&self, taken: EntryPermits, limit: Limit, after: u32) -> ChargeReply {
        let EntryPermits { entry, held, stamp } = taken;
        let index = self.shard_index(entry.hash);
        let mut shard = self.shards.lock(index);
        self.denials.invalidate(index, entry.hash);
        let now = self.clock.now();
        if after < held {
            shard.refund_entry(entry, &self.input(limit, held - after, after, now), stamp);
        }
        let charged = after.saturating_sub(held);
        let (counted, level, is_shared) = shard.charge_entry(entry, &self.input(limit, charged, 0, now));
        drop(shard);
        self.overflows.count(is_shared.into());
        charge_reply(level, charged - counted, now)
    }
}

fn charge_reply(level: CounterLevel, uncounted: u32, now: Moment) -> ChargeReply {
    let CounterLevel { remaining, overdrawn, reset_at } = level;
    ChargeReply { uncounted, remaining, overdrawn, reset_after: now.until_micros(reset_at) }
}

impl LockedShards<'_> {
    /// Changes the counters, and returns the permits of each request for which its counter had no room.
    fn change(&mut self, changes: &[CounterChange<'_>], now: Moment, stamp: u64) -> Vec<u32> {
        let Self { hashes, shards, store } = self;
        let change = |(change, key_hash): (&CounterChange<'_>, &mut KeyHash<'_>)| {
            let &CounterChange { charged: Request { limit, cost, .. }, returned, kept } = change;
            store.denials.invalidate(key_hash.shard, key_hash.hash);
            let Some((_, shard)) = shards.iter_mut().find(|(index, _)| *index == key_hash.shard) else { return cost };
            if returned > 0 {
                shard.refund(key_hash, &store.input(limit, returned, kept, now), stamp);
            }
            let (counted, is_shared) = shard.charge(key_hash, &store.input(limit, cost, 0, now));
            store.overflows.count(is_shared.into());
            cost - counted
        };
        changes.iter().zip(hashes).map(change).collect()
    }

    /// Returns what is left of each counter.
    fn levels(&self, requests: &[Request<'_>], now: Moment) -> Vec<CounterLevel> {
        let level = |(request, key_hash): (&Request<'_>, &KeyHash<'_>)| {
            let input = self.store.input(request.limit, 0, 0, now);
            Some(self.shard(key_hash)?.read(key_hash, &input, CounterState::level))
        };
        requests.iter().zip(&self.hashes).filter_map(level).collect()
    }
}
