//! The parts of a caller's limit that a configured limit takes, where it names none.

use limiter_syntax::Period;

use super::Limit;
#[cfg(feature = "calendar")]
use super::{Algorithm, Layout};
use crate::calendar::Calendar;

impl Limit {
    /// Returns the limit of a caller that a configured limit takes its rest from: that of its period of the calendar, or else
    /// one of its kind. A window takes it also from other periods.
    pub(crate) fn example_among(&self, own: impl Iterator<Item = Self>) -> Option<Self> {
        let period = self.calendar.map(Calendar::period).or(Period::of_window(self.window_millis()));
        let rank = |own: &Self| match (self.calendar, own.calendar.map(Calendar::period)) {
            _ if self.is_concurrent() || own.is_concurrent() => None,
            (_, Some(of_own)) if Some(of_own) == period => Some(0),
            (None, None) => Some(1),
            (_, Some(_)) => Some(2),
            (Some(_), None) => None,
        };
        own.filter_map(|own| Some((rank(&own)?, own))).min_by_key(|(rank, _)| *rank).map(|(_, own)| own)
    }

    /// Returns a configured limit with the zone and the anchor of a caller's, where it names none. A window of an hour, a day
    /// or a week without an algorithm is such a period for a caller that counts in periods. Other limits stay as they are.
    #[cfg(feature = "calendar")]
    pub(crate) fn in_calendar_of(self, caller: Self) -> Self {
        let is_plain = self.algorithm == Algorithm::default() && self.layout() == Layout::default();
        let window = Period::of_window(self.window_millis()).filter(|_| is_plain);
        match (self.calendar, caller.calendar, window) {
            (Some(own), Some(caller), _) => Self { calendar: Some(own.following(caller)), ..self },
            (None, Some(caller), Some(window)) => Self::of_calendar(self.max, caller.of_period(window)),
            _ => self,
        }
    }

    #[cfg(not(feature = "calendar"))]
    pub(crate) fn in_calendar_of(self, _: Self) -> Self {
        self
    }
}
