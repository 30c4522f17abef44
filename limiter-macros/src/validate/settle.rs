//! `settle`: the function that returns what a call has cost.

use syn::{Expr, ReturnType, Type, parse_quote};

use super::Subject;
use super::outcome::is_function;
use crate::args::Args;
use crate::errors::Errors;
use crate::names::Argument;
use crate::output;
use crate::params::Params;
use crate::plan::Settle;

/// Returns the function of one rule.
pub(super) fn settle(args: &Args, params: Params<'_>) -> syn::Result<Option<Settle>> {
    let Some(value) = args.value(Argument::Settle) else { return Ok(None) };
    match value {
        Expr::Closure(closure) => {
            if let Some(asyncness) = &closure.asyncness {
                let message = "`settle` returns a `u32` at once: remove `async`, and settle a `permit` for a cost that \
                               takes an await";
                return Err(syn::Error::new_spanned(asyncness, message));
            }
            if closure.inputs.len() != 1 {
                let message = "the closure of `settle` takes one argument: write `|answer| …`";
                return Err(syn::Error::new_spanned(closure, message));
            }
            Ok(Some(Settle::Closure(closure.clone())))
        }
        Expr::Path(path) if is_function(path, params) => Ok(Some(Settle::Function(path.clone()))),
        value => {
            let message = "`settle` must be a function of what the body returned: write a closure such as \
                           `|answer| answer.tokens`, or the path of a function";
            Err(syn::Error::new_spanned(value, message))
        }
    }
}

/// Returns the type of the body's value, if a rule has `settle`. A part that the signature hides is `_`.
pub(super) fn returned(subject: &Subject<'_>, errors: &mut Errors) -> Option<Type> {
    let function = subject.function;
    subject.rules.iter().find_map(|args| args.get(Argument::Settle))?;
    let message = match output::body_type(function) {
        Some(Type::Never(_)) => "a function that never returns has nothing to settle: remove `settle`",
        Some(returned) if output::is_stream(returned) => {
            "the answer of a stream is not known yet when the function returns it: instead of `settle`, move a `permit` \
             into the stream, and call the permit's `settle` at its end"
        }
        Some(returned) => return Some(output::visible(returned)),
        None if matches!(function.signature.output, ReturnType::Default) => return Some(parse_quote!(())),
        // The future's output is not visible here; rustc infers it.
        None => return Some(parse_quote!(_)),
    };
    errors.push_at(output::error_place(function), message);
    None
}
