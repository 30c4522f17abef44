//! What kind of function can be limited.

use crate::errors::Errors;
use crate::item::Function;
use crate::output;

pub(super) fn check(function: &Function, errors: &mut Errors) {
    if let Some(token) = &function.signature.constness {
        errors.at(
            token,
            "a `const fn` may run in the compiler, where nothing is counted: remove `const`, or annotate the functions \
             that call it",
        );
    }
    if let Some(future) = output::future(&function.signature) {
        errors.at(
            future,
            "this function only makes a future, so its calls would be limited and not the future's runs: write it as \
             `async fn`",
        );
    }
    let another = function
        .attributes
        .iter()
        .find(|attribute| attribute.path().segments.last().is_some_and(|segment| segment.ident == "rate_limited"));
    if let Some(another) = another {
        errors.at(another, "a function takes one `rate_limited`: remove this one, or limit a function that it calls");
    }
}
