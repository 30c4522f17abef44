//! Every rule about the arguments, their values and the function. All mistakes are gathered; without one there is a plan.

mod facade;
mod function;
mod key;
mod limit;
mod outcome;

use crate::args::Args;
use crate::errors::Errors;
use crate::item::Function;
use crate::names::Argument;
use crate::params::Params;
use crate::plan::{Limiter, Plan};

/// # Errors
/// All that were there before and all that are found here, as one.
pub(crate) fn validate(args: &Args, function: &Function, mut errors: Errors) -> syn::Result<Plan> {
    let params = Params::of(&function.signature);

    function::check(function, &mut errors);
    let facade = errors.take(facade::facade(args));
    let name = key::name(args, &mut errors);
    let key = key::key(args, &params, &mut errors);
    let limit = limit::limit(args, &mut errors);
    let on_denied = errors.take(outcome::on_denied(args, function, &params));
    let on_error = errors.take(outcome::on_error(args, function, &params));
    let limiter = args.value(Argument::Limiter).cloned().map_or(Limiter::Current, Limiter::Value);

    match (facade, name, key, limit, on_denied, on_error) {
        (Some(facade), Some(name), Some(key), Some(limit), Some(on_denied), Some(on_error)) if errors.is_empty() => {
            Ok(Plan { facade, name, key, limit, limiter, on_denied, on_error })
        }
        _ => Err(errors.into_error()),
    }
}
