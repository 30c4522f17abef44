//! Pseudorandom numbers that are the same in every run.

/// A pseudorandom generator. A seed determines the whole sequence, so a failure can be repeated.
///
/// The algorithm is `SplitMix64` (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns any number.
    pub fn any(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `bound - 1`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.any().checked_rem(bound).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn matches_the_published_sequence() {
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.any(), random.any(), random.any()], expected);
    }

    #[test]
    fn stays_within_its_bounds_and_reaches_them() {
        let mut random = Random::new(1);
        let seen: std::collections::BTreeSet<_> = (0..200).map(|_| random.between(3, 6)).collect();
        assert!(seen.into_iter().eq(3..=6));
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
    }
}
