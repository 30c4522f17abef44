//! The function with its decision: one call into the run time, and one branch to the fallback or to the unchanged body.
//!
//! ```text
//! let mut held = HeldSlots::new();
//! if let Some((_, denied)) = { …; denied(site, limiter, &rules, wait, &mut held).await } { fallback } else { body }
//! ```
//!
//! The expansion is a branch, not an early `return`. As the value of a branch the fallback may be `()` or diverge
//! without a lint, and the body keeps its own braces. Generated locals and paths have the attribute's hygiene: they
//! clash with no name of the user, and no lint takes them for the user's code. Values are bound before they are passed,
//! so that the borrows of the user's expressions end before the first await. The slots of the call are freed where its
//! body ends: returned, dropped or by a panic.

mod branch;
mod caught;
mod decision;
mod key;
mod outcome;
mod rule;
mod settle;
mod site;
mod source_text;
mod spans;

use std::mem;

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::Type;

use crate::item::Function;
use crate::output;
use crate::plan::Plan;

use spans::local;

pub(crate) fn expand(plan: &Plan, mut function: Function) -> TokenStream {
    plan.rebinding.apply(&mut function.signature);
    let expansion = Expansion::new(plan, &function);
    let mut body = expansion.body(&mem::take(&mut function.body));
    // In a function that makes a future, the limited block needs braces of its own: the function's are around the
    // future.
    if function.makes_its_future() {
        body = quote!({ #body });
    } else {
        let mut braced = TokenStream::new();
        function.braces.surround(&mut braced, |inner| inner.extend(body));
        body = braced;
    }
    let hint = output_hint(&function);
    let limited = expansion.limited(&body);
    function.with_body(quote!(#hint #limited))
}

/// The values that every part of the expansion uses.
struct Expansion<'a> {
    plan: &'a Plan,
    /// The module that generated code calls into.
    runtime: TokenStream,
    is_async: bool,
    /// The name of the function.
    function: Ident,
}

impl<'a> Expansion<'a> {
    fn new(plan: &'a Plan, function: &Function) -> Self {
        let facade = &plan.facade;
        Self {
            plan,
            runtime: quote!(#facade::__private),
            is_async: function.is_async(),
            function: function.signature.ident.clone(),
        }
    }
}

/// Returns a statement that fixes the output type of an `async` block before rustc reaches the fallback in it.
fn output_hint(function: &Function) -> Option<TokenStream> {
    let output = output::body_type(function).filter(|_| function.makes_its_future())?;
    (!output::contains_impl_trait(function)).then(|| unreachable_return(output))
}

/// Returns a `return` of this type that is never reached.
fn unreachable_return(output: &Type) -> TokenStream {
    let value = local("value");
    quote! {
        if let ::core::option::Option::Some(#value) = ::core::option::Option::None::<#output> {
            return #value;
        }
    }
}
