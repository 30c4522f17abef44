//! `recover`: the only thing that puts something around the body, because it needs what the body gives.
//!
//! A block or a closure of its own catches the body's `return` and `?`. Nothing tells rustc what a block gives, so in an
//! async function two statements do that do nothing else: a `return` that is never reached, and the variable at the end.

use proc_macro2::TokenStream;
use quote::quote;

use super::spans::{local, over};
use super::{Expansion, returning};
use crate::plan::{Occasion, Recovery};

impl Expansion<'_> {
    /// What stands in the braces of the body.
    pub(super) fn body(&self, body: &TokenStream) -> TokenStream {
        let lets = self.plan.rebinding.body();
        let Some(Recovery { returned, outcome }) = &self.plan.recover else { return quote!(#lets #body) };
        let runtime = &self.runtime;
        let [value, result] = ["value", "result"].map(local);
        let error = Occasion::Mistake.binding(outcome);
        let recovered = self.outcome(outcome, Occasion::Mistake);
        // A call, so that rustc can point at all of the type, from its first token to its last.
        let culprit = over(returned, quote!(::core::convert::identity(#result)));
        let settled = over(returned, quote!(#runtime::Fallible::settle(#culprit)));
        let given = if self.is_async {
            let hint = returning(returned);
            quote! {
                async move {
                    #hint
                    #lets
                    let #value: #returned = { #body };
                    #value
                }
                .await
            }
        } else {
            quote!(#runtime::run(|| -> #returned { #lets #body }))
        };
        quote! {
            let #result = #given;
            match #settled {
                ::core::result::Result::Ok(#value) => #value,
                ::core::result::Result::Err(#error) => { #recovered }
            }
        }
    }
}
