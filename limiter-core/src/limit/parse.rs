//! The text form of limits, such as `5/10s`, `1000/month@Europe/Berlin` or `50 concurrent`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

#[cfg(feature = "calendar")]
use limiter_syntax::Anchor;
use limiter_syntax::{
    DurationProblem, LimitProblem, LimitText, MAX_CONCURRENT, Period, UNIT_LIST, WindowText, parse_limit,
};

use crate::calendar::Calendar;
use crate::error::NamedValue;
use crate::limit::{Algorithm, Layout, Limit};
use crate::{Error, ErrorKind};

/// Parses `permits/duration`, as in `5/10s`, `100/min` or `1000/1h30m`, or `calls concurrent`, as in `50 concurrent`, or
/// `permits/period:anchor@zone`, as in `1000/month:5@Europe/Berlin`.
///
/// A `month`, a `quarter` and a `year` are periods of the calendar, of UTC unless a zone is written. An `hour`, a `day` and
/// a `week` are windows of that length unless a zone or an anchor is written. Periods need the feature `calendar`.
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
            #[cfg(feature = "calendar")]
            Ok(LimitText::Calendar { permits: max, period, anchor, zone }) => {
                return Self::of_period(max, period, anchor, zone);
            }
            #[cfg(not(feature = "calendar"))]
            Ok(LimitText::Calendar { permits, period, .. }) => {
                let days = (period.max_millis() / 86_400_000).min(366);
                let fix = format!("days, such as `{permits}/{days}d`, or enable the feature `calendar`");
                return invalid_unless("with a period of the calendar", &fix);
            }
            Err(LimitProblem::Period { .. }) => return invalid_unless("with no period of the calendar", PERIOD_FIX),
            Err(LimitProblem::Anchor { period, .. }) => {
                let fix = format!("an anchor that is {}", period.anchor_bounds());
                return invalid_unless("with another anchor", &fix);
            }
            Err(LimitProblem::NoZone) => return invalid_unless("without the name of a zone", PERIOD_FIX),
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

#[cfg(feature = "calendar")]
impl Limit {
    /// Returns the limit of a text with a period of the calendar.
    fn of_period(permits: u32, period: Period, anchor: Option<Anchor>, zone: Option<&str>) -> Result<Self, Error> {
        let mut limit = Self::calendar(permits, period)?;
        if let Some(anchor) = anchor {
            limit.calendar = limit.calendar.map(|calendar| calendar.anchored(anchor));
        }
        zone.map_or(Ok(limit), |zone| limit.zone(zone))
    }
}

const PERIOD_FIX: &str =
    "one such as `1000/month@Europe/Berlin`, of `hour`, `day`, `week`, `month`, `quarter` or `year`";
const DENY_FIX: &str = "`mode = \"deny\"` in its rule to deny every call";

/// Writes `5/10s`, or `100/min` for a window of one unit, or `1000/month@Europe/Berlin`, or `50 concurrent`. The text
/// parses to a limit with the same permits and window; algorithm, burst and layout are not in it.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_concurrent() {
            return write!(f, "{} {}", self.max, self.window_name());
        }
        write!(f, "{}/", self.max)?;
        if let Some(calendar) = self.calendar {
            return write!(f, "{calendar}");
        }
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
        let period = self.calendar.map(Calendar::period);
        WindowName { millis: self.window_millis.get(), is_concurrent: self.is_concurrent(), period }
    }
}

/// The window of a limit in names and labels: `10s`, or `month`, or `concurrent` if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowName {
    millis: u64,
    is_concurrent: bool,
    period: Option<Period>,
}

impl fmt::Display for WindowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_concurrent {
            return f.write_str(Algorithm::Concurrent.name());
        }
        if let Some(period) = self.period {
            return write!(f, "{period}");
        }
        write!(f, "{}", WindowText { millis: self.millis })
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.algorithm, self.burst) {
            (Algorithm::Concurrent | Algorithm::Calendar, _) => write!(f, "Limit({self})"),
            (Algorithm::SlidingWindow, _) if self.layout() == Layout::Compact => write!(f, "Limit({self})"),
            (Algorithm::SlidingWindow, _) => write!(f, "Limit({self}, {:?})", self.layout()),
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

    #[cfg(feature = "calendar")]
    #[test]
    fn a_formatted_limit_of_the_calendar_parses_to_itself() {
        let calendar = |max, period| Limit::calendar(max, period).expect("a limit");
        let in_berlin = |limit: Limit| limit.zone("Europe/Berlin").expect("a zone");
        let cases = [
            ("1000/month", calendar(1000, Period::Month), "1000/month"),
            ("1000/month@utc", calendar(1000, Period::Month), "1000/month"),
            (" 5 / month : 1 ", calendar(5, Period::Month), "5/month"),
            (
                "1000/month:5@Europe/Berlin",
                in_berlin(calendar(1000, Period::Month)).anchor(5).expect("an anchor"),
                "1000/month:5@Europe/Berlin",
            ),
            ("5/hour@UTC", calendar(5, Period::Hour), "5/hour@UTC"),
            ("5/day@europe/berlin", in_berlin(calendar(5, Period::Day)), "5/day@Europe/Berlin"),
            ("5/week:mon", calendar(5, Period::Week), "5/week@UTC"),
            ("5/week:SUN@UTC", calendar(5, Period::Week).anchor("Sunday").expect("an anchor"), "5/week:sunday@UTC"),
            ("5/quarter:04-01", calendar(5, Period::Quarter), "5/quarter"),
            ("5/year:04-06", calendar(5, Period::Year).anchor("04-06").expect("an anchor"), "5/year:04-06"),
        ];
        for (text, limit, shown) in cases {
            assert_eq!(text.parse::<Limit>().expect(text), limit);
            assert_eq!((limit.to_string(), format!("{limit:?}")), (shown.to_owned(), format!("Limit({shown})")));
            assert_eq!(shown.parse::<Limit>().expect(shown), limit);
        }
        let name = "5/month:7".parse::<Limit>().expect("a limit").window_name().to_string();
        assert_eq!(name, "month", "a label has neither anchor nor zone");
    }

    #[cfg(not(feature = "calendar"))]
    #[test]
    fn a_limit_of_the_calendar_needs_the_feature() {
        for (text, days) in [("7/month", 31), ("7/month:5@Europe/Berlin", 31), ("7/day@UTC", 1), ("7/year", 366)] {
            let error = text.parse::<Limit>().expect_err(text);
            let message = format!(
                "`limit` must be `permits/window`, got `{text}` with a period of the calendar: write days, such as \
                 `7/{days}d`, or enable the feature `calendar`"
            );
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidLimit, message));
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
            ("30/feb", NO_UNITS, EXAMPLE),
            ("7/2months", NO_LENGTH, "days, such as `7/60d`"),
            ("1/years", NO_LENGTH, "days, such as `1/365d`"),
            ("5/month:32", "with another anchor", "an anchor that is a day from 1 to 31 for a month"),
            ("5/year:02-30", "with another anchor", "an anchor that is a date such as `04-06` for a year"),
            ("5/week:8", "with another anchor", "an anchor that is a weekday such as `sunday` for a week"),
            ("5/month@", "without the name of a zone", PERIOD_FIX),
            ("5/10s@UTC", "with no period of the calendar", PERIOD_FIX),
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
