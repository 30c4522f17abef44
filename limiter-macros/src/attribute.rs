//! The attribute from end to end, on token streams that tests can make.

use proc_macro2::TokenStream;

use crate::args::Args;
use crate::errors::Errors;
use crate::expand::expand;
use crate::item::{Function, ImplBlock, Item, without_attributes};
use crate::plan::Plan;
use crate::validate::{Subject, check_skip, validate};

/// The item with its decisions; or, after a mistake, the item as it was and every error there is.
///
/// The item comes first: editors take the first occurrence of a token for the real one.
pub(crate) fn rate_limited(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    match limited(arguments, item.clone(), &mut errors) {
        Some(limited) if errors.is_empty() => limited,
        _ => {
            let mut output = without_attributes(item);
            output.extend(errors.into_error().into_compile_error());
            output
        }
    }
}

fn limited(arguments: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let mut rules = vec![Args::parse(arguments, errors)];
    let mut item = errors.take(Item::parse(item))?;
    rules.extend(item.take_rules().iter().map(|attribute| Args::of(attribute, errors)));
    if check_skip(&rules, errors) {
        return None;
    }
    match item {
        Item::Function(function) => {
            let plan = validate(&Subject { rules: &rules, function: &function, methods: &[] }, errors)?;
            Some(expand(&plan, *function))
        }
        Item::Impl(block) => limited_methods(&rules, block, errors),
    }
}

/// Each method with a decision of its own, which are all about the same quota.
fn limited_methods(rules: &[Args], block: ImplBlock, errors: &mut Errors) -> Option<TokenStream> {
    let methods: Vec<&Function> = block.limited();
    if methods.is_empty() {
        errors.at(
            block.impl_token,
            "this `impl` block has no method to limit: each that has a body and no attribute of its own would be",
        );
    }
    let mut plans: Vec<Plan> = Vec::new();
    for function in &methods {
        let mut own = Errors::default();
        plans.extend(validate(&Subject { rules, function, methods: &methods }, &mut own));
        errors.absorb(own);
    }
    if !errors.is_empty() {
        return None;
    }
    let mut plans = plans.into_iter();
    Some(block.with_limited(|function| match plans.next() {
        Some(plan) => expand(&plan, function),
        None => function.unchanged(),
    }))
}
