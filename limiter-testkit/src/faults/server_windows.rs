//! The windows of the server's clock, which is this machine's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use crate::history::Admission;

/// Distance from an edge within which a call is in neither window for certain.
const MARGIN: Duration = Duration::from_millis(2);

/// The time of the Unix epoch's clock at the origin of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch(Duration);

impl Epoch {
    pub(super) fn at(origin: Instant) -> Self {
        let read = |_| {
            let before = Instant::now();
            let time = SystemTime::now();
            (before.elapsed(), time, before)
        };
        // Of a few readings the one that took least.
        let (_, time, instant) = (0..10).map(read).min_by_key(|(took, ..)| *took).expect("ten readings");
        let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
        Self(since_epoch - (instant - origin))
    }

    /// Whether the clock was not stepped between two readings.
    pub(super) fn agrees(self, other: Self) -> bool {
        self.0.abs_diff(other.0) < MARGIN / 2
    }

    /// Returns the first beginning of a window from `instant` on.
    pub(super) fn next_edge(self, instant: Duration, window: Duration) -> Duration {
        let into = (self.0 + instant).as_nanos() % window.as_nanos();
        match u64::try_from(into).expect("less than a window") {
            0 => instant,
            into => instant + window - Duration::from_nanos(into),
        }
    }

    /// Returns the most permits that one window of the server's clock holds for certain.
    pub(super) fn fullest_window(self, admissions: &[Admission], window: Duration) -> u64 {
        let number = |instant: Duration| instant.as_nanos() / window.as_nanos();
        let mut windows: BTreeMap<u128, u64> = BTreeMap::new();
        for call in admissions {
            let (first, last) = (number(self.0 + call.start - MARGIN), number(self.0 + call.end + MARGIN));
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
    fn a_call_that_may_be_in_two_windows_counts_in_none() {
        let calls = [(48, 52), (95, 97), (97, 99), (103, 105), (98, 102)];
        let admission = |(start, end)| Admission { start: MILLI * start, end: MILLI * end, cost: 1 };
        let calls = calls.map(admission);
        assert_eq!(Epoch(MILLI * 1_000).fullest_window(&calls, MILLI * 100), 2);
        assert_eq!(Epoch(MILLI * 1_050).fullest_window(&calls, MILLI * 100), 4);
    }

    #[test]
    fn an_edge_is_a_multiple_of_the_window_of_the_servers_clock() {
        let epoch = Epoch(MILLI * 1_030);
        for (instant, edge) in [(0, 70), (70, 70), (71, 170)] {
            assert_eq!(epoch.next_edge(MILLI * instant, MILLI * 100), MILLI * edge);
        }
    }

    #[test]
    fn a_clock_that_was_stepped_does_not_agree_with_itself() {
        let epoch = Epoch(MILLI * 1_000);
        assert!(epoch.agrees(Epoch(MILLI * 1_000 + MARGIN / 4)));
        assert!(!epoch.agrees(Epoch(MILLI * 1_000 + MARGIN)) && !Epoch(MILLI * 1_000 + MARGIN).agrees(epoch));
    }
}
