//! What the function returns in place of its body's value.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::token::Colon;
use syn::{ExprClosure, Pat, PatType};

use super::Expansion;
use super::spans::{local, over, passed};
use crate::plan::{Occasion, Outcome, Passed};

impl Occasion {
    /// What holds the denial or the error; only the user's expressions may see it.
    pub(super) fn binding(self, outcome: &Outcome) -> Ident {
        match outcome {
            Outcome::Value(_) => Ident::new(self.name(), Span::call_site()),
            _ => local(self.name()),
        }
    }

    fn type_in(self, runtime: &TokenStream) -> TokenStream {
        match self {
            Self::Denial => quote!(#runtime::Denied),
            Self::Failure => quote!(#runtime::Error),
        }
    }

    fn conversion_in(self, runtime: &TokenStream) -> TokenStream {
        match self {
            Self::Denial => quote!(#runtime::FromDenied::from_denied),
            Self::Failure => quote!(#runtime::FromFailure::from_failure),
        }
    }
}

impl Expansion<'_> {
    pub(super) fn outcome(&self, outcome: &Outcome, occasion: Occasion) -> TokenStream {
        let runtime = &self.runtime;
        let binding = occasion.binding(outcome);
        match outcome {
            Outcome::Converted { place } => {
                let conversion = occasion.conversion_in(runtime);
                over(place, quote!(#conversion(#binding)))
            }
            Outcome::Value(value) => quote!(#value),
            Outcome::Function { path, passed: arguments } => {
                let arguments = match arguments {
                    Passed::Arguments(names) => names.iter().map(|name| passed(name, path)).collect(),
                    Passed::Occasion => vec![over(path, binding.to_token_stream())],
                };
                let call = over(path, quote!((#(#arguments),*)));
                self.awaited(path, quote!(#path #call))
            }
            Outcome::Closure(closure) => {
                let typed = typed(closure, &occasion.type_in(runtime));
                self.awaited(closure, over(closure, quote!(#runtime::call(#typed, #binding))))
            }
        }
    }

    /// In an async function what is called may give a value or a future of it.
    fn awaited(&self, place: &impl ToTokens, called: TokenStream) -> TokenStream {
        let runtime = &self.runtime;
        if self.is_async { over(place, quote!(#runtime::resolve(#called).await)) } else { called }
    }
}

/// The closure with its argument's type, where the user left it out: clippy then does not ask for a path instead,
/// which would mean something else to the attribute.
fn typed(closure: &ExprClosure, argument: &TokenStream) -> ExprClosure {
    let mut closure = closure.clone();
    for pattern in &mut closure.inputs {
        if !matches!(pattern, Pat::Type(_)) {
            let ty = Box::new(syn::Type::Verbatim(argument.clone()));
            let pat = Box::new(pattern.clone());
            *pattern = Pat::Type(PatType { attrs: Vec::new(), pat, colon_token: Colon::default(), ty });
        }
    }
    closure
}
