//! `recover`: the handler of the body's own errors.

use quote::ToTokens;
use syn::{ReturnType, Type, parse_quote};

use super::outcome::outcome;
use crate::args::Written;
use crate::errors::Errors;
use crate::item::Function;
use crate::output;
use crate::params::Params;
use crate::plan::{Occasion, Outcome};

/// Returns the type of the body's value, and the handler of its errors.
pub(super) fn recover(
    written: Option<&Written>,
    function: &Function,
    params: Params<'_>,
    errors: &mut Errors,
) -> Option<(Type, Outcome)> {
    let written = written?;
    let returned = returned(function, errors);
    let outcome = errors.take(outcome(written, Occasion::BodyError, function, params));
    Some((returned?, outcome?))
}

/// Returns the type of the body's value, if it can be a `Result`.
fn returned(function: &Function, errors: &mut Errors) -> Option<Type> {
    let signature = &function.signature;
    let message = match output::body_type(function) {
        _ if output::contains_impl_trait(function) => {
            "`recover` needs to name what the function returns, and `impl Trait` has no name: write the type, or \
             handle errors in the body"
        }
        Some(Type::Never(_)) => "a function that never returns has no error to recover from: remove `recover`",
        Some(Type::Tuple(unit)) if unit.elems.is_empty() => NO_RESULT_MESSAGE,
        Some(returned) => return Some(returned.clone()),
        None if matches!(signature.output, ReturnType::Default) => NO_RESULT_MESSAGE,
        // The future's output is not visible here; rustc infers it.
        None => return Some(parse_quote!(_)),
    };
    errors.push_at(output::error_place(function).to_token_stream(), message);
    None
}

const NO_RESULT_MESSAGE: &str = "`recover` is called with the body's error, and this function returns none: return a \
                         `Result`, or remove `recover`";
