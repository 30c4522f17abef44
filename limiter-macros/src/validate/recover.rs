//! `recover`: what becomes of the body's own errors.

use quote::ToTokens;
use syn::{ReturnType, Type, parse_quote};

use super::outcome::outcome;
use crate::args::Written;
use crate::errors::Errors;
use crate::item::Function;
use crate::output;
use crate::params::Params;
use crate::plan::{Occasion, Recovery};

pub(super) fn recover(
    written: Option<&Written>,
    function: &Function,
    params: Params<'_>,
    errors: &mut Errors,
) -> Option<Recovery> {
    let written = written?;
    let returned = returned(function, errors);
    let outcome = errors.take(outcome(written, Occasion::Mistake, function, params));
    Some(Recovery { returned: returned?, outcome: outcome? })
}

/// The type of what the body gives, as far as it can be a `Result`.
fn returned(function: &Function, errors: &mut Errors) -> Option<Type> {
    let signature = &function.signature;
    let message = match output::value(function) {
        _ if output::contains_impl_trait(function) => {
            "`recover` needs to name what the function returns, and `impl Trait` has no name: write the type, or handle \
             errors in the body"
        }
        Some(Type::Never(_)) => "a function that never returns has no error to recover from: remove `recover`",
        Some(Type::Tuple(unit)) if unit.elems.is_empty() => NO_RESULT,
        Some(returned) => return Some(returned.clone()),
        None if matches!(signature.output, ReturnType::Default) => NO_RESULT,
        // A future of a type that is not in sight; rustc infers it.
        None => return Some(parse_quote!(_)),
    };
    errors.at(output::place(function).to_token_stream(), message);
    None
}

const NO_RESULT: &str = "`recover` is called with the body's error, and this function returns none: return a `Result`, \
                         or remove `recover`";
