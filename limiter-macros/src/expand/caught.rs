//! The body of a function with `recover` or `settle`: the only arguments that wrap it, because they need its result.
//!
//! A block or a closure of its own catches the body's `return` and `?`. An `async` block has no type annotation. So two
//! statements fix its type: a `return` that is never reached, and the variable at the end.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::Type;

use super::spans::{local, point_at};
use super::{Expansion, unreachable_return};
use crate::plan::Occasion;

impl Expansion<'_> {
    /// Returns the tokens between the braces of the body.
    pub(super) fn body(&self, body: &TokenStream) -> TokenStream {
        let lets = self.plan.rebinding.body_lets();
        let Some(returned) = &self.plan.caught else { return quote!(#lets #body) };
        let runtime = &self.runtime;
        let [value, result] = ["value", "result"].map(local);
        // With these spans rustc shows the body as the place into which an argument is moved.
        let given = if self.is_async {
            let hint = unreachable_return(returned);
            let block = quote! {
                async move {
                    #hint
                    #lets
                    let #value: #returned = { #body };
                    #value
                }
                .await
            };
            point_at(body, block)
        } else {
            let closure = point_at(body, quote!(||));
            quote!(#runtime::run(#closure -> #returned { #lets #body }))
        };
        let (settlement, recovered) = (self.settlement(&result), self.recovered(returned, &result));
        quote! {
            let #result = #given;
            #settlement
            #recovered
        }
    }

    /// Returns the value of the function: that of the body, or what `recover` makes of its error.
    fn recovered(&self, returned: &Type, result: &Ident) -> TokenStream {
        let Some(outcome) = &self.plan.recover else { return quote!(#result) };
        let runtime = &self.runtime;
        let (value, error) = (local("value"), Occasion::BodyError.binding(outcome));
        let recovered = self.outcome(outcome, Occasion::BodyError);
        // The call lets rustc point at the whole type, from its first token to its last.
        let culprit = point_at(returned, quote!(::core::convert::identity(#result)));
        let settled = point_at(returned, quote!(#runtime::Fallible::settle(#culprit)));
        quote! {
            match #settled {
                ::core::result::Result::Ok(#value) => #value,
                ::core::result::Result::Err(#error) => { #recovered }
            }
        }
    }
}
