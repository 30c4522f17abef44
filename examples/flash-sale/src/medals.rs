//! The medals of a club, packed into one score of a sorted set.
//!
//! A score is an `f64`, which is exact up to 53 bits. Gold has the highest 17 of 51 bits, then silver, then bronze. So
//! the order of the scores is that of the medals: by gold, then silver, then bronze.

use serde::{Deserialize, Serialize};

const BITS: u32 = 17;

/// The most medals of one grade. One more would be counted as a medal of the next better grade.
pub(crate) const MAX_MEDALS: u32 = (1 << BITS) - 1;

/// The grade of an item, which is the medal of the buyer's club.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Grade {
    Gold,
    Silver,
    Bronze,
}

/// The numbers of medals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct Medals {
    pub(crate) gold: u32,
    pub(crate) silver: u32,
    pub(crate) bronze: u32,
}

impl Grade {
    /// Returns the grade of the item with this number: of ten items one is gold, and two are silver.
    pub(crate) fn of_item(number: u32) -> Self {
        match number % 10 {
            7 => Self::Gold,
            2 | 5 => Self::Silver,
            _ => Self::Bronze,
        }
    }

    /// Returns the score of one medal.
    pub(crate) fn score(self) -> u64 {
        match self {
            Self::Gold => 1 << (2 * BITS),
            Self::Silver => 1 << BITS,
            Self::Bronze => 1,
        }
    }
}

impl Medals {
    /// Returns the medals of a score. Bits above the 51 are ignored.
    pub(crate) fn of_score(score: u64) -> Self {
        let grade = |shift: u32| u32::try_from(score >> shift & u64::from(MAX_MEDALS)).unwrap_or(MAX_MEDALS);
        Self { gold: grade(2 * BITS), silver: grade(BITS), bronze: grade(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Grade, MAX_MEDALS, Medals};

    /// Adds medals one grade after the other, as the script does, in the arithmetic of Redis.
    fn score(medals: Medals) -> f64 {
        let grades = [(Grade::Gold, medals.gold), (Grade::Silver, medals.silver), (Grade::Bronze, medals.bronze)];
        let score = |grade: Grade| grade.score().to_string().parse::<f64>().expect("a number");
        grades.into_iter().map(|(grade, count)| f64::from(count) * score(grade)).sum()
    }

    fn medals() -> Vec<Medals> {
        let counts = [0, 1, 2, 1_000, MAX_MEDALS - 1, MAX_MEDALS];
        let mut all = Vec::new();
        for gold in counts {
            for silver in counts {
                all.extend(counts.map(|bronze| Medals { gold, silver, bronze }));
            }
        }
        all
    }

    #[test]
    fn a_score_is_exact_up_to_131071_medals_of_each_grade() {
        assert_eq!(MAX_MEDALS, 131_071);
        for medals in medals() {
            let score = format!("{}", score(medals)).parse().expect("a whole number");
            assert_eq!(Medals::of_score(score), medals);
        }
    }

    #[test]
    fn scores_have_the_order_of_the_medals() {
        for one in medals() {
            for other in medals() {
                // The naive order: grade by grade.
                let expected = [one.gold, one.silver, one.bronze].cmp(&[other.gold, other.silver, other.bronze]);
                assert_eq!(score(one).total_cmp(&score(other)), expected, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn one_medal_too_many_counts_as_a_better_one() {
        let most = Medals { gold: 0, silver: 0, bronze: MAX_MEDALS };
        let one_more = format!("{}", score(most) + 1.0).parse().expect("a whole number");
        assert_eq!(Medals::of_score(one_more), Medals { gold: 0, silver: 1, bronze: 0 });
    }

    #[test]
    fn ten_items_are_one_gold_two_silver_and_seven_bronze() {
        let mut medals = Medals::default();
        for number in 11..=20 {
            match Grade::of_item(number) {
                Grade::Gold => medals.gold += 1,
                Grade::Silver => medals.silver += 1,
                Grade::Bronze => medals.bronze += 1,
            }
        }
        assert_eq!(medals, Medals { gold: 1, silver: 2, bronze: 7 });
    }
}
