//! The hash of a counter, by which the tables of this process find it.

use std::fmt;
use std::num::NonZeroU64;

use crate::Key;
use crate::algorithm::CounterKind;
use crate::request::Request;
use crate::sync::seed;

/// The hash of a counter by the random seed of the process, one for all tables. A call computes it once.
///
/// It only selects a place. A place compares the key, the algorithm and the window, so equal hashes never decide. The
/// hash is in no reply, receipt, log or name: a client that knew it could choose keys that collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CounterHash(NonZeroU64);

/// A table, which mixes the hash by a constant of its own. So keys that collide in one table do not collide in others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Table {
    Denials = 0x243F_6A88_85A3_08D3,
    Leases = 0x1319_8A2E_0370_7344,
    #[cfg(any(test, feature = "redis"))]
    Demands = 0xA409_3822_299F_31D0,
    Failures = 0x082E_FA98_EC4E_6C89,
    #[cfg(any(test, feature = "redis"))]
    Batch = 0x4528_21E6_38D0_1377,
    #[cfg(any(test, feature = "redis"))]
    Held = 0xBE54_66CF_34E9_0C6C,
}

impl CounterHash {
    #[inline]
    pub(crate) fn of(request: &Request<'_>) -> Self {
        Self::new(request.key.counter_hash(&seed(), CounterKind::from(request.limit)))
    }

    /// The hash of a call's first counter. A call that is sent with others has one.
    pub(super) fn of_first(requests: &[Request<'_>]) -> Self {
        requests.first().map_or(Self(NonZeroU64::MIN), Self::of)
    }

    /// The hash of a key alone, for a table that has one place for all counters of a key.
    pub(crate) fn of_key(key: &Key) -> Self {
        Self::new(key.hash_of_key(&seed()))
    }

    #[inline]
    fn new(hash: u64) -> Self {
        Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }

    /// The hash for one table, whose places and tags may be any of its bits.
    #[inline]
    pub(crate) fn for_table(self, table: Table) -> u64 {
        mix(self.0.get() ^ table as u64)
    }

    /// Returns the index of a place in a table of so many places, and the tag: the hash, which is never 0.
    #[inline]
    pub(crate) fn place_and_tag(self, table: Table, places: usize) -> (usize, u64) {
        let hash = self.for_table(table).max(1);
        (usize::try_from(hash % places as u64).unwrap_or(0), hash)
    }
}

impl fmt::Debug for CounterHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterHash").finish_non_exhaustive()
    }
}

/// Mixes a hash so that each bit of the result depends on each bit of it. It is a bijection (the last steps of `SplitMix64`).
#[inline]
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(MULTIPLIERS[0]);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(MULTIPLIERS[1]);
    hash ^ (hash >> 31)
}

const MULTIPLIERS: [u64; 2] = [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB];

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Limit;
    use crate::clock::Clock;
    use crate::local::denial_cache::DenialCache;
    use crate::local::leases::{Leases, NewLease};
    use crate::local::recent_failures::RecentFailures;
    use crate::request::{LeaseId, SlottedRequests, StoreReply};

    const TABLES: [Table; 6] =
        [Table::Denials, Table::Leases, Table::Demands, Table::Failures, Table::Batch, Table::Held];
    const PLACES: usize = 4096;
    const LONG: Duration = Duration::from_secs(3_600);
    const DENIED: StoreReply =
        StoreReply { allowed: false, retry_after: Some(LONG), reset_after: LONG, ..StoreReply::ALLOWED };

    fn limit() -> Limit {
        "9/1m".parse().expect("a limit")
    }

    fn place(hash: CounterHash, table: Table) -> usize {
        hash.place_and_tag(table, PLACES).0
    }

    /// The number whose product with another one is 1, modulo 2^64.
    fn inverse(number: u64) -> u64 {
        (0..6).fold(number, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(number.wrapping_mul(inverse))))
    }

    /// The hash with this value in a table.
    fn with_value(value: u64, table: Table) -> CounterHash {
        let unshift = |value: u64, bits: u32| (0..64 / bits).fold(value, |hash, _| value ^ (hash >> bits));
        let hash = unshift(value, 31).wrapping_mul(inverse(MULTIPLIERS[1]));
        let hash = unshift(hash, 27).wrapping_mul(inverse(MULTIPLIERS[0]));
        CounterHash::new(unshift(hash, 30) ^ table as u64)
    }

    /// An attacker may find such keys by the times of its calls.
    #[test]
    fn keys_that_agree_in_the_bits_of_one_table_are_spread_over_the_others() {
        const KEYS: u64 = 1 << 16;
        for table in TABLES {
            for low_bits in [12, 16, 32] {
                // All bits that select a place, the low ones, and one more field of the tag.
                let hashes: Vec<_> = (0..KEYS).map(|key| with_value(key << low_bits | 0xA5A, table)).collect();
                assert!(hashes.iter().all(|hash| place(*hash, table) == 0xA5A));
                for other in TABLES.into_iter().filter(|other| *other != table) {
                    let mut chains = vec![0; PLACES];
                    hashes.iter().for_each(|hash| chains[place(*hash, other)] += 1);
                    let longest = chains.into_iter().max();
                    // 16 in a place on average. The longest chain of a random function is about 36.
                    assert!(longest <= Some(48), "{table:?}, {other:?}, {low_bits}: {longest:?}");
                }
            }
        }
    }

    /// The flood has as many keys as evict any counter of the table.
    #[test]
    fn a_flood_of_keys_that_collide_in_one_table_evicts_in_that_table_only() {
        const FLOOD: usize = 64;
        let victim = Key::new("victim");
        let victim = Request::new(&victim, limit(), 1);
        for table in TABLES {
            let is_in_place = |key: &Key| {
                place(CounterHash::of(&Request::new(key, limit(), 1)), table) == place(CounterHash::of(&victim), table)
            };
            let flood: Vec<_> = (0..).map(|index| Key::new("k").part(index)).filter(is_in_place).take(FLOOD).collect();
            let denials = DenialCache::new(LONG, Clock::System);
            let deny = |request: &Request<'_>| {
                denials.update(request, denials.version(request), false, Some(&DENIED), None);
            };
            deny(&victim);
            flood.iter().for_each(|key| deny(&Request::new(key, limit(), 1)));
            assert_eq!(denials.get(&[victim]).is_none(), table == Table::Denials, "{table:?}");
            let leases = Leases::new(Clock::System);
            let install = |key: &Key| leases.install(lease(key)).is_ok();
            let installed = flood.iter().filter(|key| install(key)).count();
            assert!(installed > 0, "{table:?}");
            assert_eq!(install(victim.key), table != Table::Leases, "{table:?}");
            for other in [Table::Demands, Table::Batch, Table::Held].into_iter().filter(|other| *other != table) {
                let of_victim = place(CounterHash::of(&victim), other);
                let is_hit = |key: &Key| place(CounterHash::of(&Request::new(key, limit(), 1)), other) == of_victim;
                assert!(!flood.iter().any(is_hit), "{table:?}, {other:?}");
            }
        }
    }

    /// Failures are found by the key alone, since a call may have failed for other limits of it.
    #[test]
    fn a_failure_counts_for_few_other_keys_and_for_each_limit_of_its_own() {
        let failures = RecentFailures::new(1);
        let key = Key::new("a");
        failures.call_failed(&Request::new(&key, limit(), 1), 5);
        let is_recent = |key: &Key, limit| {
            let request = [Request::new(key, limit, 1)];
            failures.any_within_window(SlottedRequests { requests: &request, slots: &[] }, || 6)
        };
        assert!(is_recent(&key, limit()) && is_recent(&key, Limit::WIDEST));
        let others = (0..PLACES).filter(|index| is_recent(&Key::new("b").part(index), limit())).count();
        assert!(others < 10, "{others}");
    }

    fn lease(key: &Key) -> NewLease {
        let now = Clock::System.now_with_suspend();
        NewLease {
            key: key.clone(),
            limit: limit(),
            slot: 0,
            id: LeaseId { mark: 1, end: 1 },
            permits: 9,
            ends_at: now.after(LONG),
            remaining: 0,
            reset_at: now,
            store_reset_at: 0,
            mirror_stamp: 0,
            renew_below: 0,
        }
    }

    #[test]
    fn equal_hashes_do_not_decide() {
        let keys = ["a", "b"].map(Key::new);
        let [one, other] = keys.each_ref().map(|key| Request::new(key, limit(), 1));
        let (hash, longer) = (CounterHash::of(&one), Request { limit: "9/1h".parse().expect("a limit"), ..one });
        let denials = DenialCache::new(LONG, Clock::System);
        denials.update(&one, denials.version(&one), false, Some(&DENIED), None);
        assert!(denials.get_lone(&one, || hash).is_some());
        assert!([other, longer].iter().all(|request| denials.get_lone(request, || hash).is_none()));
        let leases = Leases::new(Clock::System);
        assert!(leases.install(lease(&keys[0])).is_ok());
        assert!([other, longer].iter().all(|request| leases.take_from(request, || hash, false).is_none()));
        assert!(leases.take_from(&one, || hash, false).is_some());
    }

    #[test]
    fn equal_keys_have_one_hash_and_others_with_the_same_head_do_not() {
        let hash = |key: &Key| CounterHash::of(&Request::new(key, limit(), 1));
        let long = |end: &str| Key::new("x".repeat(300)).part(end);
        let read = Key::from_encoded(&long("a").encoded());
        assert!(hash(&long("a")) == hash(&long("a")) && hash(&long("a")) != hash(&long("b")));
        assert!(read.is_ok_and(|read| read == long("a") && hash(&read) == hash(&long("a"))));
        assert_eq!(format!("{:?}", hash(&long("a"))), "CounterHash { .. }");
    }
}
