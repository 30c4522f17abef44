//! Limits and windows in strings. An error is the end of a message: the reason and the cure, in parentheses, or nothing.

use limiter_syntax::{
    Anchor, DurationProblem, LimitProblem, LimitText, MAX_CONCURRENT, UNIT_LIST, parse_limit, parse_window,
};
use syn::{Expr, LitStr};

use crate::plan::{Calendar, Given, Limit, Zone};

/// Parses a window, and returns it in milliseconds.
pub(crate) fn window(text: &LitStr) -> Result<u64, String> {
    parse_window(&text.value()).map_err(window_problem)
}

/// Parses a limit that is written at a place.
pub(crate) fn limit(text: &LitStr, place: &Expr) -> Result<Limit, String> {
    Ok(match parse_limit(&text.value()).map_err(limit_problem)? {
        LimitText::Window { permits, millis } => {
            Limit::Parts { max: Given::Literal(permits), window_millis: Given::Literal(millis) }
        }
        LimitText::Concurrent { calls } => Limit::Concurrent(Given::Literal(calls)),
        LimitText::Calendar { permits, period, anchor, zone } => {
            let zone = zone.map(|zone| Zone::Name(zone.to_owned()));
            let anchor = anchor.unwrap_or(Anchor::default_of(period));
            Limit::Calendar(Box::new(Calendar { max: permits, period, anchor, zone, place: place.clone() }))
        }
    })
}

pub(crate) fn window_problem(problem: DurationProblem<'_>) -> String {
    match problem {
        DurationProblem::Unreadable => String::new(),
        DurationProblem::NoUnit { number } => format!(" (`{number}` of what? write `{number}s`)"),
        DurationProblem::UnknownUnit { unit } => format!(" (`{unit}` is none of the units {UNIT_LIST})"),
        DurationProblem::NoFixedLength { unit, days } => {
            format!(" (`{unit}` has no fixed length: write days, such as `{days}d`)")
        }
        DurationProblem::Zero => " (this is zero)".to_owned(),
        DurationProblem::TooLong { .. } => " (this is longer)".to_owned(),
    }
}

fn limit_problem(problem: LimitProblem<'_>) -> String {
    match problem {
        LimitProblem::NoSlash | LimitProblem::Permits => String::new(),
        LimitProblem::Fraction { permits, limit } => format!(" (`{permits}` is no whole number: write `{limit}`)"),
        LimitProblem::NoPermits | LimitProblem::NoCalls => {
            " (0 would let nothing through, ever: write `mode = \"deny\"` in its rule for that)".to_owned()
        }
        LimitProblem::TooManyPermits => format!(" (at most {})", u32::MAX),
        LimitProblem::Period { period } => {
            format!(" (`{period}` is none of the periods `hour`, `day`, `week`, `month`, `quarter` and `year`)")
        }
        LimitProblem::Anchor { period, anchor } => {
            format!(" (`{anchor}` is no anchor, which must be {})", period.anchor_bounds())
        }
        LimitProblem::NoZone => " (the zone has no name: write one such as `Europe/Berlin`)".to_owned(),
        LimitProblem::Calls => " (of calls at once it is a whole number: write `50 concurrent`)".to_owned(),
        LimitProblem::TooManyCalls => format!(" (at most {MAX_CONCURRENT} calls at once)"),
        LimitProblem::Window { problem, .. } => window_problem(problem),
    }
}
