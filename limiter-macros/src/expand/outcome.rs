//! What the function returns in place of its body's value.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::token::Colon;
use syn::{ExprClosure, Pat, PatType};

use super::Expansion;
use super::spans::{local, over, passed};
use crate::params::HandedOn;
use crate::plan::{Occasion, Outcome, Passed};

impl Occasion {
    /// What holds the denial or the error; only the user's expressions may see it.
    pub(super) fn binding(self, outcome: &Outcome) -> Ident {
        match outcome {
            Outcome::Value(_) => Ident::new(self.name(), Span::call_site()),
            _ => local(self.name()),
        }
    }

    fn conversion_in(self, runtime: &TokenStream) -> TokenStream {
        match self {
            Self::Denial => quote!(#runtime::FromDenied::from_denied),
            Self::Failure | Self::Mistake => quote!(#runtime::FromFailure::from_failure),
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
            Outcome::Value(value) => self.taking(value, quote!(#value)),
            Outcome::Function { path, passed: arguments } => {
                let arguments = match arguments {
                    Passed::Arguments(arguments) => {
                        arguments.iter().map(|argument| handed_on(argument, path)).collect()
                    }
                    Passed::Occasion => vec![over(path, binding.to_token_stream())],
                };
                let call = over(path, quote!((#(#arguments),*)));
                self.awaited(path, quote!(#path #call))
            }
            Outcome::Closure(closure) => {
                let typed = match occasion {
                    Occasion::Denial => typed(closure, &quote!(#runtime::Denied)),
                    Occasion::Failure => typed(closure, &quote!(#runtime::Error)),
                    Occasion::Mistake => closure.clone(),
                };
                let called = over(closure, quote!(#runtime::call(#typed, #binding)));
                self.taking(closure, self.awaited(closure, called))
            }
        }
    }

    /// `expanded`, where the names in `value` mean the function's arguments.
    fn taking(&self, value: &impl ToTokens, expanded: TokenStream) -> TokenStream {
        let mut taken = self.plan.rebinding.takes(&value.to_token_stream());
        taken.extend(expanded);
        taken
    }

    /// In an async function what is called may give a value or a future of it.
    fn awaited(&self, place: &impl ToTokens, called: TokenStream) -> TokenStream {
        let runtime = &self.runtime;
        if self.is_async { over(place, quote!(#runtime::resolve(#called).await)) } else { called }
    }
}

fn handed_on(argument: &HandedOn, path: &impl ToTokens) -> TokenStream {
    match argument {
        HandedOn::Named(conditions, name) => {
            let name = passed(name, path);
            quote!(#(#conditions)* #name)
        }
        HandedOn::Rebuilt(conditions, value) => {
            let value = over(path, value.clone());
            quote!(#(#conditions)* #value)
        }
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
