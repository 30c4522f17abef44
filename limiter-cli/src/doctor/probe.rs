//! Decisions on keys of the checks' own, which expire after their window.

use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use rate_limited::{Decision, Error, Key, Limit, Limiter};

use super::servers::{Servers, Topology};
use super::slot_map::{name_of, slot_of};

/// Keys that are tried for a master. One with a single slot has a key among 16 384 on average.
const MAX_KEYS_TRIED: u32 = 200_000;

/// Keys of this run of the checks: other runs have others.
pub(super) struct Probe {
    run: String,
    limit: Limit,
}

/// An operation of a limiter, and its result.
pub(super) type Operation = (&'static str, Result<(), Error>);

impl Probe {
    pub(super) fn new() -> Result<Self, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self { run: format!("{}-{}", process::id(), now.as_nanos()), limit: "1000/10s".parse()? })
    }

    pub(super) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the key of this number.
    pub(super) fn key(&self, number: u32) -> Key {
        Key::new("limiter-doctor:").part(&self.run).text(":").part(number)
    }

    /// Returns a name under this prefix that no counter has, for commands that read or write nothing.
    pub(super) fn unused_name(&self, prefix: &str) -> String {
        format!("{prefix}:{{!doctor-{}}}", self.run)
    }

    /// Returns a key for each master, with the master's name: of a cluster, a key in its slots.
    pub(super) fn key_of_each_master(&self, limiter: &Limiter, servers: &Servers) -> Vec<(String, Key)> {
        let Topology::Cluster(Ok(shards)) = &servers.topology else {
            let name = servers.masters.first().map(|node| node.name.clone()).unwrap_or_default();
            return vec![(name, self.key(0))];
        };
        let mut keys: Vec<Option<Key>> = shards.iter().map(|_| None).collect();
        for number in 0..MAX_KEYS_TRIED {
            let key = self.key(number);
            let slot = limiter.store_key(&key, &self.limit).map_or(0, |name| slot_of(&name));
            let owner = shards.iter().position(|shard| shard.slots.iter().any(|slots| slots.contains(&slot)));
            if let Some(key_of_owner) = owner.and_then(|owner| keys.get_mut(owner)) {
                key_of_owner.get_or_insert(key);
            }
            if keys.iter().all(Option::is_some) {
                break;
            }
        }
        let names = shards.iter().map(|shard| name_of(&shard.master));
        names.zip(keys).filter_map(|(name, key)| Some((name, key?))).collect()
    }

    /// Runs every operation of a limiter on a key: take, peek, refund and reset.
    ///
    /// A decision that is allowed has a receipt. Without one there is nothing to refund.
    pub(super) async fn run_all_operations(&self, limiter: &Limiter, key: &Key) -> Vec<Operation> {
        let taken = limiter.check(key, &self.limit).await;
        let peeked = limiter.peek(key, &self.limit).await.map(drop);
        let refunded = match &taken {
            Ok(Decision::Allowed(allowed)) => limiter.refund(allowed).await,
            _ => Ok(()),
        };
        let reset = limiter.reset(key, &self.limit).await;
        vec![("take", taken.map(drop)), ("peek", peeked), ("refund", refunded), ("reset", reset)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot_map::{SLOTS, Shard};
    use super::*;

    #[test]
    fn a_master_is_named_as_in_a_url() {
        let shard =
            |host: &str| Shard { slots: vec![0..=SLOTS - 1], master: (host.to_owned(), 7), replicas: Vec::new() };
        for (host, expected) in [("a", "a:7"), ("::1", "[::1]:7")] {
            let servers = Servers { topology: Topology::Cluster(Ok(vec![shard(host)])), ..Servers::none() };
            let keys = Probe::new().expect("a limit").key_of_each_master(&Limiter::memory(), &servers);
            assert_eq!(keys.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), [expected]);
        }
    }
}
