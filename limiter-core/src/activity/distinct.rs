//! The number of different keys among many.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// An estimate of the number of different keys, by linear counting (Whang, Vander-Zanden and Taylor, 1990): each key sets
/// one of 4 096 bits by its hash, and the number of bits that stay unset gives that of the keys.
///
/// A dozen keys are counted exactly 98 times of 100, 1 000 keys within 2 % and 10 000 within 5 %.
pub(super) struct DistinctKeys([AtomicU64; WORDS]);

const WORDS: usize = 64;
const BITS: u32 = 4096;

impl Default for DistinctKeys {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl DistinctKeys {
    /// Adds a key by its hash.
    #[inline]
    pub(super) fn add(&self, hash: u64) {
        let (word, bit) = (&self.0[usize::from(hash.to_le_bytes()[7]) % WORDS], 1 << ((hash >> 32) % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Removes all keys, and returns their number: at most 34 000.
    pub(super) fn take(&self) -> u64 {
        let set: u32 = self.0.iter().map(|word| word.swap(0, Ordering::Relaxed).count_ones()).sum();
        let unset = f64::from(BITS - set).max(1.0);
        let keys = f64::from(BITS) * (f64::from(BITS) / unset).ln();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 34 070")]
        let keys = keys.round() as u64;
        keys
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::sync::seed;

    #[test]
    fn the_number_of_keys_is_estimated() {
        let keys = DistinctKeys::default();
        assert_eq!(keys.take(), 0);
        for (number, tolerance) in [(1_u64, 0), (12, 1), (1_000, 40), (10_000, 800)] {
            for _ in 0..3 {
                (0..number).for_each(|key| keys.add(seed().hash_one(("denied", key))));
            }
            let estimate = keys.take();
            assert!(estimate.abs_diff(number) <= tolerance, "{estimate} of {number}");
        }
        (0..1_000_000_u64).for_each(|key| keys.add(seed().hash_one(key)));
        assert!((30_000..40_000).contains(&keys.take()));
    }
}
