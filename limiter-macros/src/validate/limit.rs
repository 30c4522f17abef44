//! `limit`, `limits`, `concurrent`, or `window` and `max`: exactly one of these forms, complete, with literals within their bounds.

use limiter_syntax::MAX_CONCURRENT;
use syn::Expr;

use super::{configured, number};
use crate::args::{Args, Written};
use crate::errors::Errors;
use crate::limit_text;
use crate::names::Argument;
use crate::params::Params;
use crate::plan::{Given, Limit, LimitSource};
use crate::value::{literal, string};

/// The most limits of a rule: see `MAX_LIMITS` of limiter-core.
const MAX_LIMITS: usize = 16;

pub(super) fn limits(args: &Args, params: Params<'_>, errors: &mut Errors) -> Option<Vec<(Limit, LimitSource)>> {
    check_combination(args, errors);
    if configured::check_misplaced(args, params, errors) {
        return None;
    }
    // Each is parsed even if another is missing, so that its own mistake is reported too.
    let max = args.value(Argument::Max).and_then(|value| errors.take(max(value)));
    let window_millis = args.value(Argument::Window).and_then(|value| errors.take(window(value)));
    let limit = args.value(Argument::Limit).and_then(|value| errors.take(limit_value(value, Argument::Limit)));
    let limits = args.value(Argument::Limits).and_then(|value| limit_list(value, errors));
    let concurrent = args.value(Argument::Concurrent).and_then(|value| errors.take(concurrent(value)));
    let whole = |limit| Some((limit, LimitSource::Whole(args.value(Argument::Limit)?.clone())));
    let parts = || {
        let (max_source, window_source) = (args.value(Argument::Max)?.clone(), args.value(Argument::Window)?.clone());
        let source = LimitSource::Parts { max: max_source, window: window_source };
        Some((Limit::Parts { max: max?, window_millis: window_millis? }, source))
    };
    let at_once =
        |max| Some((Limit::Concurrent(max), LimitSource::Concurrent(args.value(Argument::Concurrent)?.clone())));
    let one = || concurrent.and_then(at_once).or_else(|| limit.and_then(whole)).or_else(parts);
    limits.or_else(|| one().map(|one| vec![one]))
}

/// Reports combinations of the five arguments that are incomplete or contradictory.
fn check_combination(args: &Args, errors: &mut Errors) {
    let ways = [Argument::Limit, Argument::Limits, Argument::Window, Argument::Max, Argument::Concurrent];
    let given = args.select(&ways);
    match given.as_slice() {
        [] | [_] if args.any_unreadable(&ways) => {}
        [] => args
            .report_missing("no limit is given: add `limit = \"5/10s\"`, or `max = 5` and `window = \"10s\"`", errors),
        [only] => match only.argument {
            Argument::Window => errors.push_at(&only.ident, "`window` needs `max` beside it, such as `max = 5`"),
            Argument::Max => errors.push_at(&only.ident, "`max` needs `window` beside it, such as `window = \"10s\"`"),
            _ => {}
        },
        [first, others @ ..] => {
            let is = |argument| move |written: &&&Written| written.argument == argument;
            let clash = |argument| others.iter().find(|other| first.argument == argument || is(argument)(other));
            if let Some(second) = clash(Argument::Concurrent) {
                errors.push_at(
                    &second.ident,
                    "`concurrent` is a limit of its own: write it alone, or all of them as texts, as in \
                     `limits = [\"50 concurrent\", \"100/min\"]`",
                );
            } else if let Some(second) = clash(Argument::Limits) {
                errors.push_at(
                    &second.ident,
                    "`limits` contains all of it: write it alone, with one string for each limit, as in \
                     `limits = [\"5/s\", \"100/min\"]`",
                );
            } else if let Some(second) = clash(Argument::Limit) {
                errors.push_at(
                    &second.ident,
                    "`limit` contains both `max` and `window`: write it alone, or the two of them without it",
                );
            }
        }
    }
}

/// Parses a list such as `["5/s", "100/min"]`, of literals and expressions.
fn limit_list(value: &Expr, errors: &mut Errors) -> Option<Vec<(Limit, LimitSource)>> {
    let Expr::Array(list) = value else {
        errors.push_at(value, "`limits` must be a list such as `[\"5/s\", \"100/min\"]`; one alone is a `limit`");
        return None;
    };
    if list.elems.is_empty() {
        errors.push_at(value, "`limits` is empty: write at least one limit, such as `[\"5/s\", \"100/min\"]`");
    }
    if list.elems.len() > MAX_LIMITS {
        let count = list.elems.len();
        errors.push_at(
            value,
            format!("`limits` has {count} limits, and a rule may have {MAX_LIMITS}: remove the others"),
        );
    }
    let mut limits = Vec::new();
    let mut windows = Vec::new();
    for element in &list.elems {
        let Some(limit) = errors.take(limit_value(element, Argument::Limits)) else { continue };
        if let Limit::Parts { window_millis: Given::Literal(window), .. } = limit {
            if windows.contains(&window) {
                errors.push_at(
                    element,
                    "this window is there already, and both limits would count in it: keep the lower one",
                );
            }
            windows.push(window);
        }
        if limit.is_concurrent() && limits.iter().any(|(other, _): &(Limit, _)| other.is_concurrent()) {
            errors.push_at(element, "a limit of calls at once is there already: keep the lower one");
        }
        limits.push((limit, LimitSource::Whole(element.clone())));
    }
    Some(limits).filter(|limits| !limits.is_empty())
}

fn window(value: &Expr) -> syn::Result<Given<u64>> {
    if literal(value).is_none() {
        return Ok(Given::Expression(value.clone()));
    }
    let problem = match string(value).map(limit_text::window) {
        Some(Ok(millis)) => return Ok(Given::Literal(millis)),
        Some(Err(problem)) => problem,
        None => String::new(),
    };
    let message = format!("`window` must be a duration such as `\"10s\"`, between 1ms and 366d{problem}");
    Err(syn::Error::new_spanned(value, message))
}

fn max(value: &Expr) -> syn::Result<Given<u32>> {
    number::permits(value, &format!("`max` must be a number of permits such as `5`, between 1 and {}", u32::MAX))
}

fn concurrent(value: &Expr) -> syn::Result<Given<u32>> {
    let range = format!("`concurrent` must be a number of calls at once such as `50`, between 1 and {MAX_CONCURRENT}");
    match number::permits(value, &range)? {
        Given::Literal(max) if max > MAX_CONCURRENT => Err(syn::Error::new_spanned(value, range)),
        given => Ok(given),
    }
}

fn limit_value(value: &Expr, argument: Argument) -> syn::Result<Limit> {
    if literal(value).is_none() {
        return Ok(Limit::Value(value.clone()));
    }
    let problem = match string(value).map(|text| limit_text::limit(text, value)) {
        Some(Ok(limit)) => return Ok(limit),
        Some(Err(problem)) => problem,
        None => String::new(),
    };
    let what = if argument == Argument::Limits { "each of `limits`" } else { "`limit`" };
    let message = format!("{what} must be permits and a window, such as `\"5/10s\"` or `\"100/min\"`{problem}");
    Err(syn::Error::new_spanned(value, message))
}
