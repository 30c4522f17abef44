//! Limits as text: `5/10s`, `100/min`, `1000/month@Europe/Berlin`, `50 concurrent`.

use crate::calendar::{Anchor, Period, PeriodText};
use crate::duration::{DurationProblem, parse_window, split_while};
use crate::suggestion::nearest;

/// The most calls at once that a limit may allow.
pub const MAX_CONCURRENT: u32 = 65_535;

/// The word of a limit of calls at once.
const CONCURRENT: &str = "concurrent";

/// The numbers of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitText<'t> {
    /// A number of permits in any window: `5/10s`.
    Window {
        /// The permits.
        permits: u32,
        /// The window in milliseconds.
        millis: u64,
    },
    /// A number of permits in each period of the calendar: `1000/month:5@Europe/Berlin`.
    Calendar {
        /// The permits.
        permits: u32,
        /// The period.
        period: Period,
        /// The start of the periods, if it is written.
        anchor: Option<Anchor>,
        /// The zone as written, if it is.
        zone: Option<&'t str>,
    },
    /// A number of calls at once: `50 concurrent`.
    Concurrent {
        /// The calls, 1 to [`MAX_CONCURRENT`].
        calls: u32,
    },
}

/// The reason why a text is no limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LimitProblem<'t> {
    /// The text has no `/`.
    NoSlash,
    /// The permits are no whole number.
    Permits,
    /// The permits have a fraction.
    Fraction {
        /// The permits as written.
        permits: &'t str,
        /// An equal limit in whole permits: `1/2s` for `0.5/s`.
        limit: String,
    },
    /// The limit has no permit.
    NoPermits,
    /// The permits are more than `u32::MAX`.
    TooManyPermits,
    /// The window is none.
    Window {
        /// The permits.
        permits: u32,
        /// The window as written.
        window: &'t str,
        /// The reason.
        problem: DurationProblem<'t>,
    },
    /// The word before an anchor or a zone is no period of the calendar.
    Period {
        /// The word.
        period: &'t str,
    },
    /// The anchor is none of the period.
    Anchor {
        /// The period.
        period: Period,
        /// The anchor as written.
        anchor: &'t str,
    },
    /// The zone has no name.
    NoZone,
    /// The calls at once are no whole number.
    Calls,
    /// The limit has no call at once.
    NoCalls,
    /// The calls at once are more than [`MAX_CONCURRENT`].
    TooManyCalls,
}

/// Parses a limit, and returns its numbers.
///
/// ```
/// use limiter_syntax::{LimitProblem, LimitText, parse_limit};
///
/// assert_eq!(parse_limit("100/min"), Ok(LimitText::Window { permits: 100, millis: 60_000 }));
/// assert_eq!(parse_limit("50 concurrent"), Ok(LimitText::Concurrent { calls: 50 }));
/// assert_eq!(parse_limit("0.5/s"), Err(LimitProblem::Fraction { permits: "0.5", limit: "1/2s".to_owned() }));
/// ```
///
/// # Errors
/// The first problem of the text.
pub fn parse_limit(text: &str) -> Result<LimitText<'_>, LimitProblem<'_>> {
    if let Some(calls) = text.trim().strip_suffix(CONCURRENT) {
        return parse_calls(calls.trim_end());
    }
    let (permits, window) = text.split_once('/').ok_or_else(|| match text.trim().split_once(' ') {
        Some((_, word)) if nearest(&word.to_ascii_lowercase(), [CONCURRENT]).is_some() => LimitProblem::Calls,
        _ => LimitProblem::NoSlash,
    })?;
    let (permits, window) = (permits.trim(), window.trim());
    if let Some(limit) = without_fraction(permits, window) {
        return Err(LimitProblem::Fraction { permits, limit });
    }
    if !is_number(permits) {
        return Err(LimitProblem::Permits);
    }
    match permits.parse() {
        Ok(0) => Err(LimitProblem::NoPermits),
        Ok(permits) => match (PeriodText::split(window), parse_window(window)) {
            (Some(period), _) => parse_period(permits, &period),
            (None, Ok(millis)) => Ok(LimitText::Window { permits, millis }),
            (None, Err(problem)) => Err(LimitProblem::Window { permits, window, problem }),
        },
        Err(_) => Err(LimitProblem::TooManyPermits),
    }
}

fn parse_period<'t>(permits: u32, text: &PeriodText<'t>) -> Result<LimitText<'t>, LimitProblem<'t>> {
    let &PeriodText { period, anchor, zone } = text;
    let period = Period::named(period).ok_or(LimitProblem::Period { period })?;
    let parse = |anchor| Anchor::parse(period, anchor).ok_or(LimitProblem::Anchor { period, anchor });
    let anchor = anchor.map(parse).transpose()?;
    match zone {
        Some("") => Err(LimitProblem::NoZone),
        zone => Ok(LimitText::Calendar { permits, period, anchor, zone }),
    }
}

fn parse_calls(calls: &str) -> Result<LimitText<'_>, LimitProblem<'_>> {
    if !is_number(calls) {
        return Err(LimitProblem::Calls);
    }
    match calls.parse() {
        Ok(0) => Err(LimitProblem::NoCalls),
        Ok(calls @ 1..=MAX_CONCURRENT) => Ok(LimitText::Concurrent { calls }),
        _ => Err(LimitProblem::TooManyCalls),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the limit in whole permits that equals one with a fraction of a permit: `1/2s` for `0.5/s`.
fn without_fraction(permits: &str, window: &str) -> Option<String> {
    let (whole, fraction) = permits.split_once('.')?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_limits() {
        let cases = [
            ("5/10s", (5, 10_000)),
            ("100/min", (100, 60_000)),
            ("5/s", (5, 1000)),
            (" 4 / 2d ", (4, 172_800_000)),
            ("4294967295/1ms", (u32::MAX, 1)),
        ];
        for (text, (permits, millis)) in cases {
            assert_eq!(parse_limit(text), Ok(LimitText::Window { permits, millis }), "{text}");
        }
    }

    #[test]
    fn parses_limits_of_calls_at_once() {
        let cases = [
            ("50 concurrent", Ok(50)),
            ("1 concurrent", Ok(1)),
            (" 65535  concurrent ", Ok(65_535)),
            ("50concurrent", Ok(50)),
            ("0 concurrent", Err(LimitProblem::NoCalls)),
            ("00 concurrent", Err(LimitProblem::NoCalls)),
            ("65536 concurrent", Err(LimitProblem::TooManyCalls)),
            ("99999999999999999999 concurrent", Err(LimitProblem::TooManyCalls)),
            ("concurrent", Err(LimitProblem::Calls)),
            ("5.5 concurrent", Err(LimitProblem::Calls)),
            ("-1 concurrent", Err(LimitProblem::Calls)),
            ("+1 concurrent", Err(LimitProblem::Calls)),
            ("5/10s concurrent", Err(LimitProblem::Calls)),
            ("50 concurrent/10s", Err(LimitProblem::Permits)),
            ("50 concurrently", Err(LimitProblem::Calls)),
            ("50 concurent", Err(LimitProblem::Calls)),
            ("50 Concurrent", Err(LimitProblem::Calls)),
            ("50 per second", Err(LimitProblem::NoSlash)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_limit(text), expected.map(|calls| LimitText::Concurrent { calls }), "{text}");
        }
    }

    #[test]
    fn parses_limits_of_calendar_periods() {
        let cases = [
            ("1000/month", (1000, Period::Month, "", None)),
            ("1000/month:1", (1000, Period::Month, "1", None)),
            ("1000/month:5@Europe/Berlin", (1000, Period::Month, "5", Some("Europe/Berlin"))),
            (" 7 / week : sun @ UTC ", (7, Period::Week, "sunday", Some("UTC"))),
            ("5/day@America/Argentina/Salta", (5, Period::Day, "", Some("America/Argentina/Salta"))),
            ("5/hour@UTC", (5, Period::Hour, "", Some("UTC"))),
            ("5/quarter:05-31", (5, Period::Quarter, "02-31", None)),
            ("5/year:04-06", (5, Period::Year, "04-06", None)),
        ];
        for (text, (permits, period, anchor, zone)) in cases {
            let anchor = match anchor {
                "" => None,
                "02-31" => Some(Anchor::parse(period, "05-31").expect("a date")),
                anchor => Some(Anchor::parse(period, anchor).expect(anchor)),
            };
            assert_eq!(parse_limit(text), Ok(LimitText::Calendar { permits, period, anchor, zone }), "{text}");
        }
        for (text, millis) in [("5/hour", 3_600_000), ("5/day", 86_400_000), ("5/week", 604_800_000)] {
            assert_eq!(parse_limit(text), Ok(LimitText::Window { permits: 5, millis }), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_calendar_periods() {
        let anchor = |period, anchor| LimitProblem::Anchor { period, anchor };
        let cases = [
            ("5/month:32", anchor(Period::Month, "32")),
            ("5/month:0", anchor(Period::Month, "0")),
            ("5/month:@UTC", anchor(Period::Month, "")),
            ("5/day:1", anchor(Period::Day, "1")),
            ("5/hour:monday", anchor(Period::Hour, "monday")),
            ("5/week:5", anchor(Period::Week, "5")),
            ("5/year:02-30", anchor(Period::Year, "02-30")),
            ("5/year:30/feb", anchor(Period::Year, "30/feb")),
            ("5/month@", LimitProblem::NoZone),
            ("5/10s@UTC", LimitProblem::Period { period: "10s" }),
            ("5/@UTC", LimitProblem::Period { period: "" }),
            ("5/months:5", LimitProblem::Period { period: "months" }),
            ("30/feb", LimitProblem::Window { permits: 30, window: "feb", problem: DurationProblem::Unreadable }),
            ("0/month", LimitProblem::NoPermits),
            ("0.5/month", LimitProblem::Permits),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_limit(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_permits() {
        let cases = [
            ("5", LimitProblem::NoSlash),
            ("x/10s", LimitProblem::Permits),
            ("/10s", LimitProblem::Permits),
            ("+5/10s", LimitProblem::Permits),
            ("-5/10s", LimitProblem::Permits),
            ("0/10s", LimitProblem::NoPermits),
            ("0/10", LimitProblem::NoPermits),
            ("4294967296/1s", LimitProblem::TooManyPermits),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_limit(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_fraction_of_a_permit_is_a_whole_one_of_more_time() {
        let cases = [
            ("0.5/s", Some("1/2s")),
            (".5/s", Some("1/2s")),
            ("1.50/10min", Some("3/20min")),
            ("2.0/s", Some("2/s")),
            ("2./s", Some("2/s")),
            ("0.125/4h", Some("1/32h")),
            ("0.0/s", None),
            ("./s", None),
            ("-0.5/s", None),
            ("0.5/1m30s", None),
            ("0.5/é", None),
            ("0.00001/w", None),
            ("0.00000000000000000001/s", None),
        ];
        for (text, limit) in cases {
            let expected = match (limit, text.split_once('/')) {
                (Some(limit), Some((permits, _))) => LimitProblem::Fraction { permits, limit: limit.to_owned() },
                _ => LimitProblem::Permits,
            };
            assert_eq!(parse_limit(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn the_problem_of_a_window_has_the_permits() {
        use DurationProblem::{NoFixedLength, NoUnit, UnknownUnit, Unreadable, Zero};
        let cases = [
            ("7/2months", 7, "2months", NoFixedLength { unit: "months", days: 60 }),
            ("5/", 5, "", Unreadable),
            ("5/ 10", 5, "10", NoUnit { number: "10" }),
            ("5/0s", 5, "0s", Zero),
            ("5/1sm", 5, "1sm", UnknownUnit { unit: "sm" }),
        ];
        for (text, permits, window, problem) in cases {
            assert_eq!(parse_limit(text), Err(LimitProblem::Window { permits, window, problem }), "{text}");
        }
    }
}
