//! Checks of the function: some kinds cannot be limited.

use proc_macro2::{TokenStream, TokenTree};

use super::Subject;
use crate::errors::Errors;
use crate::output;

pub(super) fn check(subject: &Subject<'_>, errors: &mut Errors) {
    let function = subject.function;
    if let Some(token) = &function.signature.constness {
        let message = if subject.is_method_of_block() {
            "a `const fn` may run in the compiler, where nothing is counted: remove `const`, or exempt it by \
             `#[rate_limited(skip)]`"
        } else {
            "a `const fn` may run in the compiler, where nothing is counted: remove `const`, or annotate the functions \
             that call it"
        };
        errors.push_at(token, message);
    }
    if let Some(future) = output::future_type(&function.signature)
        && !function.makes_its_future()
    {
        errors.push_at(
            future,
            "this function only makes a future, so its calls would be limited and not the future's runs: write it as \
             `async fn`, or end it in `Box::pin(async move { … })`",
        );
    }
    if !function.is_async() && contains_literal(&function.body, "\"Failed building the Runtime\"") {
        errors.push_at_attribute(
            "`#[tokio::main]` and `#[tokio::test]` leave a function that is not async to the attributes below them: \
             write `#[rate_limited]` above",
        );
    }
}

/// Returns whether these tokens contain the literal. It shows that one of tokio's macros has run before.
fn contains_literal(body: &TokenStream, literal: &str) -> bool {
    body.clone().into_iter().any(|token| match token {
        TokenTree::Literal(found) => found.to_string() == literal,
        TokenTree::Group(group) => contains_literal(&group.stream(), literal),
        _ => false,
    })
}
