//! `algorithm = calendar`, `zone` and `anchor`: limits of calendar periods.

use limiter_syntax::{Anchor, Period};
use quote::ToTokens;
use syn::{Expr, Lit};

use crate::args::Args;
use crate::errors::Errors;
use crate::names::Argument;
use crate::plan::{Algorithm, Calendar, CountedBy, Given, Limit, LimitSource, Zone};
use crate::value::{literal, string};

const NO_CALENDAR: &str =
    "is for limits of the calendar: add `algorithm = calendar`, or write a limit such as `1000/month`";

/// Makes limits of the calendar where `algorithm` demands them, with `zone` and `anchor`. Returns the algorithm of the
/// others.
pub(super) fn apply(
    args: &Args,
    limits: &mut [(Limit, LimitSource)],
    counted_by: Option<CountedBy>,
    errors: &mut Errors,
) -> Option<CountedBy> {
    let is_demanded = matches!(&counted_by, Some(by) if by.algorithm == Algorithm::Calendar);
    let has_calendars_alone = limits.iter().all(|(limit, _)| matches!(limit, Limit::Calendar(_)));
    if let (false, true, Some(algorithm)) = (is_demanded, has_calendars_alone, args.get(Argument::Algorithm)) {
        let message = "a period of the calendar is counted by itself: write `algorithm = calendar`, or remove it";
        errors.push_at(&algorithm.ident, message);
    }
    if is_demanded {
        limits.iter_mut().for_each(|(limit, source)| count_by_calendar(limit, source, errors));
    }
    let calendars = || limits.iter().any(|(limit, _)| matches!(limit, Limit::Calendar(_)));
    for written in args.select(&[Argument::Zone, Argument::Anchor]) {
        // A limit that is none of the calendar after all has an error of its own.
        if !calendars() && !is_demanded {
            errors.push_at(&written.ident, format!("`{}` {NO_CALENDAR}", written.argument.name()));
        }
    }
    let mut periods = Vec::new();
    for (limit, source) in limits {
        let Limit::Calendar(calendar) = limit else { continue };
        if periods.contains(&calendar.period) {
            let message = "this period is there already, and both limits would count in it: keep the lower one";
            errors.push_at(&calendar.place, message);
        }
        periods.push(calendar.period);
        set_anchor(args, calendar, errors);
        set_zone(args, calendar, errors);
        *source = LimitSource::Calendar(match &calendar.zone {
            Some(Zone::Value(zone)) => calendar.text_with_zone(&zone.to_token_stream().to_string()),
            _ => calendar.text(),
        });
    }
    counted_by.filter(|_| !is_demanded)
}

/// Makes a window of an hour, a day or a week a period of the calendar.
fn count_by_calendar(limit: &mut Limit, source: &LimitSource, errors: &mut Errors) {
    let place = match source {
        LimitSource::Whole(value) | LimitSource::Concurrent(value) | LimitSource::Parts { window: value, .. } => value,
        LimitSource::Calendar(_) => return,
    };
    let message = match limit {
        Limit::Calendar(_) | Limit::Concurrent(_) => return,
        &mut Limit::Parts { max: Given::Literal(max), window_millis: Given::Literal(millis) } => {
            if let Some(period) = Period::of_window(millis) {
                let (anchor, place) = (Anchor::default_of(period), place.clone());
                *limit = Limit::Calendar(Box::new(Calendar { max, period, anchor, zone: None, place }));
                return;
            }
            "`algorithm = calendar` counts in an `hour`, `day`, `week`, `month`, `quarter` or `year`, and this is none of \
             them"
        }
        Limit::Parts { .. } => "`algorithm = calendar` needs a text such as `limit = \"1000/month\"`",
        Limit::Value(_) => {
            "`algorithm = calendar` needs a text such as `\"1000/month\"`: for an expression remove it, and build the limit \
             by `Limit::calendar`"
        }
    };
    errors.push_at(place, message);
}

fn set_anchor(args: &Args, calendar: &mut Calendar, errors: &mut Errors) {
    let Some(value) = args.value(Argument::Anchor) else { return };
    if calendar.anchor != Anchor::default_of(calendar.period) {
        return errors.push_at(value, "the limit has an anchor already: remove one of them");
    }
    let text = match literal(value) {
        Some(Lit::Int(number)) => number.base10_digits().to_owned(),
        Some(Lit::Str(text)) => text.value(),
        _ => return errors.push_at(value, "`anchor` must be a literal such as `5`, `\"sunday\"` or `\"04-06\"`"),
    };
    match Anchor::parse(calendar.period, &text) {
        Some(anchor) => calendar.anchor = anchor,
        None => errors.push_at(value, format!("`anchor` must be {}", calendar.period.anchor_bounds())),
    }
}

fn set_zone(args: &Args, calendar: &mut Calendar, errors: &mut Errors) {
    let Some(value) = args.value(Argument::Zone) else { return };
    if calendar.zone.is_some() {
        return errors.push_at(value, "the limit has a zone already: remove one of them");
    }
    calendar.zone = match (literal(value), string(value)) {
        (_, Some(name)) if !name.value().trim().is_empty() => Some(Zone::Name(name.value())),
        (None, _) => Some(Zone::Value(Expr::clone(value))),
        _ => {
            let message = "`zone` must be a name such as `\"Europe/Berlin\"`, or an expression that returns one";
            return errors.push_at(value, message);
        }
    };
}
