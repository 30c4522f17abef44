//! The text form of limits, such as `5/10s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::limit::{Algorithm, Layout, Limit};
use crate::{Error, ErrorKind};

/// The units with their lengths in milliseconds: the same table as in `limiter-macros/src/duration.rs`.
const UNITS: [(&str, u64); 18] = [
    ("ms", 1),
    ("s", 1000),
    ("sec", 1000),
    ("second", 1000),
    ("seconds", 1000),
    ("m", 60 * 1000),
    ("min", 60 * 1000),
    ("minute", 60 * 1000),
    ("minutes", 60 * 1000),
    ("h", 60 * 60 * 1000),
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

/// Parses `permits/duration`, as in `5/10s`, `100/min` or `1000/1h30m`.
///
/// The units are `ms`, `s`, `m` or `min`, `h`, `d` and `w`. They may be words: `sec`, `second(s)`, `minute(s)`,
/// `hour(s)`, `day(s)` and `week(s)`. A unit without a number means one of it.
impl FromStr for Limit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = |why: &str| {
            let problem =
                format!("`limit` must be `permits/window`, got `{text}` {why}: write one such as `5/10s` or `100/min`");
            Error::new(ErrorKind::InvalidLimit, problem)
        };
        let (max, window) = text.split_once('/').ok_or_else(|| invalid("without a `/`"))?;
        let (max, window) = (max.trim(), window.trim());
        if max.is_empty() || !max.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid("without a whole number of permits"));
        }
        let max: u32 = max.parse().map_err(|_| invalid("with more than 4294967295 permits"))?;
        if window.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid("with a window without a unit"));
        }
        let millis = parse_millis(window).ok_or_else(|| {
            invalid(&format!("with a window that is not made of whole numbers and the units {UNIT_LIST}"))
        })?;
        Self::new(max, Duration::from_millis(millis))
    }
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
            (&["s", "sec", "second", "seconds"], 1000),
            (&["m", "min", "minute", "minutes"], 60_000),
            (&["h", "hour", "hours"], 3_600_000),
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
        ];
        for text in cases {
            let error = text.parse::<Limit>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidLimit, "{text}");
        }
    }

    #[test]
    fn the_error_of_a_text_names_what_is_wrong_and_an_example() {
        let cases = [
            ("5", "without a `/`"),
            ("x/10s", "without a whole number of permits"),
            ("4294967296/1s", "with more than 4294967295 permits"),
            ("5/10", "with a window without a unit"),
            (
                "5/ten",
                "with a window that is not made of whole numbers and the units `ms`, `s`, `min`, `h`, `d`, `w` and \
                 words such as `minutes`",
            ),
        ];
        for (text, cause) in cases {
            let error = text.parse::<Limit>().expect_err(text);
            let message = format!(
                "`limit` must be `permits/window`, got `{text}` {cause}: write one such as `5/10s` or `100/min`"
            );
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidLimit, message));
        }
    }
}
