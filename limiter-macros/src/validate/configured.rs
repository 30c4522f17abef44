//! `limit = configured`: a rule whose limits are in the program's configuration alone.

use limiter_syntax::nearest;
use syn::Expr;

use crate::args::Args;
use crate::errors::Errors;
use crate::names::Argument;
use crate::params::Params;
use crate::value::{bare_name, string};

const CONFIGURED: &str = "configured";

/// The arguments that configuration replaces.
const REPLACED: [Argument; 9] = [
    Argument::Limit,
    Argument::Limits,
    Argument::Concurrent,
    Argument::Window,
    Argument::Max,
    Argument::Algorithm,
    Argument::Burst,
    Argument::Zone,
    Argument::Anchor,
];

/// Returns whether the rule has no limits of its own: a text alone, or `limit = configured`. The function's argument of
/// that name is an expression.
pub(super) fn is_configured(args: &Args, params: Params<'_>) -> bool {
    args.text().is_some() || args.value(Argument::Limit).is_some_and(|limit| is_word(limit, params))
}

/// Reports arguments beside it that have numbers or an algorithm.
pub(super) fn check(args: &Args, errors: &mut Errors) {
    for other in args.select(&REPLACED) {
        let name = other.argument.name();
        match args.text() {
            Some(text) => {
                let text = text.value();
                let message = format!(
                    "`\"{text}\"` alone takes its limits and their algorithm from configuration: remove `{name}`, or \
                     write `key = \"{text}\"` to give them here"
                );
                errors.push_at(&other.ident, message);
            }
            None if other.argument == Argument::Limit => {}
            None => {
                let message = format!(
                    "`limit = configured` takes the limits and their algorithm from configuration: remove `{name}`, or \
                     write the limit here, such as `limit = \"5/10s\"`"
                );
                errors.push_at(&other.ident, message);
            }
        }
    }
}

/// Reports the word in other forms than `limit = configured`, and returns whether there was one.
pub(super) fn check_misplaced(args: &Args, params: Params<'_>, errors: &mut Errors) -> bool {
    let mut found = false;
    let mut report = |value: &Expr, message: String| {
        errors.push_at(value, message);
        found = true;
    };
    for written in args.select(&REPLACED[..5]) {
        let name = written.argument.name();
        let elements: Vec<&Expr> = match &written.value {
            Expr::Array(list) => list.elems.iter().collect(),
            value => vec![value],
        };
        for value in elements {
            if is_word(value, params) {
                report(
                    value,
                    format!("`configured` stands for all limits of the rule: write `limit = configured`, not `{name}`"),
                );
            } else if string(value).is_some_and(|text| text.value() == CONFIGURED) {
                report(value, "`configured` is written without quotes: `limit = configured`".to_owned());
            } else if let Some(word) = misspelt(value, params).filter(|_| written.argument == Argument::Limit) {
                report(value, format!("unknown word `{word}`, did you mean `limit = configured`?"));
            }
        }
    }
    found
}

fn is_word(value: &Expr, params: Params<'_>) -> bool {
    bare_name(value).is_some_and(|word| word == CONFIGURED) && params.find(CONFIGURED).is_none()
}

/// Returns a word that is almost `configured`, and is no argument.
fn misspelt(value: &Expr, params: Params<'_>) -> Option<String> {
    let word = bare_name(value)?.to_string();
    nearest(&word, [CONFIGURED]).filter(|_| params.find(&word).is_none()).map(|_| word)
}
