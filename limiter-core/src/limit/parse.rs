//! The text form of limits, such as `5/10s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::limit::{Algorithm, Layout, Limit};
use crate::{Error, ErrorKind};

/// The units with their lengths in milliseconds: the same table as in `limiter-macros/src/duration.rs`.
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

/// Parses `permits/duration`, as in `5/10s`, `100/min` or `1000/1h30m`.
///
/// The units are `ms`, `s`, `m` or `min`, `h`, `d` and `w`. They may be words: `sec(s)`, `second(s)`, `min(s)`,
/// `minute(s)`, `hr(s)`, `hour(s)`, `day(s)` and `week(s)`. A unit without a number means one of it.
impl FromStr for Limit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid_unless = |why: &str, fix: &str| {
            let problem = format!("`limit` must be `permits/window`, got `{text}` {why}: write {fix}");
            Error::new(ErrorKind::InvalidLimit, problem)
        };
        let invalid = |why: &str| invalid_unless(why, "one such as `5/10s` or `100/min`");
        let (max, window) = text.split_once('/').ok_or_else(|| invalid("without a `/`"))?;
        let (max, window) = (max.trim(), window.trim());
        if let Some(whole) = without_fraction(max, window) {
            return Err(invalid_unless("with a fraction of a permit", &format!("`{whole}`")));
        }
        if max.is_empty() || !max.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid("without a whole number of permits"));
        }
        let max: u32 = max.parse().map_err(|_| invalid("with more than 4294967295 permits"))?;
        if window.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid("with a window without a unit"));
        }
        if max == 0 {
            return Err(invalid_unless("without a permit", "`mode = \"deny\"` in its rule to deny every call"));
        }
        let millis = parse_millis(window).ok_or_else(|| match calendar_days(window) {
            Some(days) => invalid_unless("with a window of no fixed length", &format!("days, such as `{max}/{days}d`")),
            None => invalid(&format!("with a window that is not made of whole numbers and the units {UNIT_LIST}")),
        })?;
        Self::new(max, Duration::from_millis(millis))
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
    let (count, unit) = one_unit(window)?;
    let limit = match count.checked_mul(windows / divisor)? {
        1 => format!("{}/{unit}", permits / divisor),
        count => format!("{}/{count}{unit}", permits / divisor),
    };
    limit.parse::<Limit>().is_ok().then_some(limit)
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

/// Returns the count and the name of a window's only unit.
fn one_unit(window: &str) -> Option<(u64, &str)> {
    let unit = window.trim_start_matches(|c: char| c.is_ascii_digit());
    let count = match window.strip_suffix(unit)? {
        "" => 1,
        digits => digits.parse().ok()?,
    };
    unit.bytes().all(|byte| byte.is_ascii_alphabetic()).then_some((count, unit))
}

/// Returns about as many days as `month` or `2years` have, if a window may be as long.
fn calendar_days(window: &str) -> Option<u64> {
    let (count, unit) = one_unit(window)?;
    let (_, days) = CALENDAR_UNITS.into_iter().find(|(name, _)| *name == unit)?;
    count.checked_mul(days).filter(|days| (1..=366).contains(days))
}

/// Parses `10s`, `1h30m` or `min` into milliseconds. The attribute parses the same grammar at compile time.
pub(crate) fn parse_millis(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (count, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let count: u64 = match count {
            "" if total == 0 && tail.is_empty() => 1,
            digits => digits.parse().ok()?,
        };
        let (_, millis) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(count.checked_mul(millis)?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// Writes `5/10s`, or `100/min` for a window of one unit. The text parses to a limit with the same permits and window;
/// algorithm, burst and layout are not in it.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.max)?;
        let millis = self.window_millis.get();
        match TEXT_UNITS.iter().find(|(unit, _)| *unit == millis) {
            Some((_, "m")) => f.write_str("min"),
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}", WindowText { millis }),
        }
    }
}

/// The units of a formatted window, with their milliseconds.
const TEXT_UNITS: [(u64, &str); 5] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];

/// A window as text, such as `10s`, `1m` or `1h30m`.
pub(crate) struct WindowText {
    pub(crate) millis: u64,
}

impl fmt::Display for WindowText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.millis;
        for (millis, name) in TEXT_UNITS {
            if rest >= millis {
                write!(f, "{}{name}", rest / millis)?;
                rest %= millis;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.algorithm, self.burst) {
            (Algorithm::SlidingWindow, _) if self.layout == Layout::Compact => write!(f, "Limit({self})"),
            (Algorithm::SlidingWindow, _) => write!(f, "Limit({self}, {:?})", self.layout),
            (algorithm, None) => write!(f, "Limit({self}, {algorithm:?})"),
            (algorithm, Some(burst)) => write!(f, "Limit({self}, {algorithm:?}, burst {burst})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_written_with_the_count_of_each_unit() {
        for (millis, text) in [(10_000, "10s"), (60_000, "1m"), (5_400_000, "1h30m"), (1_001, "1s1ms")] {
            assert_eq!(WindowText { millis }.to_string(), text);
        }
    }

    #[test]
    fn a_formatted_limit_parses_to_itself() {
        let cases = [
            ("5/10s", 5, 10_000, "5/10s"),
            ("100/min", 100, 60_000, "100/min"),
            ("100/1m", 100, 60_000, "100/min"),
            ("100/2min", 100, 120_000, "100/2m"),
            ("1/s", 1, 1000, "1/s"),
            ("1/1ms", 1, 1, "1/ms"),
            ("8/1h", 8, 3_600_000, "8/h"),
            ("8/24h", 8, 86_400_000, "8/d"),
            ("8/week", 8, 604_800_000, "8/7d"),
            ("7/1h30m", 7, 5_400_000, "7/1h30m"),
            ("9/1500ms", 9, 1500, "9/1s500ms"),
            (" 4 / 2d ", 4, 172_800_000, "4/2d"),
            ("4294967295/366d", u32::MAX, 366 * 86_400_000, "4294967295/366d"),
        ];
        for (text, max, millis, shown) in cases {
            let limit: Limit = text.parse().expect(text);
            assert_eq!((limit.max(), limit.window_millis()), (max, millis), "{text}");
            assert_eq!(limit.to_string(), shown);
            assert_eq!(shown.parse::<Limit>().expect(shown), limit);
        }
    }

    #[test]
    fn each_unit_has_its_length_with_and_without_a_number() {
        for (names, millis) in [
            (&["ms"][..], 1),
            (&["s", "sec", "secs", "second", "seconds"], 1000),
            (&["m", "min", "mins", "minute", "minutes"], 60_000),
            (&["h", "hr", "hrs", "hour", "hours"], 3_600_000),
            (&["d", "day", "days"], 86_400_000),
            (&["w", "week", "weeks"], 604_800_000),
        ] {
            for name in names {
                for (text, millis) in [(format!("1/{name}"), millis), (format!("1/3{name}"), 3 * millis)] {
                    assert_eq!(text.parse::<Limit>().expect(&text).window_millis(), millis, "{text}");
                }
            }
        }
        assert_eq!(
            "1/1week2days3hours4minutes5seconds6ms".parse::<Limit>().expect("valid").to_string(),
            "1/9d3h4m5s6ms"
        );
    }

    #[test]
    fn an_invalid_text_is_an_invalid_limit() {
        let cases = [
            "",
            "5",
            "5/",
            "/10s",
            "x/10s",
            "5/10",
            "5/ten",
            "0/10s",
            "5/0s",
            "5/367d",
            "-5/10s",
            "5/10s10",
            "5/1sm",
            "5/2minutess",
            "5/S",
            "5/53w",
            "4294967296/1s",
            "5/10 s",
            "5/99999999999999999999d",
            "5/1.5s",
            "5/s10s",
            "5/month",
            "0.5/s",
            "5/hrss",
        ];
        for text in cases {
            let error = text.parse::<Limit>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidLimit, "{text}");
        }
    }

    #[test]
    fn the_error_of_a_text_names_what_is_wrong_and_an_example() {
        const EXAMPLE: &str = "one such as `5/10s` or `100/min`";
        const DENY: &str = "`mode = \"deny\"` in its rule to deny every call";
        const FRACTION: &str = "with a fraction of a permit";
        const NO_LENGTH: &str = "with a window of no fixed length";
        const NO_UNITS: &str = "with a window that is not made of whole numbers and the units `ms`, `s`, `min`, `h`, \
                                `d`, `w` and words such as `minutes`";
        let cases = [
            ("5", "without a `/`", EXAMPLE),
            ("x/10s", "without a whole number of permits", EXAMPLE),
            ("4294967296/1s", "with more than 4294967295 permits", EXAMPLE),
            ("5/10", "with a window without a unit", EXAMPLE),
            ("5/ten", NO_UNITS, EXAMPLE),
            ("0/min", "without a permit", DENY),
            ("00 / 10s", "without a permit", DENY),
            ("1000/month", NO_LENGTH, "days, such as `1000/30d`"),
            ("7/2months", NO_LENGTH, "days, such as `7/60d`"),
            ("1/year", NO_LENGTH, "days, such as `1/365d`"),
            ("1/2years", NO_UNITS, EXAMPLE),
            ("1/0months", NO_UNITS, EXAMPLE),
            ("0.5/s", FRACTION, "`1/2s`"),
            (".5/s", FRACTION, "`1/2s`"),
            ("1.50/min", FRACTION, "`3/2min`"),
            ("2.0/10s", FRACTION, "`2/10s`"),
            ("2./s", FRACTION, "`2/s`"),
            ("0.125/4h", FRACTION, "`1/32h`"),
            ("0.0/s", "without a whole number of permits", EXAMPLE),
            ("./s", "without a whole number of permits", EXAMPLE),
            ("0.00001/w", "without a whole number of permits", EXAMPLE),
            ("0.00000000000000000001/s", "without a whole number of permits", EXAMPLE),
            ("-0.5/s", "without a whole number of permits", EXAMPLE),
            ("0.5/1m30s", "without a whole number of permits", EXAMPLE),
            ("0.5/é", "without a whole number of permits", EXAMPLE),
        ];
        for (text, cause, fix) in cases {
            let error = text.parse::<Limit>().expect_err(text);
            let message = format!("`limit` must be `permits/window`, got `{text}` {cause}: write {fix}");
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidLimit, message));
        }
    }
}
