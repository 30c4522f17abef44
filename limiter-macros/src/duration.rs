//! Durations and limits in strings: `10s`, `1h30m`, `5/10s`, `100/min`. The run time parses the same grammar.

use std::fmt;

/// The longest window in milliseconds: 366 days.
const MAX_WINDOW_MILLIS: u64 = 366 * 24 * 60 * 60 * 1000;

/// The units with their lengths in milliseconds: the same table as in `limiter-core/src/limit/parse.rs`.
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

/// The units in messages.
const UNIT_LIST: &str = "`ms`, `s`, `min`, `h`, `d`, `w` and words such as `minutes`";

/// Units without a fixed length, each with about as many days.
const CALENDAR_UNITS: [(&str, u64); 4] = [("month", 30), ("months", 30), ("year", 365), ("years", 365)];

/// An error in a duration or a limit, displayed as the end of a message.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum DurationProblem {
    Unreadable,
    NoUnit(String),
    UnknownUnit(String),
    /// A unit such as `month`, and a window of about as many days.
    NoFixedLength(String, String),
    /// A number of permits with a fraction, and the same limit in whole permits.
    Fraction(String, String),
    Zero,
    TooLong,
    NoPermits,
    TooMany,
}

impl fmt::Display for DurationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => Ok(()),
            Self::NoUnit(number) => write!(f, " (`{number}` of what? write `{number}s`)"),
            Self::UnknownUnit(unit) => write!(f, " (`{unit}` is none of the units {UNIT_LIST})"),
            Self::NoFixedLength(unit, days) => {
                write!(f, " (`{unit}` has no fixed length: write days, such as `{days}`)")
            }
            Self::Fraction(number, limit) => write!(f, " (`{number}` is no whole number: write `{limit}`)"),
            Self::Zero => f.write_str(" (this is zero)"),
            Self::TooLong => f.write_str(" (this is longer)"),
            Self::NoPermits => {
                f.write_str(" (0 would let nothing through, ever: write `mode = \"deny\"` in its rule for that)")
            }
            Self::TooMany => write!(f, " (at most {})", u32::MAX),
        }
    }
}

/// Parses a window and returns it in milliseconds. It is one or more numbers with units, or one unit alone.
pub(crate) fn parse_window(text: &str) -> Result<u64, DurationProblem> {
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
            (number, "") if tail.is_empty() => return Err(DurationProblem::NoUnit(number.to_owned())),
            (_, "") => return Err(DurationProblem::Unreadable),
            (number, _) => number.parse().unwrap_or(u64::MAX),
        };
        if let Some(days) = calendar_days(count, unit) {
            return Err(DurationProblem::NoFixedLength(unit.to_owned(), format!("{days}d")));
        }
        let millis = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, millis)) => *millis,
            None if number.is_empty() => return Err(DurationProblem::Unreadable),
            None => return Err(DurationProblem::UnknownUnit(unit.to_owned())),
        };
        total = total.saturating_add(count.saturating_mul(millis));
        rest = tail;
    }
    match total {
        0 if text.is_empty() => Err(DurationProblem::Unreadable),
        0 => Err(DurationProblem::Zero),
        1..=MAX_WINDOW_MILLIS => Ok(total),
        _ => Err(DurationProblem::TooLong),
    }
}

/// Parses a limit such as `5/10s`, and returns its permits and its window in milliseconds.
pub(crate) fn parse_limit(text: &str) -> Result<(u32, u64), DurationProblem> {
    let (max, window) = text.split_once('/').ok_or(DurationProblem::Unreadable)?;
    let (max, window) = (max.trim(), window.trim());
    if let Some(whole) = without_fraction(max, window) {
        return Err(DurationProblem::Fraction(max.to_owned(), whole));
    }
    if max.is_empty() || !max.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DurationProblem::Unreadable);
    }
    match max.parse() {
        Ok(0) => Err(DurationProblem::NoPermits),
        Ok(max) => Ok((max, parse_window(window)?)),
        Err(_) => Err(DurationProblem::TooMany),
    }
}

/// Returns the limit in whole permits that equals one with a fraction of a permit: `1/2s` for `0.5/s`.
fn without_fraction(max: &str, window: &str) -> Option<String> {
    let (whole, fraction) = max.split_once('.')?;
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let permits: u64 = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let windows = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let divisor = greatest_common_divisor(permits, windows);
    let (number, unit) = split_while(window, |c| c.is_ascii_digit());
    let count = if number.is_empty() { 1 } else { number.parse::<u64>().ok()? };
    if !unit.chars().all(char::is_alphabetic) {
        return None;
    }
    let limit = match count.checked_mul(windows / divisor)? {
        1 => format!("{}/{unit}", permits / divisor),
        count => format!("{}/{count}{unit}", permits / divisor),
    };
    parse_limit(&limit).is_ok().then_some(limit)
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

/// Returns about as many days as some months or years have, if a window may be as long.
fn calendar_days(count: u64, unit: &str) -> Option<u64> {
    let (_, days) = CALENDAR_UNITS.into_iter().find(|(name, _)| *name == unit)?;
    count.checked_mul(days).filter(|days| (1..=366).contains(days))
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
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
        let cases = [
            ("", DurationProblem::Unreadable),
            (" ", DurationProblem::Unreadable),
            ("ten", DurationProblem::Unreadable),
            ("10 s", DurationProblem::Unreadable),
            ("-1s", DurationProblem::Unreadable),
            ("1.5s", DurationProblem::Unreadable),
            ("s10s", DurationProblem::Unreadable),
            ("10", DurationProblem::NoUnit("10".to_owned())),
            ("1m30", DurationProblem::NoUnit("30".to_owned())),
            ("10x", DurationProblem::UnknownUnit("x".to_owned())),
            ("10minutess", DurationProblem::UnknownUnit("minutess".to_owned())),
            ("10S", DurationProblem::UnknownUnit("S".to_owned())),
            ("month", DurationProblem::NoFixedLength("month".to_owned(), "30d".to_owned())),
            ("1d2months", DurationProblem::NoFixedLength("months".to_owned(), "60d".to_owned())),
            ("2years", DurationProblem::UnknownUnit("years".to_owned())),
            ("10µs", DurationProblem::UnknownUnit("µs".to_owned())),
            ("0s", DurationProblem::Zero),
            ("0m0s", DurationProblem::Zero),
            ("367d", DurationProblem::TooLong),
            ("366d1ms", DurationProblem::TooLong),
            ("53w", DurationProblem::TooLong),
            ("99999999999999999999d", DurationProblem::TooLong),
        ];
        for (text, problem) in cases {
            assert_eq!(parse_window(text), Err(problem), "{text}");
        }
    }

    #[test]
    fn parses_limits_and_rejects_invalid_ones() {
        let cases = [
            ("5/10s", Ok((5, 10_000))),
            ("100/min", Ok((100, 60_000))),
            ("5/s", Ok((5, 1000))),
            (" 4 / 2d ", Ok((4, 172_800_000))),
            ("4294967295/1ms", Ok((u32::MAX, 1))),
            ("4294967296/1s", Err(DurationProblem::TooMany)),
            ("0/10s", Err(DurationProblem::NoPermits)),
            ("0.5/s", Err(DurationProblem::Fraction("0.5".to_owned(), "1/2s".to_owned()))),
            ("1.50/10min", Err(DurationProblem::Fraction("1.50".to_owned(), "3/20min".to_owned()))),
            ("2.0/s", Err(DurationProblem::Fraction("2.0".to_owned(), "2/s".to_owned()))),
            ("0.0/s", Err(DurationProblem::Unreadable)),
            ("-0.5/s", Err(DurationProblem::Unreadable)),
            ("0.5/1m30s", Err(DurationProblem::Unreadable)),
            ("1000/month", Err(DurationProblem::NoFixedLength("month".to_owned(), "30d".to_owned()))),
            ("5", Err(DurationProblem::Unreadable)),
            ("5/", Err(DurationProblem::Unreadable)),
            ("/10s", Err(DurationProblem::Unreadable)),
            ("x/10s", Err(DurationProblem::Unreadable)),
            ("+5/10s", Err(DurationProblem::Unreadable)),
            ("-5/10s", Err(DurationProblem::Unreadable)),
            ("5/10", Err(DurationProblem::NoUnit("10".to_owned()))),
            ("5/0s", Err(DurationProblem::Zero)),
            ("5/1sm", Err(DurationProblem::UnknownUnit("sm".to_owned()))),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_limit(text), expected, "{text}");
        }
    }
}
