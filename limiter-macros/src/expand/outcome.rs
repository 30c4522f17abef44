//! The value that the function returns instead of its body's value.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::token::Colon;
use syn::{ExprClosure, Pat, PatType};

use super::Expansion;
use super::spans::{local, passed, point_at};
use crate::params::ForwardedArgument;
use crate::plan::{Occasion, Outcome, Passed};

impl Occasion {
    /// Returns the variable that holds the denial or the error. The user's code can see it only if the outcome is the
    /// user's expression.
    pub(super) fn binding(self, outcome: &Outcome) -> Ident {
        match outcome {
            Outcome::Value(_) => Ident::new(self.name(), Span::call_site()),
            _ => local(self.name()),
        }
    }

    fn conversion(self, runtime: &TokenStream) -> TokenStream {
        match self {
            Self::Denial => quote!(#runtime::FromDenied::from_denied),
            Self::Failure | Self::BodyError => quote!(#runtime::FromFailure::from_failure),
        }
    }
}

impl Expansion<'_> {
    pub(super) fn outcome(&self, outcome: &Outcome, occasion: Occasion) -> TokenStream {
        let runtime = &self.runtime;
        let binding = occasion.binding(outcome);
        match outcome {
            Outcome::Converted { place } => {
                let conversion = occasion.conversion(runtime);
                point_at(place, quote!(#conversion(#binding)))
            }
            Outcome::Value(value) => self.with_moved_arguments(value, quote!(#value)),
            Outcome::Function { path, passed: arguments } => {
                let arguments = match arguments {
                    Passed::Arguments(arguments) => {
                        arguments.iter().map(|argument| forwarded(argument, path)).collect()
                    }
                    Passed::Occasion => vec![point_at(path, binding.to_token_stream())],
                };
                let call = point_at(path, quote!((#(#arguments),*)));
                self.awaited(path, quote!(#path #call))
            }
            Outcome::Closure(closure) => {
                let typed = match occasion {
                    Occasion::Denial => with_argument_type(closure, &quote!(#runtime::Denied)),
                    Occasion::Failure => with_argument_type(closure, &quote!(#runtime::Error)),
                    Occasion::BodyError => closure.clone(),
                };
                let called = point_at(closure, quote!(#runtime::call(#typed, #binding)));
                self.with_moved_arguments(closure, self.awaited(closure, called))
            }
        }
    }

    /// Returns `expanded`, in which the names in `value` are the function's arguments, moved.
    pub(super) fn with_moved_arguments(&self, value: &impl ToTokens, expanded: TokenStream) -> TokenStream {
        let mut taken = self.plan.rebinding.moving_lets(&value.to_token_stream());
        taken.extend(expanded);
        taken
    }

    /// Returns the call, awaited in an async function: there it may return a value or a future of one.
    fn awaited(&self, place: &impl ToTokens, called: TokenStream) -> TokenStream {
        let runtime = &self.runtime;
        if self.is_async { point_at(place, quote!(#runtime::resolve(#called).await)) } else { called }
    }
}

fn forwarded(argument: &ForwardedArgument, path: &impl ToTokens) -> TokenStream {
    match argument {
        ForwardedArgument::Named(conditions, name) => {
            let name = passed(name, path);
            quote!(#(#conditions)* #name)
        }
        ForwardedArgument::Rebuilt(conditions, value) => {
            let value = point_at(path, value.clone());
            quote!(#(#conditions)* #value)
        }
    }
}

/// Returns the closure with the type of its argument, if the user omitted it. Clippy then does not suggest a path,
/// which the attribute would treat in another way.
fn with_argument_type(closure: &ExprClosure, argument: &TokenStream) -> ExprClosure {
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
