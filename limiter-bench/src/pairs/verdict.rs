//! The verdict on a row: kept or worse.

use std::fmt;

use super::rows::INSTRUCTIONS;
use crate::sample::median;

/// The median ratio above which a row is worse.
pub const MAX_RATIO: f64 = 1.05;
/// The ratio for instructions, which other work on the machine does not change.
pub const MAX_INSTRUCTION_RATIO: f64 = 1.03;
/// Pairs of ten that must agree. 8 of 9 are enough.
const MIN_AGREEING_OF_TEN: usize = 8;

/// The figures of one row in two samples that ran one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The figure of the other build.
    pub before: f64,
    /// The figure of this build.
    pub now: f64,
}

impl Pair {
    /// Returns the figure of this build over that of the other: above 1 if this build takes more.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.before > 0.0 { self.now / self.before } else { 1.0 }
    }
}

/// The judgement of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowVerdict {
    /// No worse than before.
    Kept,
    /// Worse than before.
    Worse,
}

impl RowVerdict {
    /// Judges a row by its pairs: worse if the median ratio is above the bar and enough pairs are above 1.
    #[must_use]
    pub fn judge(unit: &str, pairs: &[Pair]) -> Self {
        let bar = if unit == INSTRUCTIONS { MAX_INSTRUCTION_RATIO } else { MAX_RATIO };
        let is_above = median(pairs.iter().map(Pair::ratio)).is_some_and(|ratio| ratio > bar);
        if is_above && 10 * above_one(pairs) >= MIN_AGREEING_OF_TEN * pairs.len() { Self::Worse } else { Self::Kept }
    }
}

/// Counts the pairs in which this build took more.
pub(super) fn above_one(pairs: &[Pair]) -> usize {
    pairs.iter().filter(|pair| pair.ratio() > 1.0).count()
}

impl fmt::Display for RowVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "kept",
            Self::Worse => "WORSE",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: [f64; 9]) -> Vec<Pair> {
        ratios.map(|now| Pair { before: 1.0, now }).into()
    }

    #[test]
    fn a_row_is_worse_if_the_median_is_high_and_eight_of_nine_pairs_agree() {
        let eight = [1.06, 1.06, 1.06, 1.06, 1.06, 1.06, 1.06, 1.06, 0.9];
        let seven = [1.06, 1.06, 1.06, 1.06, 1.06, 1.06, 1.06, 0.99, 0.9];
        let low = [1.04; 9];
        assert_eq!(RowVerdict::judge("ns", &pairs(eight)), RowVerdict::Worse);
        assert_eq!(RowVerdict::judge("ns", &pairs(seven)), RowVerdict::Kept);
        assert_eq!(RowVerdict::judge("ns", &pairs(low)), RowVerdict::Kept);
    }

    #[test]
    fn instructions_have_a_lower_bar() {
        assert_eq!(RowVerdict::judge(INSTRUCTIONS, &pairs([1.04; 9])), RowVerdict::Worse);
        assert_eq!(RowVerdict::judge(INSTRUCTIONS, &pairs([1.02; 9])), RowVerdict::Kept);
    }
}
