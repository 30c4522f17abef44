//! The names of all users, and those of the full shard.

use std::ops::Range;

use limiter_testkit::{SLOTS, slot_of};
use rate_limited::Key;

use super::MASTERS;

/// The number of users, a thousand million.
pub(super) const USERS: u32 = 1_000_000_000;
/// The number of the first user. So all names have the same length.
const FIRST: u32 = 1_000_000_000;
/// A factor without a common divisor with [`USERS`]. It scatters the ranks over the numbers.
const SCATTER: u64 = 387_420_489;
/// The names with the same first digits.
const TAIL: u32 = 100_000;

/// The names of users by their rank: 1 is the most frequent user.
///
/// The hash of a cluster is linear for names of one length. So a slot is three slots in one `xor`: of a name of zeros,
/// of the first five digits, and of the last five.
#[derive(Debug)]
pub(super) struct Names {
    heads: Vec<u16>,
    tails: Vec<u16>,
}

impl Names {
    /// Creates the tables of slots.
    #[must_use]
    pub(super) fn new() -> Self {
        let slot = |number: u32| slot_of(subject(number).as_bytes());
        let zeros = slot(0);
        let heads = (0..2 * FIRST / TAIL).map(|head| slot(head * TAIL) ^ zeros).collect();
        Self { heads, tails: (0..TAIL).map(slot).collect() }
    }

    /// Returns the slot of the user of this rank.
    #[must_use]
    pub(super) fn slot(&self, rank: u32) -> u16 {
        let number = number(rank);
        self.heads[(number / TAIL) as usize] ^ self.tails[(number % TAIL) as usize]
    }

    /// Returns true if the user of this rank counts in the full shard.
    #[must_use]
    pub(super) fn is_in_shard(&self, rank: u32) -> bool {
        shard_slots().contains(&self.slot(rank))
    }
}

/// Returns the slots of the full shard, the first of the cluster.
pub(super) fn shard_slots() -> Range<u16> {
    0..SLOTS / MASTERS
}

/// Returns the key of the user of this rank.
pub(super) fn key(rank: u32) -> Key {
    Key::new("user:").part(number(rank))
}

/// Returns the number of the user of this rank. No two users have the same.
fn number(rank: u32) -> u32 {
    let scattered = u64::from(rank) * SCATTER % u64::from(USERS);
    FIRST + u32::try_from(scattered).unwrap_or_default()
}

/// Returns the subject of the key, which is the part of a Redis name that is hashed.
fn subject(number: u32) -> String {
    format!("user:@{number:010}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_names() {
        let names = Names::new();
        let ranks = (1..1_000).chain((1..1_000).map(|step| step * 999_999)).chain([USERS]);
        let mut in_shard = 0;
        for rank in ranks {
            let subject = key(rank).encoded().to_string();
            assert_eq!(subject, self::subject(number(rank)));
            assert_eq!(names.slot(rank), slot_of(subject.as_bytes()), "{subject}");
            in_shard += u32::from(names.is_in_shard(rank));
        }
        assert!((90..180).contains(&in_shard), "about one in {MASTERS} of 1 999: {in_shard}");
    }
}
