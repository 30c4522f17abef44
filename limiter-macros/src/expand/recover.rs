//! `recover`: the only argument that wraps the body, because it needs the body's result.
//!
//! A block or a closure of its own catches the body's `return` and `?`. An `async` block has no type annotation. So two
//! statements fix its type: a `return` that is never reached, and the variable at the end.

use proc_macro2::TokenStream;
use quote::quote;

use super::spans::{local, point_at};
use super::{Expansion, unreachable_return};
use crate::plan::{Occasion, Recovery};

impl Expansion<'_> {
    /// Returns the tokens between the braces of the body.
    pub(super) fn body(&self, body: &TokenStream) -> TokenStream {
        let lets = self.plan.rebinding.body_lets();
        let Some(Recovery { returned, outcome }) = &self.plan.recover else { return quote!(#lets #body) };
        let runtime = &self.runtime;
        let [value, result] = ["value", "result"].map(local);
        let error = Occasion::BodyError.binding(outcome);
        let recovered = self.outcome(outcome, Occasion::BodyError);
        // The call lets rustc point at the whole type, from its first token to its last.
        let culprit = point_at(returned, quote!(::core::convert::identity(#result)));
        let settled = point_at(returned, quote!(#runtime::Fallible::settle(#culprit)));
        let given = if self.is_async {
            let hint = unreachable_return(returned);
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
