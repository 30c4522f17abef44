//! `algorithm` and `burst`: the algorithm that counts a rule's limits.

use limiter_syntax::nearest;

use super::number;
use crate::args::{Args, Written};
use crate::errors::Errors;
use crate::names::Argument;
use crate::plan::{Algorithm, CountedBy};
use crate::value::{bare_name, string};

const CONCURRENT: &str = "concurrent";
const NO_ALGORITHM: &str = "calls at once are no permits of a window, which an algorithm counts: write \
                            `concurrent = 50` instead of `algorithm` and the limit";

/// Reports arguments that belong to windows, beside limits of which none has one. Returns whether there are any.
pub(super) fn check_concurrent(args: &Args, errors: &mut Errors) -> bool {
    let of_windows = args.select(&[Argument::Algorithm, Argument::Burst]);
    for written in &of_windows {
        let name = written.argument.name();
        let message = format!("`{name}` is for permits in a window, and calls at once have none: remove it");
        errors.push_at(&written.ident, message);
    }
    !of_windows.is_empty()
}

pub(super) fn algorithm(args: &Args, errors: &mut Errors) -> Option<CountedBy> {
    let written = args.get(Argument::Algorithm);
    let algorithm = written.and_then(|written| errors.take(algorithm_named(written)));
    let burst = args.get(Argument::Burst).and_then(|burst| {
        match (algorithm, written) {
            (Some(algorithm), _) if !algorithm.has_burst() => errors.push_at(
                &burst.ident,
                "`burst` is for `token_bucket` and `leaky_bucket`: remove it, or choose one of them",
            ),
            (None, None) if !args.any_unreadable(&[Argument::Algorithm]) => errors.push_at(
                &burst.ident,
                "`burst` needs `algorithm = token_bucket` or `algorithm = leaky_bucket` beside it",
            ),
            _ => {}
        }
        let range = format!("`burst` must be a number of permits such as `10`, between 1 and {}", u32::MAX);
        errors.take(number::permits(&burst.value, &range))
    });
    Some(CountedBy { algorithm: algorithm?, burst })
}

/// # Errors
/// The value is no algorithm's name. The message suggests the nearest one.
fn algorithm_named(written: &Written) -> syn::Result<Algorithm> {
    let all = || Algorithm::ALL.map(|algorithm| format!("`{}`", algorithm.name())).join(", ");
    let find = |text: &str| Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text);
    let message = match (bare_name(&written.value), string(&written.value)) {
        (Some(word), _) if word == CONCURRENT => NO_ALGORITHM.to_owned(),
        (None, Some(text)) if text.value() == CONCURRENT => NO_ALGORITHM.to_owned(),
        (Some(word), _) => {
            let word = word.to_string();
            match (find(&word), meant_by(&word)) {
                (Some(algorithm), _) => return Ok(algorithm),
                (None, Some(meant)) => format!("unknown algorithm `{word}`, did you mean `{meant}`?"),
                (None, None) => format!("unknown algorithm `{word}`: the algorithms are {}", all()),
            }
        }
        (None, Some(text)) if find(&text.value()).is_some() => {
            format!("an algorithm is written without quotes: `algorithm = {}`", text.value())
        }
        _ => format!("`algorithm` must be one of {}, as a bare word", all()),
    };
    Err(syn::Error::new_spanned(&written.value, message))
}

/// Returns the name that an unknown word probably means: a name from other limiters, or a misspelt one.
fn meant_by(word: &str) -> Option<&'static str> {
    match word {
        "gcra" | "bucket" | "tokens" => Some("token_bucket"),
        "queue" | "leaky" => Some("leaky_bucket"),
        "fixed" | "window" => Some("fixed_window"),
        "sliding" | "sliding_log" | "sliding_window_log" => Some("sliding_window"),
        "sliding_window_counter" => Some("sliding_counter"),
        _ => nearest(word, Algorithm::ALL.map(Algorithm::name)),
    }
}
