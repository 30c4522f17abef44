//! Charges: permits that are counted whether they fit or not.

use crate::algorithm::{CounterLevel, CounterState};
use crate::clock::Moment;
use crate::request::sharing::{self, in_memory};
use crate::request::{ChargeReply, DecisionReply, Request};
use crate::store::memory::{KeyHash, LockedShards, MemoryStore, input};

impl MemoryStore {
    /// Counts permits also beyond the limits, as many as the counters have room for.
    pub(crate) fn charge(&self, requests: &[Request<'_>]) -> DecisionReply {
        let encodings = self.hashed_encodings(requests);
        let mut locked = self.lock_all(&encodings);
        let now = self.clock.now();
        let takes = sharing::takes(requests, in_memory);
        let counted = locked.charge(&takes, now);
        let reply = |(request, level): (&Request<'_>, CounterLevel)| {
            let uncounted =
                |(take, counted): (&Request<'_>, &u32)| in_memory(request, take).then(|| take.cost - counted);
            ChargeReply {
                uncounted: takes.iter().zip(&counted).filter_map(uncounted).fold(0, u32::saturating_add),
                remaining: level.remaining,
                overdrawn: level.overdrawn,
                reset_after: now.until_micros(level.reset_at),
            }
        };
        let charges = requests.iter().zip(locked.levels(requests, now)).map(reply).collect();
        DecisionReply::of_charges(charges, now.micros())
    }
}

impl LockedShards<'_> {
    /// Records the permits of each request that its counter has room for, and returns their numbers.
    fn charge(&mut self, requests: &[Request<'_>], now: Moment) -> Vec<u32> {
        let Self { hashes, shards, store } = self;
        let charge = |(request, key_hash): (&Request<'_>, &mut KeyHash<'_>)| {
            store.denials.invalidate(key_hash.shard, key_hash.hash);
            let input = input(request.limit, request.cost, 0, now);
            let shard = shards.iter_mut().find(|(index, _)| *index == key_hash.shard);
            let (counted, is_shared) = shard.map_or((0, false), |(_, shard)| shard.charge(key_hash, &input));
            store.overflows.count(is_shared.into());
            counted
        };
        requests.iter().zip(hashes).map(charge).collect()
    }

    /// Returns what is left of each counter.
    fn levels(&self, requests: &[Request<'_>], now: Moment) -> Vec<CounterLevel> {
        let level = |(request, key_hash): (&Request<'_>, &KeyHash<'_>)| {
            let input = input(request.limit, 0, 0, now);
            Some(self.shard(key_hash)?.read(key_hash, &input, CounterState::level))
        };
        requests.iter().zip(&self.hashes).filter_map(level).collect()
    }
}
