//! `settle`: what each rule counts, from a reference to what the body returned.
//!
//! ```text
//! let mut __held = HeldSlots::new();
//! let __function = &FUNCTION;
//! match … { Ok(__permit) => { let __result = …; settle(__function, &__permit, &[Some(…), None]); __result } … }
//! ```
//!
//! The permit is dropped with the body's future, and then nothing is settled.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};

use super::Expansion;
use super::spans::{local, point_at};
use crate::plan::Settle;

impl Expansion<'_> {
    /// Returns the reference to the function's static, as an argument of the decision. A function that settles has a
    /// variable of it.
    pub(super) fn function_reference(&self) -> TokenStream {
        if self.plan.settles() {
            let function = local("function");
            return quote!(#function);
        }
        self.function_static()
    }

    /// Returns the branch of a body that is settled.
    pub(super) fn with_settlement(
        &self,
        denied: &TokenStream,
        on_denied: &TokenStream,
        body: &TokenStream,
    ) -> TokenStream {
        let [function, permit] = ["function", "permit"].map(local);
        let function_static = self.function_static();
        // The body gets a permit of its own, which it may move away.
        let body = match &self.plan.permit {
            Some(name) => quote!({ let #name = ::core::clone::Clone::clone(&#permit); #body }),
            None => body.clone(),
        };
        let branch = self.with_permit(&permit, denied, on_denied, &body);
        quote! {
            let #function = #function_static;
            #branch
        }
    }

    /// Returns the statement that hands the settlement of each rule over, if there is one.
    pub(super) fn settlement(&self, result: &Ident) -> Option<TokenStream> {
        let (runtime, rules) = (&self.runtime, &self.plan.rules);
        let [function, permit] = ["function", "permit"].map(local);
        let actual = rules.iter().map(|rule| match &rule.settle {
            Some(settle) => {
                let actual = self.actual(settle, result);
                quote!(::core::option::Option::Some(#actual))
            }
            None => quote!(::core::option::Option::None),
        });
        self.plan.settles().then(|| quote!(#runtime::settle(#function, &#permit, &[#(#actual),*]);))
    }

    /// Returns the call of the user's function, which gives a `u32`.
    fn actual(&self, settle: &Settle, result: &Ident) -> TokenStream {
        let runtime = &self.runtime;
        match settle {
            Settle::Function(path) => {
                // The pointer's type refuses a function of another result. A `let` of the result would do so with the advice
                // to convert it, which rustc writes after the path.
                let actual = point_at(path, local("actual").to_token_stream());
                let argument = point_at(path, quote!(&#result));
                let call = point_at(path, quote!((#argument)));
                let ty = point_at(path, quote!(fn(_) -> ::core::primitive::u32));
                quote!({ let #actual: #ty = #path; #actual #call })
            }
            Settle::Closure(closure) => {
                let call = point_at(closure, quote!(#runtime::actual_cost(&#result, #closure)));
                let call = self.with_moved_arguments(closure, call);
                quote!({ #call })
            }
        }
    }
}
