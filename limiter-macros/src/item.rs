//! The annotated item: a function, or an `impl` block of methods.

mod boxed_future;
mod function;
mod impl_block;
mod other;

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Token};

pub(crate) use function::Function;
pub(crate) use impl_block::ImplBlock;
pub(crate) use other::without_attributes;

pub(crate) enum Item {
    Function(Box<Function>),
    Impl(ImplBlock),
}

impl Item {
    /// # Errors
    /// The item is neither a function nor an `impl` block. The message names the items to annotate instead.
    pub(crate) fn parse(item: TokenStream) -> syn::Result<Self> {
        let again = item.clone();
        syn::parse2(item).map_err(|error| match syn::parse2::<syn::Item>(again) {
            Ok(other) => other::not_limited(&other).unwrap_or(error),
            Err(_) => error,
        })
    }

    /// Removes the item's other attributes of this kind and returns them: they are further rules of the same decision.
    pub(crate) fn take_rules(&mut self) -> Vec<Attribute> {
        let attributes = match self {
            Self::Function(function) => &mut function.attributes,
            Self::Impl(block) => &mut block.attributes,
        };
        attributes.extract_if(.., |attribute| is_rule(attribute)).collect()
    }
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let ahead = input.fork();
        ahead.call(Attribute::parse_outer)?;
        if ahead.peek(Token![impl]) || ahead.peek(Token![unsafe]) && ahead.peek2(Token![impl]) {
            input.parse().map(Self::Impl)
        } else {
            input.parse().map(|function| Self::Function(Box::new(function)))
        }
    }
}

/// Returns whether it is this attribute, by any path.
pub(crate) fn is_rule(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|segment| segment.ident == "rate_limited")
}
