//! The hash of a counter, by which the tables of this process find it.

use std::fmt;
use std::num::NonZeroU64;

use crate::Key;
use crate::request::Request;
use crate::sync::seed;

/// The hash of a counter by the random seed of the process, one for all tables. A call that does not wait computes it once
/// for them.
///
/// It only selects a place. A place compares the key, the algorithm and the window, so equal hashes never decide. The
/// hash is in no reply, receipt, log or name: a client that knew it could choose keys that collide.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CounterHash(NonZeroU64);

/// A table with a fixed number of places, which mixes the hash by a constant of its own. So keys that collide in one table
/// do not collide in others. A map that grows needs none: it compares the whole hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Table {
    Denials = 0x243F_6A88_85A3_08D3,
    Leases = 0x1319_8A2E_0370_7344,
    #[cfg(any(test, feature = "redis"))]
    Demands = 0xA409_3822_299F_31D0,
    Failures = 0x082E_FA98_EC4E_6C89,
}

impl CounterHash {
    #[inline]
    pub(crate) fn of(request: &Request<'_>) -> Self {
        Self::new(request.counter_hash())
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
    fn for_table(self, table: Table) -> u64 {
        mix(self.0.get() ^ table as u64)
    }

    /// Returns the index of a place in a table, and the tag: the hash, which is never 0. The number of places is a power
    /// of two.
    #[inline]
    pub(crate) fn place_and_tag(self, table: Table, places: usize) -> (usize, u64) {
        debug_assert!(places.is_power_of_two(), "{places} places");
        let hash = self.for_table(table).max(1);
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits select a place")]
        let index = hash as usize & (places - 1);
        (index, hash)
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
    use super::*;
    use crate::Limit;

    const TABLES: [Table; 4] = [Table::Denials, Table::Leases, Table::Demands, Table::Failures];
    const PLACES: usize = 4096;

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
