//! The windows of the server's clock, which is this machine's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use limiter_testkit::history::Admission;

/// The distance from an edge within which the window of a call is uncertain.
const EDGE_MARGIN: Duration = Duration::from_millis(2);

/// The system's time, since 1970, at the origin of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch(Duration);

impl Epoch {
    pub(super) fn read(origin: Instant) -> Self {
        let reading = |_| {
            let before = Instant::now();
            let time = SystemTime::now();
            (before.elapsed(), time, before)
        };
        // The fastest of ten readings is the most precise.
        let (_, time, instant) = (0..10).map(reading).min_by_key(|(took, ..)| *took).expect("ten readings");
        let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
        Self(since_epoch - (instant - origin))
    }

    /// Returns true if the clock was not stepped between two readings.
    pub(super) fn agrees(self, other: Self) -> bool {
        self.0.abs_diff(other.0) < EDGE_MARGIN / 2
    }

    /// Returns the first start of a window from `instant` on.
    pub(super) fn next_edge(self, instant: Duration, window: Duration) -> Duration {
        let into = (self.0 + instant).as_nanos() % window.as_nanos();
        match u64::try_from(into).expect("less than a window") {
            0 => instant,
            into => instant + window - Duration::from_nanos(into),
        }
    }

    /// Returns the greatest number of permits that one window of the server's clock contains for certain.
    pub(super) fn fullest_window(self, admissions: &[Admission], window: Duration) -> u64 {
        let number = |instant: Duration| instant.as_nanos() / window.as_nanos();
        let mut windows: BTreeMap<u128, u64> = BTreeMap::new();
        for call in admissions {
            let (first, last) = (number(self.0 + call.start - EDGE_MARGIN), number(self.0 + call.end + EDGE_MARGIN));
            if first == last {
                *windows.entry(first).or_default() += u64::from(call.cost);
            }
        }
        windows.into_values().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn a_call_near_an_edge_counts_in_no_window() {
        let calls = [(48, 52), (95, 97), (97, 99), (103, 105), (98, 102)];
        let admission = |(start, end)| Admission { start: MILLI * start, end: MILLI * end, cost: 1 };
        let calls = calls.map(admission);
        assert_eq!(Epoch(MILLI * 1_000).fullest_window(&calls, MILLI * 100), 2);
        assert_eq!(Epoch(MILLI * 1_050).fullest_window(&calls, MILLI * 100), 4);
    }

    #[test]
    fn an_edge_is_a_multiple_of_the_window_by_the_servers_clock() {
        let epoch = Epoch(MILLI * 1_030);
        for (instant, edge) in [(0, 70), (70, 70), (71, 170)] {
            assert_eq!(epoch.next_edge(MILLI * instant, MILLI * 100), MILLI * edge);
        }
    }

    #[test]
    fn readings_of_a_stepped_clock_do_not_agree() {
        let epoch = Epoch(MILLI * 1_000);
        assert!(epoch.agrees(Epoch(MILLI * 1_000 + EDGE_MARGIN / 4)));
        assert!(!epoch.agrees(Epoch(MILLI * 1_000 + EDGE_MARGIN)) && !Epoch(MILLI * 1_000 + EDGE_MARGIN).agrees(epoch));
    }
}
