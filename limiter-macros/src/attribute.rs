//! The attribute from end to end, on token streams that tests can make.

use proc_macro2::TokenStream;

use crate::args::Args;
use crate::errors::Errors;
use crate::expand::expand;
use crate::item::{Function, ImplBlock, Item, without_attributes};
use crate::plan::Plan;
use crate::validate::{Subject, check_skip, validate};

/// Returns the item with its decisions or, after a mistake, the unchanged item and all errors.
///
/// The item precedes the errors, because editors take the first occurrence of a token for the real one.
pub(crate) fn rate_limited(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    match expand_item(arguments, item.clone(), &mut errors) {
        Some(expanded) if errors.is_empty() => expanded,
        _ => {
            let mut output = without_attributes(item);
            output.extend(errors.into_error().into_compile_error());
            output
        }
    }
}

fn expand_item(arguments: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let mut rules = vec![Args::parse(arguments, errors)];
    let mut item = errors.take(Item::parse(item))?;
    rules.extend(item.take_rules().iter().map(|attribute| Args::from_attribute(attribute, errors)));
    if check_skip(&rules, errors) {
        return None;
    }
    match item {
        Item::Function(function) => {
            let plan = validate(&Subject { rules: &rules, function: &function, methods: &[] }, errors)?;
            Some(expand(&plan, *function))
        }
        Item::Impl(block) => expand_methods(&rules, block, errors),
    }
}

/// Expands each method with a decision of its own. All decisions share one quota.
fn expand_methods(rules: &[Args], block: ImplBlock, errors: &mut Errors) -> Option<TokenStream> {
    let methods: Vec<&Function> = block.limited_methods();
    if methods.is_empty() {
        errors.push_at(
            block.impl_token,
            "this `impl` block has no method to limit: each that has a body and no attribute of its own would be",
        );
    }
    let mut plans: Vec<Plan> = Vec::new();
    for function in &methods {
        let mut own = Errors::default();
        plans.extend(validate(&Subject { rules, function, methods: &methods }, &mut own));
        errors.merge(own);
    }
    if !errors.is_empty() {
        return None;
    }
    let mut plans = plans.into_iter();
    Some(block.map_limited(|function| match plans.next() {
        Some(plan) => expand(&plan, function),
        None => function.unchanged(),
    }))
}
