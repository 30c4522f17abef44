//! The times for which calls hold their slots, and the time until one comes free by that.

use std::time::Duration;

use crate::clock::Moment;

/// The mean time for which calls of one key hold their slots.
///
/// Each call counts for a sixteenth, so the mean follows calls that become slower.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldTimes {
    /// `None` before the first call has ended.
    mean_micros: Option<u64>,
}

/// The estimate before the first call has ended.
const FIRST_ESTIMATE: Duration = Duration::from_millis(100);
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(60);

impl HoldTimes {
    pub(crate) fn add(&mut self, began: Moment, ended: Moment) {
        let held = ended.micros().saturating_sub(began.micros());
        self.mean_micros = Some(match self.mean_micros {
            None => held,
            Some(mean) => mean - mean / 16 + held / 16,
        });
    }

    /// Returns the time until a call could start that has `ahead` slots of waiting calls before it, of `max`: an
    /// estimate, from 1 ms to 60 s.
    pub(crate) fn estimate(&self, ahead: u64, max: u16) -> Duration {
        let Some(mean) = self.mean_micros else { return FIRST_ESTIMATE };
        let micros = mean.saturating_mul(ahead.saturating_add(1)) / u64::from(max.max(1));
        Duration::from_micros(micros).clamp(SHORTEST, LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_the_mean_for_each_call_ahead_shared_by_the_slots() {
        let mut times = HoldTimes::default();
        assert_eq!(times.estimate(1000, 1), FIRST_ESTIMATE);
        times.add(Moment::PAST, Moment::PAST.after(Duration::from_secs(2)));
        assert_eq!(times.estimate(0, 1), Duration::from_secs(2));
        assert_eq!(times.estimate(4, 5), Duration::from_secs(2));
        assert_eq!(times.estimate(u64::MAX, 1), LONGEST);
        for _ in 0..200 {
            times.add(Moment::PAST, Moment::PAST.after(Duration::from_micros(10)));
        }
        assert_eq!(times.estimate(0, 1), SHORTEST);
    }
}
