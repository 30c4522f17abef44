//! The text form of limits, such as `5/10s` or `50 concurrent`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use limiter_syntax::{DurationProblem, LimitProblem, LimitText, MAX_CONCURRENT, UNIT_LIST, WindowText, parse_limit};

use crate::error::NamedValue;
use crate::limit::{Algorithm, Layout, Limit};
use crate::{Error, ErrorKind};

/// Parses `permits/duration`, as in `5/10s`, `100/min` or `1000/1h30m`, or `calls concurrent`, as in `50 concurrent`.
///
/// The units are `ms`, `s`, `m` or `min`, `h`, `d` and `w`. They may be words: `sec(s)`, `second(s)`, `min(s)`,
/// `minute(s)`, `hr(s)`, `hour(s)`, `day(s)` and `week(s)`. A unit without a number means one of it.
impl FromStr for Limit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid_unless = |why: &str, fix: &str| {
            let problem = format!("`limit` must be `permits/window`, got `{text}` {why}: write {fix}");
            Err(Error::new(ErrorKind::InvalidLimit, problem))
        };
        let invalid_calls = |why: &str, fix: &str| {
            let problem = format!("`limit` must be `calls concurrent`, got `{text}` {why}: write {fix}");
            Err(Error::new(ErrorKind::InvalidLimit, problem))
        };
        let invalid = |why: &str| invalid_unless(why, "one such as `5/10s` or `100/min`");
        let (permits, window, problem) = match parse_limit(text) {
            Ok(LimitText::Window { permits, millis }) => return Self::new(permits, Duration::from_millis(millis)),
            Ok(LimitText::Concurrent { calls }) => return Self::concurrent(calls),
            Err(LimitProblem::NoSlash) => return invalid("without a `/`"),
            Err(LimitProblem::Permits) => return invalid("without a whole number of permits"),
            Err(LimitProblem::Fraction { limit, .. }) => {
                return invalid_unless("with a fraction of a permit", &format!("`{limit}`"));
            }
            Err(LimitProblem::NoPermits) => {
                return invalid_unless("without a permit", DENY_FIX);
            }
            Err(LimitProblem::TooManyPermits) => return invalid("with more than 4294967295 permits"),
            Err(LimitProblem::Calls) => {
                return invalid_calls("without a whole number of calls", "one such as `50 concurrent`");
            }
            Err(LimitProblem::NoCalls) => return invalid_calls("without a call", DENY_FIX),
            Err(LimitProblem::TooManyCalls) => {
                let why = format!("with more than {MAX_CONCURRENT} calls");
                return invalid_calls(&why, "one such as `50 concurrent`");
            }
            Err(LimitProblem::Window { permits, window, problem }) => (permits, window, problem),
        };
        match problem {
            DurationProblem::Zero => Self::new(permits, Duration::ZERO),
            DurationProblem::TooLong { millis: u64::MAX } => invalid("with a window of more than 366 days"),
            DurationProblem::TooLong { millis } => Self::new(permits, Duration::from_millis(millis)),
            DurationProblem::NoFixedLength { days, .. } => {
                let fix = format!("days, such as `{permits}/{days}d`");
                invalid_unless("with a window of no fixed length", &fix)
            }
            _ if window.bytes().all(|byte| byte.is_ascii_digit()) => invalid("with a window without a unit"),
            _ => invalid(&format!("with a window that is not made of whole numbers and the units {UNIT_LIST}")),
        }
    }
}

const DENY_FIX: &str = "`mode = \"deny\"` in its rule to deny every call";

/// Writes `5/10s`, or `100/min` for a window of one unit, or `50 concurrent`. The text parses to a limit with the same
/// permits and window; algorithm, burst and layout are not in it.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_concurrent() {
            return write!(f, "{} {}", self.max, self.window_name());
        }
        write!(f, "{}/", self.max)?;
        let millis = self.window_millis.get();
        let window = WindowText { millis };
        match window.only_unit() {
            Some("m") => f.write_str("min"),
            Some(unit) => f.write_str(unit),
            None => write!(f, "{window}"),
        }
    }
}

impl Limit {
    /// The window in names and labels.
    pub(crate) fn window_name(&self) -> WindowName {
        WindowName { millis: self.window_millis.get(), is_concurrent: self.is_concurrent() }
    }
}

/// The window of a limit in names and labels: `10s`, or `concurrent` if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowName {
    millis: u64,
    is_concurrent: bool,
}

impl fmt::Display for WindowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_concurrent {
            return f.write_str(Algorithm::Concurrent.name());
        }
        write!(f, "{}", WindowText { millis: self.millis })
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.algorithm, self.burst) {
            (Algorithm::Concurrent, _) => write!(f, "Limit({self})"),
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
    fn a_formatted_limit_of_calls_at_once_parses_to_itself() {
        for (text, max, shown) in [
            ("50 concurrent", 50, "50 concurrent"),
            (" 1  concurrent ", 1, "1 concurrent"),
            ("65535concurrent", 65_535, "65535 concurrent"),
        ] {
            let limit: Limit = text.parse().expect(text);
            assert_eq!(limit, Limit::concurrent(max).expect("valid"));
            assert_eq!((limit.to_string(), format!("{limit:?}")), (shown.to_owned(), format!("Limit({shown})")));
            assert_eq!(shown.parse::<Limit>().expect(shown), limit);
        }
    }

    #[test]
    fn the_error_of_calls_at_once_names_what_is_wrong_and_an_example() {
        const EXAMPLE: &str = "one such as `50 concurrent`";
        const NO_NUMBER: &str = "without a whole number of calls";
        let cases = [
            ("0 concurrent", "without a call", DENY_FIX),
            ("65536 concurrent", "with more than 65535 calls", EXAMPLE),
            ("concurrent", NO_NUMBER, EXAMPLE),
            ("5.5 concurrent", NO_NUMBER, EXAMPLE),
            ("-1 concurrent", NO_NUMBER, EXAMPLE),
            ("5/10s concurrent", NO_NUMBER, EXAMPLE),
        ];
        for (text, cause, fix) in cases {
            let error = text.parse::<Limit>().expect_err(text);
            let message = format!("`limit` must be `calls concurrent`, got `{text}` {cause}: write {fix}");
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidLimit, message));
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
        const DENY: &str = DENY_FIX;
        const FRACTION: &str = "with a fraction of a permit";
        const NO_LENGTH: &str = "with a window of no fixed length";
        const NO_UNITS: &str = "with a window that is not made of whole numbers and the units `ms`, `s`, `min`, `h`, \
                                `d`, `w` and words such as `minutes`";
        let cases = [
            ("5", "without a `/`", EXAMPLE),
            ("x/10s", "without a whole number of permits", EXAMPLE),
            ("4294967296/1s", "with more than 4294967295 permits", EXAMPLE),
            ("5/10", "with a window without a unit", EXAMPLE),
            ("5/", "with a window without a unit", EXAMPLE),
            ("5/1m30", NO_UNITS, EXAMPLE),
            ("5/99999999999999999999d", "with a window of more than 366 days", EXAMPLE),
            ("5/ten", NO_UNITS, EXAMPLE),
            ("0/min", "without a permit", DENY),
            ("0/10", "without a permit", DENY),
            ("00 / 10s", "without a permit", DENY),
            ("1000/month", NO_LENGTH, "days, such as `1000/30d`"),
            ("7/2months", NO_LENGTH, "days, such as `7/60d`"),
            ("1/year", NO_LENGTH, "days, such as `1/365d`"),
            ("7/1d2months", NO_LENGTH, "days, such as `7/60d`"),
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
