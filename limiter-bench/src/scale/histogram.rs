//! Latencies of many calls, in buckets.

use std::time::Duration;

/// The bits of a latency that a bucket keeps. So a bucket is at most 1/32 wider than its latencies.
const PRECISION: u32 = 5;
const BUCKETS: usize = (65 - PRECISION as usize) << PRECISION;

/// Counts of latencies in microseconds.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u32>,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], max: 0 }
    }
}

impl Histogram {
    /// Counts a latency.
    pub fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket(micros)] += 1;
        self.max = self.max.max(micros);
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.max = self.max.max(other.max);
    }

    /// Returns the latency that this share of the calls does not exceed, in milliseconds. It is exact for all calls,
    /// and else at most 1/32 too large.
    #[must_use]
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        let total = self.counts.iter().copied().map(u64::from).sum::<u64>();
        let wanted = total as f64 * percent / 100.0;
        let mut below = 0.0;
        let reached = self.counts.iter().position(|&count| {
            below += f64::from(count);
            count > 0 && below >= wanted
        });
        let micros = reached.map_or(0, |bucket| last_of(bucket).min(self.max));
        micros as f64 / 1e3
    }
}

fn bucket(micros: u64) -> usize {
    let shift = (u64::BITS - micros.leading_zeros()).saturating_sub(PRECISION + 1);
    ((shift as usize) << PRECISION) + usize::try_from(micros >> shift).unwrap_or_default()
}

/// Returns the largest latency of a bucket.
fn last_of(bucket: usize) -> u64 {
    let shift = (bucket >> PRECISION).saturating_sub(1);
    let first = bucket - (shift << PRECISION);
    ((first as u64 + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_the_latencies_up_to_its_last_one() {
        for micros in (0..5_000).chain([70_000, 1 << 40, u64::MAX >> 1]) {
            let bucket = bucket(micros);
            assert!(last_of(bucket) >= micros && last_of(bucket) - micros <= micros / 32, "{micros}");
            assert_eq!(super::bucket(last_of(bucket)), bucket);
            assert_eq!(super::bucket(last_of(bucket) + 1), bucket + 1);
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_latencies() {
        let mut histogram = Histogram::default();
        assert!(histogram.percentile_ms(99.0).abs() < f64::EPSILON);
        let mut more = Histogram::default();
        for micros in 1..=1_000 {
            let half = if micros % 2 == 0 { &mut histogram } else { &mut more };
            half.record(Duration::from_micros(micros));
        }
        histogram.add(&more);
        for (percent, micros) in [(50.0, 500.0), (99.0, 990.0), (100.0, 1_000.0)] {
            let found = histogram.percentile_ms(percent) * 1e3;
            assert!((micros..=micros * 33.0 / 32.0).contains(&found), "{percent} %: {found}");
        }
        assert!((histogram.percentile_ms(100.0) - 1.0).abs() < 1e-9);
    }
}
