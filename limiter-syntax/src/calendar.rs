//! Calendar periods as text: `month`, `month:5@Europe/Berlin`.

use std::fmt;

use crate::duration::{MAX_WINDOW_MILLIS, split_while};

/// A period of the calendar, for which a limit counts permits.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Period {
    /// An hour of the clock. One that a shift of the clock cuts is shorter.
    Hour,
    /// A day, from its first instant. Where the clock is set forward at midnight, that is later than midnight.
    Day,
    /// Seven days, from Monday unless an anchor names another weekday.
    Week,
    /// A month, from its first day unless an anchor names another.
    Month,
    /// Three months, from January, April, July and October on unless an anchor names other dates.
    Quarter,
    /// A year, from January on unless an anchor names another date.
    Year,
}

const HOUR_MILLIS: u64 = 60 * 60 * 1000;
const DAY_MILLIS: u64 = 24 * HOUR_MILLIS;
/// The most by which a zone sets its clock back, in milliseconds.
const MAX_SHIFT_MILLIS: u64 = 3 * HOUR_MILLIS;

impl Period {
    /// All periods, from the shortest.
    pub const ALL: &'static [Self] = &[Self::Hour, Self::Day, Self::Week, Self::Month, Self::Quarter, Self::Year];

    /// The name in texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
        }
    }

    /// Returns the period of a name.
    #[doc(hidden)]
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|period| period.name() == name)
    }

    /// Returns the period that is as long as a window: an hour, a day or a week.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_window(millis: u64) -> Option<Self> {
        const WEEK_MILLIS: u64 = 7 * DAY_MILLIS;
        match millis {
            HOUR_MILLIS => Some(Self::Hour),
            DAY_MILLIS => Some(Self::Day),
            WEEK_MILLIS => Some(Self::Week),
            _ => None,
        }
    }

    /// The length of the longest such period in milliseconds, with the hours by which its zone sets the clock back.
    #[doc(hidden)]
    #[must_use]
    pub const fn max_millis(self) -> u64 {
        match self {
            Self::Hour => HOUR_MILLIS,
            Self::Day => DAY_MILLIS + MAX_SHIFT_MILLIS,
            Self::Week => 7 * DAY_MILLIS + MAX_SHIFT_MILLIS,
            Self::Month => 31 * DAY_MILLIS + MAX_SHIFT_MILLIS,
            Self::Quarter => 92 * DAY_MILLIS + MAX_SHIFT_MILLIS,
            Self::Year => MAX_WINDOW_MILLIS + MAX_SHIFT_MILLIS,
        }
    }

    /// Returns whether the word stands for a window of a fixed length as well.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_window(self) -> bool {
        matches!(self, Self::Hour | Self::Day | Self::Week)
    }

    /// The values that its anchor may have, for messages.
    #[doc(hidden)]
    #[must_use]
    pub const fn anchor_bounds(self) -> &'static str {
        match self {
            Self::Hour => "left out for an hour",
            Self::Day => "left out for a day",
            Self::Week => "a weekday such as `sunday` for a week",
            Self::Month => "a day from 1 to 31 for a month",
            Self::Quarter => "a date such as `04-06` for a quarter",
            Self::Year => "a date such as `04-06` for a year",
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The place in the calendar at which the periods of one kind begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Anchor {
    /// The month of a year from 1, or of a quarter from 1 to 3. 0 for the other periods.
    month: u8,
    /// The day of the month from 1, or the weekday from 0 for Monday. 0 for hours and days.
    day: u8,
}

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

impl Anchor {
    /// The anchor of periods that name none.
    #[must_use]
    pub const fn default_of(period: Period) -> Self {
        match period {
            Period::Hour | Period::Day | Period::Week => Self { month: 0, day: 0 },
            Period::Month => Self { month: 0, day: 1 },
            Period::Quarter | Period::Year => Self { month: 1, day: 1 },
        }
    }

    /// Parses the anchor of a period: `5` for a month, `sunday` for a week, `04-06` for a quarter or a year. `None` for
    /// any other text: see [`Period::anchor_bounds`].
    ///
    /// A day that a month lacks stands for its last day.
    #[must_use]
    pub fn parse(period: Period, text: &str) -> Option<Self> {
        match period {
            Period::Hour | Period::Day => None,
            Period::Week => {
                let is_weekday = |name: &&str| name.eq_ignore_ascii_case(text);
                let day = WEEKDAYS.iter().position(|name| is_weekday(name) || is_weekday(&&name[..3]))?;
                Some(Self { month: 0, day: u8::try_from(day).ok()? })
            }
            Period::Month => Some(Self { month: 0, day: number(text).filter(|day| (1..=31).contains(day))? }),
            Period::Quarter | Period::Year => {
                let (month, day) = text.split_once('-')?;
                let (month, day) = (number(month)?, number(day)?);
                if day == 0 || day > longest_month(month)? {
                    return None;
                }
                let month = if period == Period::Quarter { (month - 1) % 3 + 1 } else { month };
                Some(Self { month, day })
            }
        }
    }

    /// The month of a year from 1, or of a quarter from 1 to 3. 0 for the other periods.
    #[must_use]
    pub const fn month(self) -> u8 {
        self.month
    }

    /// The day of the month from 1, or the weekday from 0 for Monday. 0 for hours and days.
    #[must_use]
    pub const fn day(self) -> u8 {
        self.day
    }
}

/// An anchor as text, such as `5`, `sunday` or `04-06`.
#[derive(Clone, Copy, Debug)]
pub struct AnchorText {
    /// The period.
    pub period: Period,
    /// Its anchor.
    pub anchor: Anchor,
}

/// Writes the anchor as [`Anchor::parse`] reads it.
impl fmt::Display for AnchorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Anchor { month, day } = self.anchor;
        match self.period {
            Period::Hour | Period::Day => Ok(()),
            Period::Week => f.write_str(WEEKDAYS.get(usize::from(day)).unwrap_or(&"")),
            Period::Month => write!(f, "{day}"),
            Period::Quarter | Period::Year => write!(f, "{month:02}-{day:02}"),
        }
    }
}

/// The parts of a period as written.
pub(crate) struct PeriodText<'t> {
    pub(crate) period: &'t str,
    pub(crate) anchor: Option<&'t str>,
    pub(crate) zone: Option<&'t str>,
}

impl<'t> PeriodText<'t> {
    /// Splits `month:5@Europe/Berlin`. `None` for the text of a window. An hour, a day and a week are windows unless an
    /// anchor or a zone is written.
    pub(crate) fn split(text: &'t str) -> Option<Self> {
        let (rest, zone) = match text.split_once('@') {
            Some((rest, zone)) => (rest, Some(zone.trim())),
            None => (text, None),
        };
        let (period, anchor) = match rest.split_once(':') {
            Some((period, anchor)) => (period.trim(), Some(anchor.trim())),
            None => (rest.trim(), None),
        };
        let is_written = anchor.is_some() || zone.is_some();
        let has_no_length = || Period::named(period).is_some_and(|period| !period.is_window());
        (is_written || has_no_length()).then_some(Self { period, anchor, zone })
    }
}

fn number(text: &str) -> Option<u8> {
    let (digits, rest) = split_while(text, |c| c.is_ascii_digit());
    if rest.is_empty() { digits.parse().ok() } else { None }
}

/// Returns the days of a month, in a leap year. `None` if there is no such month.
const fn longest_month(month: u8) -> Option<u8> {
    match month {
        2 => Some(29),
        4 | 6 | 9 | 11 => Some(30),
        1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_that_is_written_parses_to_itself() {
        let cases = [
            (Period::Week, "monday", "monday"),
            (Period::Week, "Sunday", "sunday"),
            (Period::Week, "WED", "wednesday"),
            (Period::Month, "1", "1"),
            (Period::Month, "031", "31"),
            (Period::Quarter, "04-06", "01-06"),
            (Period::Quarter, "12-31", "03-31"),
            (Period::Quarter, "2-29", "02-29"),
            (Period::Year, "04-06", "04-06"),
            (Period::Year, "02-29", "02-29"),
        ];
        for (period, text, written) in cases {
            let anchor = Anchor::parse(period, text).expect(text);
            assert_eq!(AnchorText { period, anchor }.to_string(), written, "{period} {text}");
            assert_eq!(Anchor::parse(period, written), Some(anchor));
        }
        for &period in Period::ALL {
            let anchor = Anchor::default_of(period);
            let written = AnchorText { period, anchor }.to_string();
            assert_eq!(Anchor::parse(period, &written), (!written.is_empty()).then_some(anchor), "{period}");
        }
    }

    #[test]
    fn another_anchor_is_none() {
        let cases = [
            (Period::Hour, ["1", "", "monday", "01-01"]),
            (Period::Day, ["1", "", "monday", "01-01"]),
            (Period::Week, ["1", "", "mo", "01-01"]),
            (Period::Month, ["32", "0", "-1", "01-01"]),
            (Period::Quarter, ["13-01", "02-30", "4-31", "5"]),
            (Period::Year, ["00-10", "01-00", "04-06-2026", "monday"]),
        ];
        for (period, texts) in cases {
            for text in texts {
                assert_eq!(Anchor::parse(period, text), None, "{period} `{text}`");
            }
        }
    }

    #[test]
    fn each_period_has_its_name_and_a_window_of_at_most_its_length() {
        for &period in Period::ALL {
            assert_eq!(Period::named(period.name()), Some(period));
        }
        assert_eq!(Period::named("months"), None);
        for (millis, period) in [(3_600_000, Period::Hour), (86_400_000, Period::Day), (604_800_000, Period::Week)] {
            assert_eq!(Period::of_window(millis), Some(period));
            assert!(period.max_millis() >= millis && period.is_window());
        }
        assert_eq!(Period::of_window(1), None);
    }
}
