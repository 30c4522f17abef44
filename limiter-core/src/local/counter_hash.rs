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
///
/// The modules of the tables define their constants, from the first digits of pi.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table(u64);

impl Table {
    pub(crate) const fn new(constant: u64) -> Self {
        Self(constant)
    }
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
        mix(self.0.get() ^ table.0)
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
mod tests;
