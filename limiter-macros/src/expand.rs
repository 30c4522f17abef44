//! The function with its decision: one call into the run time and one branch, to the fallback or to the body as it was.
//!
//! ```text
//! if let Some((_, denied)) = { …; denied(site, limiter, &rules, wait).await } { fallback } else { body }
//! ```
//!
//! A branch and not an early `return`, because a value in the place of a function's result may be `()` or diverge
//! without a lint's complaint, and the body keeps its own braces. Generated locals and paths carry the attribute's own
//! mark: they meet no name of the user's, and no lint takes them for the user's code. Values are bound before they are
//! passed on, so that what the user's expressions borrow is given back before anything is awaited.

mod branch;
mod decision;
mod key;
mod outcome;
mod recover;
mod rule;
mod spans;

use std::mem;

use proc_macro2::TokenStream;
use quote::quote;
use syn::Type;

use crate::item::Function;
use crate::output;
use crate::plan::Plan;

use spans::local;

pub(crate) fn expand(plan: &Plan, mut function: Function) -> TokenStream {
    plan.rebinding.apply(&mut function.signature);
    let expansion = Expansion::of(plan, &function);
    let mut body = expansion.body(&mem::take(&mut function.body));
    // Those of a block that runs in a future are the block's, not the function's.
    if function.makes_its_future() {
        body = quote!({ #body });
    } else {
        let mut braced = TokenStream::new();
        function.braces.surround(&mut braced, |inner| inner.extend(body));
        body = braced;
    }
    let hint = hint(&function);
    let limited = expansion.limited(&body);
    function.with_body(quote!(#hint #limited))
}

/// What every part of the expansion needs.
struct Expansion<'a> {
    plan: &'a Plan,
    /// The module that generated code calls into.
    runtime: TokenStream,
    is_async: bool,
}

impl<'a> Expansion<'a> {
    fn of(plan: &'a Plan, function: &Function) -> Self {
        let facade = &plan.facade;
        Self { plan, runtime: quote!(#facade::__private), is_async: function.is_async() }
    }
}

/// Tells rustc what a block gives that is a future, before it meets the fallback in it.
fn hint(function: &Function) -> Option<TokenStream> {
    let output = output::value(function).filter(|_| function.makes_its_future())?;
    (!output::contains_impl_trait(function)).then(|| returning(output))
}

/// A `return` of this type that is never reached.
fn returning(output: &Type) -> TokenStream {
    let value = local("value");
    quote! {
        if let ::core::option::Option::Some(#value) = ::core::option::Option::None::<#output> {
            return #value;
        }
    }
}
