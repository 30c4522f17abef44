//! The attribute from end to end, on token streams that tests can make.

use proc_macro2::TokenStream;

use crate::args::Args;
use crate::errors::Errors;
use crate::expand::expand;
use crate::item::Function;
use crate::plan::Plan;
use crate::validate::validate;

/// The function with its prologue; or, after a mistake, the item as it was and every error there is.
///
/// The item comes first: editors take the first occurrence of a token for the real one.
pub(crate) fn rate_limited(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match understand(arguments, item.clone()) {
        Ok((plan, function)) => expand(&plan, function),
        Err(error) => {
            let mut output = item;
            output.extend(error.into_compile_error());
            output
        }
    }
}

fn understand(arguments: TokenStream, item: TokenStream) -> syn::Result<(Plan, Function)> {
    let mut errors = Errors::default();
    let args = Args::parse(arguments, &mut errors);
    let Some(function) = errors.take(Function::parse(item)) else {
        return Err(errors.into_error());
    };
    let plan = validate(&args, &function, errors)?;
    Ok((plan, function))
}
