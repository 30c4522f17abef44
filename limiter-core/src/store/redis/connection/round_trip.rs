//! The round trip to a server, from the times of its replies.

use std::cell::Cell;
use std::time::Duration;

/// The round trip to a server: the shortest time of its latest replies.
///
/// A reply may be late for many reasons, and none arrives early. So one quick reply among the latest four to eight shows
/// that the way is short, and a server or a process that stood still for a moment does not look far away.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// The shortest time of the last full group of replies.
    earlier: Cell<Option<Duration>>,
    /// That of the group which is not full yet.
    latest: Cell<Option<Duration>>,
    replies_in_group: Cell<u32>,
    /// A reply was quick at some time.
    is_near: Cell<bool>,
}

/// The length of a round trip, and its likely cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Short,
    /// Long for now, perhaps because the server has too much to do: earlier replies were quick.
    LongForNow(Duration),
    /// Long from the first reply on.
    Long(Duration),
}

/// The shortest round trip that is long.
pub(crate) const MIN_LONG: Duration = Duration::from_millis(10);
/// The replies of a group.
const GROUP: u32 = 4;

impl RoundTrip {
    /// Records the time of a reply. Zero is none: the clock of a test stands still.
    pub(crate) fn record(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        self.is_near.set(self.is_near.get() || time < MIN_LONG);
        self.latest.set(Some(self.latest.get().map_or(time, |shortest| shortest.min(time))));
        self.replies_in_group.set(self.replies_in_group.get() + 1);
        if self.replies_in_group.get() == GROUP {
            self.earlier.set(self.latest.take());
            self.replies_in_group.set(0);
        }
    }

    /// Returns the shortest time of the latest replies. Zero before the first one.
    pub(crate) fn shortest(&self) -> Duration {
        self.earlier.get().into_iter().chain(self.latest.get()).min().unwrap_or_default()
    }

    /// Returns the length of the round trip by the latest replies.
    pub(crate) fn length(&self) -> Length {
        match self.shortest() {
            shortest if shortest < MIN_LONG => Length::Short,
            shortest if self.is_near.get() => Length::LongForNow(shortest),
            shortest => Length::Long(shortest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_shortest_of_the_latest_four_to_eight_replies() {
        let (round_trip, millis) = (RoundTrip::default(), Duration::from_millis);
        assert_eq!(round_trip.shortest(), Duration::ZERO);
        let mut times = Vec::new();
        for time in [60, 61, 59, 62, 70, 70, 1, 70, 70, 70, 70, 70, 70, 60] {
            round_trip.record(millis(time));
            times.push(round_trip.shortest().as_millis());
        }
        assert_eq!(times, [60, 60, 59, 59, 59, 59, 1, 1, 1, 1, 1, 70, 70, 60]);
    }

    #[test]
    fn is_long_for_now_after_a_quick_reply() {
        let round_trip = RoundTrip::default();
        let lengths = [MIN_LONG, MIN_LONG - Duration::from_nanos(1)].map(|time| {
            (0..2 * GROUP).for_each(|_| round_trip.record(time));
            round_trip.length()
        });
        assert_eq!(lengths, [Length::Long(MIN_LONG), Length::Short]);
        (0..2 * GROUP).for_each(|_| round_trip.record(MIN_LONG));
        assert_eq!(round_trip.length(), Length::LongForNow(MIN_LONG));
    }
}
