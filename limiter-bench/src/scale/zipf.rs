//! Random ranks by Zipf's law with the exponent 1.

use limiter_testkit::Random;

/// A sampler of ranks from 1 to a number, each with a probability in inverse proportion to the rank.
///
/// The algorithm is rejection-inversion (W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from
/// monotone discrete distributions", ACM TOMACS 6(3), 1996). It needs no table, and few samples are drawn twice.
#[derive(Debug, Clone)]
pub struct Zipf {
    ranks: f64,
    /// The integral of the hat up to half before the first rank, less the share of that rank, and that up to the last.
    lowest: f64,
    highest: f64,
    /// A distance from the rank within which no sample is rejected.
    accepted: f64,
    random: Random,
}

impl Zipf {
    /// Creates a sampler of ranks from 1 to `ranks`, with a seed.
    #[must_use]
    pub fn new(ranks: u32, seed: u64) -> Self {
        let ranks = f64::from(ranks);
        let lowest = 1.5_f64.ln() - 1.0;
        let highest = (ranks + 0.5).ln();
        let accepted = 2.0 - (2.5_f64.ln() - 0.5).exp();
        Self { ranks, lowest, highest, accepted, random: Random::new(seed) }
    }

    /// Returns the next rank.
    pub fn next_rank(&mut self) -> u32 {
        loop {
            let area = self.highest + self.fraction() * (self.lowest - self.highest);
            let x = area.exp();
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.accepted || area >= (rank + 0.5).ln() - 1.0 / rank {
                return whole(rank);
            }
        }
    }

    /// Returns the time until the next of events that come at random, as a multiple of their mean distance.
    pub fn next_gap(&mut self) -> f64 {
        -(1.0 - self.fraction()).ln()
    }

    /// Returns a number from 0 to below 1.
    fn fraction(&mut self) -> f64 {
        (self.random.any() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to a u32")]
fn whole(rank: f64) -> u32 {
    rank as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of the first ranks, and all ranks up to a bound, are as frequent as the law has it, within five standard
    /// deviations.
    #[test]
    fn ranks_are_as_frequent_as_the_law_has_it() {
        const DRAWS: u32 = 1_000_000;
        for ranks in [10, 1_000_000_000_u32] {
            // Euler and Maclaurin, whose error is far below what the draws could show.
            let harmonic = |n: f64| (n + 0.5).ln() + 0.577_215_664_9 + 1.0 / (24.0 * (n + 0.5) * (n + 0.5));
            let mut zipf = Zipf::new(ranks, 1);
            let drawn: Vec<_> = (0..DRAWS).map(|_| zipf.next_rank()).collect();
            assert!(drawn.iter().all(|rank| (1..=ranks).contains(rank)));
            let near = |share: f64, found: usize, case: &str| {
                let expected = share * f64::from(DRAWS);
                let deviation = (expected * (1.0 - share)).sqrt();
                assert!((found as f64 - expected).abs() <= 5.0 * deviation, "{case}: {found} of {expected:.0}");
            };
            let all = harmonic(f64::from(ranks));
            for rank in 1..=9_u32 {
                let found = drawn.iter().filter(|&&drawn| drawn == rank).count();
                near(1.0 / f64::from(rank) / all, found, &format!("rank {rank} of {ranks}"));
            }
            for bound in [100.0, 1e5, 1e8].into_iter().filter(|&bound| bound < f64::from(ranks)) {
                let found = drawn.iter().filter(|&&rank| f64::from(rank) <= bound).count();
                near(harmonic(bound) / all, found, &format!("ranks up to {bound} of {ranks}"));
            }
        }
    }

    #[test]
    fn gaps_have_the_mean_1() {
        let mut zipf = Zipf::new(10, 2);
        let mean = (0..100_000).map(|_| zipf.next_gap()).sum::<f64>() / 1e5;
        assert!((0.985..1.015).contains(&mean), "{mean}");
    }
}
