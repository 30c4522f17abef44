//! Durations as text: `10s`, `1h30m`, `min`.

use std::fmt;

/// The longest window in milliseconds: 366 days.
pub const MAX_WINDOW_MILLIS: u64 = 366 * 24 * 60 * 60 * 1000;

/// The units in messages.
pub const UNIT_LIST: &str = "`ms`, `s`, `min`, `h`, `d`, `w` and words such as `minutes`";

/// The units with their lengths in milliseconds.
const UNITS: [(&str, u64); 22] = [
    ("ms", 1),
    ("s", 1000),
    ("sec", 1000),
    ("secs", 1000),
    ("second", 1000),
    ("seconds", 1000),
    ("m", 60 * 1000),
    ("min", 60 * 1000),
    ("mins", 60 * 1000),
    ("minute", 60 * 1000),
    ("minutes", 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("hr", 60 * 60 * 1000),
    ("hrs", 60 * 60 * 1000),
    ("hour", 60 * 60 * 1000),
    ("hours", 60 * 60 * 1000),
    ("d", 24 * 60 * 60 * 1000),
    ("day", 24 * 60 * 60 * 1000),
    ("days", 24 * 60 * 60 * 1000),
    ("w", 7 * 24 * 60 * 60 * 1000),
    ("week", 7 * 24 * 60 * 60 * 1000),
    ("weeks", 7 * 24 * 60 * 60 * 1000),
];

/// Units without a fixed length, each with about as many days.
const CALENDAR_UNITS: [(&str, u64); 4] = [("month", 30), ("months", 30), ("year", 365), ("years", 365)];

/// The units of a written window, with their milliseconds.
const WRITTEN_UNITS: [(u64, &str); 5] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];

/// The reason why a text is no duration, or no window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DurationProblem<'t> {
    /// The text is not made of numbers and units.
    Unreadable,
    /// The last number has no unit.
    NoUnit {
        /// The number.
        number: &'t str,
    },
    /// A word is none of the units.
    UnknownUnit {
        /// The word.
        unit: &'t str,
    },
    /// A unit such as `month` has no fixed length.
    NoFixedLength {
        /// The unit.
        unit: &'t str,
        /// About as many days as so many of the unit have. A window may be as long.
        days: u64,
    },
    /// The duration is zero, and a window is not.
    Zero,
    /// The duration is longer than a window may be.
    TooLong {
        /// The duration in milliseconds, or `u64::MAX` for a longer one.
        millis: u64,
    },
}

/// Parses a duration and returns it in milliseconds, or `u64::MAX` for a longer one. It is one or more numbers with
/// units, or one unit alone.
///
/// The units are `ms`, `s`, `m` or `min`, `h`, `d` and `w`. They may be words: `sec(s)`, `second(s)`, `min(s)`,
/// `minute(s)`, `hr(s)`, `hour(s)`, `day(s)` and `week(s)`.
///
/// ```
/// use limiter_syntax::{DurationProblem, parse_duration};
///
/// assert_eq!(parse_duration("1h30m"), Ok(5_400_000));
/// assert_eq!(parse_duration("min"), Ok(60_000));
/// assert_eq!(parse_duration("10"), Err(DurationProblem::NoUnit { number: "10" }));
/// ```
///
/// # Errors
/// The first problem of the text. A duration may be zero and of any length.
pub fn parse_duration(text: &str) -> Result<u64, DurationProblem<'_>> {
    if text.is_empty() {
        return Err(DurationProblem::Unreadable);
    }
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, tail) = split_while(rest, |c| c.is_ascii_digit());
        let (unit, tail) = split_while(tail, char::is_alphabetic);
        let alone = rest.len() == text.len() && tail.is_empty();
        let count = match (number, unit) {
            ("", "") => return Err(DurationProblem::Unreadable),
            ("", _) if alone => 1,
            ("", _) => return Err(DurationProblem::Unreadable),
            (number, "") if tail.is_empty() => return Err(DurationProblem::NoUnit { number }),
            (_, "") => return Err(DurationProblem::Unreadable),
            (number, _) => number.parse().unwrap_or(u64::MAX),
        };
        if let Some(days) = calendar_days(count, unit) {
            return Err(DurationProblem::NoFixedLength { unit, days });
        }
        let millis = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, millis)) => *millis,
            None if number.is_empty() => return Err(DurationProblem::Unreadable),
            None => return Err(DurationProblem::UnknownUnit { unit }),
        };
        total = total.saturating_add(count.saturating_mul(millis));
        rest = tail;
    }
    Ok(total)
}

/// Parses a window and returns it in milliseconds: a duration of more than zero and at most 366 days.
///
/// # Errors
/// The first problem of the text.
pub fn parse_window(text: &str) -> Result<u64, DurationProblem<'_>> {
    match parse_duration(text)? {
        0 => Err(DurationProblem::Zero),
        millis @ 1..=MAX_WINDOW_MILLIS => Ok(millis),
        millis => Err(DurationProblem::TooLong { millis }),
    }
}

/// Returns about as many days as some months or years have, if a window may be as long.
fn calendar_days(count: u64, unit: &str) -> Option<u64> {
    let (_, days) = CALENDAR_UNITS.into_iter().find(|(name, _)| *name == unit)?;
    count.checked_mul(days).filter(|days| (1..=366).contains(days))
}

pub(crate) fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

/// A window as text, such as `10s`, `1m` or `1h30m`.
#[derive(Clone, Copy, Debug)]
pub struct WindowText {
    /// The window in milliseconds.
    pub millis: u64,
}

impl WindowText {
    /// Returns the number and the largest unit of which the window is a multiple, such as 90 and `m`. So each window has one
    /// such text.
    #[must_use]
    pub fn in_one_unit(self) -> (u64, &'static str) {
        let divides = |(millis, _): &(u64, &str)| self.millis.is_multiple_of(*millis);
        WRITTEN_UNITS
            .into_iter()
            .find(divides)
            .map_or((self.millis, "ms"), |(millis, name)| (self.millis / millis, name))
    }

    /// Returns the unit of a window of just one unit, such as `s` for a second.
    #[must_use]
    pub fn only_unit(self) -> Option<&'static str> {
        WRITTEN_UNITS.into_iter().find(|(millis, _)| *millis == self.millis).map(|(_, name)| name)
    }
}

impl fmt::Display for WindowText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.millis;
        for (millis, name) in WRITTEN_UNITS {
            if rest >= millis {
                write!(f, "{}{name}", rest / millis)?;
                rest %= millis;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_windows() {
        let cases = [
            ("1ms", 1),
            ("500ms", 500),
            ("10s", 10_000),
            ("1sec", 1000),
            ("1m", 60_000),
            ("1min", 60_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1m30s", 90_000),
            ("1h0m5s", 3_605_000),
            ("min", 60_000),
            ("366d", MAX_WINDOW_MILLIS),
            ("0s1ms", 1),
            ("second", 1000),
            ("30seconds", 30_000),
            ("1minute", 60_000),
            ("2minutes30sec", 150_000),
            ("24hours", 86_400_000),
            ("7days", 604_800_000),
            ("w", 604_800_000),
            ("mins", 60_000),
            ("90secs", 90_000),
            ("hr", 3_600_000),
            ("2hrs30mins", 9_000_000),
            ("1week", 604_800_000),
            ("52weeks2d", MAX_WINDOW_MILLIS),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_window(text), Ok(millis), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_windows() {
        use DurationProblem::{NoFixedLength, NoUnit, TooLong, UnknownUnit, Unreadable, Zero};
        const DAY: u64 = 86_400_000;
        let cases = [
            ("", Unreadable),
            (" ", Unreadable),
            ("ten", Unreadable),
            ("10 s", Unreadable),
            ("-1s", Unreadable),
            ("1.5s", Unreadable),
            ("s10s", Unreadable),
            ("10", NoUnit { number: "10" }),
            ("1m30", NoUnit { number: "30" }),
            ("10x", UnknownUnit { unit: "x" }),
            ("10minutess", UnknownUnit { unit: "minutess" }),
            ("10S", UnknownUnit { unit: "S" }),
            ("month", NoFixedLength { unit: "month", days: 30 }),
            ("1d2months", NoFixedLength { unit: "months", days: 60 }),
            ("2years", UnknownUnit { unit: "years" }),
            ("10µs", UnknownUnit { unit: "µs" }),
            ("0s", Zero),
            ("0m0s", Zero),
            ("367d", TooLong { millis: 367 * DAY }),
            ("366d1ms", TooLong { millis: 366 * DAY + 1 }),
            ("53w", TooLong { millis: 371 * DAY }),
            ("99999999999999999999d", TooLong { millis: u64::MAX }),
        ];
        for (text, problem) in cases {
            assert_eq!(parse_window(text), Err(problem), "{text}");
        }
    }

    #[test]
    fn a_duration_may_be_zero_and_of_any_length() {
        for (text, millis) in [("0s", 0), ("367d", 367 * 86_400_000), ("99999999999999999999d", u64::MAX)] {
            assert_eq!(parse_duration(text), Ok(millis), "{text}");
        }
    }

    #[test]
    fn a_window_is_written_with_the_count_of_each_unit() {
        for (millis, text) in [(10_000, "10s"), (60_000, "1m"), (5_400_000, "1h30m"), (1_001, "1s1ms")] {
            assert_eq!(WindowText { millis }.to_string(), text);
            assert_eq!(parse_window(text), Ok(millis));
            assert_eq!(WindowText { millis }.only_unit(), (millis == 60_000).then_some("m"));
        }
        for (millis, expected) in
            [(10_000, (10, "s")), (5_400_000, (90, "m")), (1_001, (1_001, "ms")), (86_400_000, (1, "d"))]
        {
            assert_eq!(WindowText { millis }.in_one_unit(), expected);
        }
    }
}
