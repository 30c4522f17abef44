//! `limit`, or `window` and `max`: one way of saying it, whole, and literals within their bounds.

use syn::{Expr, Lit};

use crate::args::Args;
use crate::duration::{parse_limit, parse_window};
use crate::errors::Errors;
use crate::names::Argument;
use crate::plan::{Given, Limit};
use crate::value::{literal, string};

pub(super) fn limit(args: &Args, errors: &mut Errors) -> Option<Limit> {
    check_company(args, errors);
    // Each is read even where another is missing: its own mistake is worth reporting.
    let max = args.value(Argument::Max).and_then(|value| errors.take(max(value)));
    let window_millis = args.value(Argument::Window).and_then(|value| errors.take(window(value)));
    let short = args.value(Argument::Limit).and_then(|value| errors.take(short(value)));
    short.or_else(|| Some(Limit::Parts { max: max?, window_millis: window_millis? }))
}

/// Which of the three arguments stand together.
fn check_company(args: &Args, errors: &mut Errors) {
    let ways = [Argument::Limit, Argument::Window, Argument::Max];
    let given = args.among(&ways);
    match given.as_slice() {
        [] | [_] if args.unreadable(&ways) => {}
        [] => errors.at_attribute("no limit is given: add `limit = \"5/10s\"`, or `max = 5` and `window = \"10s\"`"),
        [only] => match only.argument {
            Argument::Window => errors.at(&only.ident, "`window` needs `max` beside it, such as `max = 5`"),
            Argument::Max => errors.at(&only.ident, "`max` needs `window` beside it, such as `window = \"10s\"`"),
            _ => {}
        },
        [first, others @ ..] => {
            let clash =
                others.iter().find(|other| first.argument == Argument::Limit || other.argument == Argument::Limit);
            if let Some(second) = clash {
                errors.at(
                    &second.ident,
                    "`limit` says both `max` and `window`: write it alone, or the two of them without it",
                );
            }
        }
    }
}

fn window(value: &Expr) -> syn::Result<Given<u64>> {
    if literal(value).is_none() {
        return Ok(Given::Expression(value.clone()));
    }
    let problem = match string(value).map(|text| parse_window(&text.value())) {
        Some(Ok(millis)) => return Ok(Given::Literal(millis)),
        Some(Err(problem)) => problem.to_string(),
        None => String::new(),
    };
    let message = format!("`window` must be a duration such as `\"10s\"`, between 1ms and 366d{problem}");
    Err(syn::Error::new_spanned(value, message))
}

fn max(value: &Expr) -> syn::Result<Given<u32>> {
    match (value, literal(value)) {
        (_, None) => return Ok(Given::Expression(value.clone())),
        (Expr::Lit(_), Some(Lit::Int(number))) if matches!(number.suffix(), "" | "u32") => {
            if let Ok(number @ 1..) = number.base10_parse() {
                return Ok(Given::Literal(number));
            }
        }
        _ => {}
    }
    let message = format!("`max` must be a number of permits such as `5`, between 1 and {}", u32::MAX);
    Err(syn::Error::new_spanned(value, message))
}

fn short(value: &Expr) -> syn::Result<Limit> {
    if literal(value).is_none() {
        return Ok(Limit::Value(value.clone()));
    }
    let problem = match string(value).map(|text| parse_limit(&text.value())) {
        Some(Ok((max, millis))) => {
            return Ok(Limit::Parts { max: Given::Literal(max), window_millis: Given::Literal(millis) });
        }
        Some(Err(problem)) => problem.to_string(),
        None => String::new(),
    };
    let message = format!("`limit` must be permits and a window, such as `\"5/10s\"` or `\"100/min\"`{problem}");
    Err(syn::Error::new_spanned(value, message))
}
