//! Latencies in a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Latencies with three significant digits, in memory that does not depend on their number.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    nanos: Histogram<u64>,
}

/// The longest latency that is recorded. Longer ones count as this one.
const MAX_NANOS: u64 = 3_600_000_000_000;

impl Default for Latencies {
    fn default() -> Self {
        let nanos = Histogram::new_with_bounds(1, MAX_NANOS, 3).expect("valid bounds");
        Self { nanos }
    }
}

impl Latencies {
    /// Adds a latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        self.nanos.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(MAX_NANOS));
    }

    /// Adds all latencies of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        // Equal bounds: it cannot fail.
        let _ = self.nanos.add(&other.nanos);
    }

    /// Returns the latency that this share of all is not above; zero if there is none.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.nanos.value_at_quantile(share))
    }

    /// Returns the longest latency, rounded up; zero if there is none.
    pub(crate) fn max(&self) -> Duration {
        Duration::from_nanos(self.nanos.max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_three_digits() {
        let (mut latencies, mut other) = (Latencies::default(), Latencies::default());
        assert_eq!((latencies.quantile(0.99), latencies.max()), (Duration::ZERO, Duration::ZERO));
        for millis in 1..=500 {
            latencies.record(Duration::from_millis(millis));
            other.record(Duration::from_millis(millis + 500));
        }
        latencies.merge(&other);
        for (share, millis) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0)] {
            let quantile = latencies.quantile(share).as_secs_f64() * 1e3;
            assert!((quantile - millis).abs() <= millis / 500.0, "{share}: {quantile}");
        }
        latencies.record(Duration::MAX);
        assert!(latencies.max() >= Duration::from_secs(3600));
    }
}
