//! The branch on the decision.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::Expansion;
use super::spans::local;
use crate::plan::{FailurePolicy, Occasion, Outcome};

impl Expansion<'_> {
    /// Returns the branch behind the variable that holds the call's slots until the body has ended.
    pub(super) fn limited(&self, body: &TokenStream) -> TokenStream {
        let (runtime, held, branch) = (&self.runtime, local("held"), self.branch(body));
        quote! {
            let mut #held = #runtime::HeldSlots::new();
            #branch
        }
    }

    fn branch(&self, body: &TokenStream) -> TokenStream {
        let (denied, on_denied) = self.denial();
        if self.plan.settles() {
            return self.with_settlement(&denied, &on_denied, body);
        }
        if let Some(permit) = &self.plan.permit {
            return self.with_permit(permit, &denied, &on_denied, body);
        }
        let FailurePolicy::Handled(handler) = &self.plan.on_error else {
            let decision = self.decision("denied");
            return quote!(if let ::core::option::Option::Some(#denied) = #decision { #on_denied } else #body);
        };
        let on_error = self.outcome(handler, Occasion::Failure);
        let error = Occasion::Failure.binding(handler);
        let decision = self.decision("decide");
        let stopped = local("stopped");
        quote! {
            if let ::core::option::Option::Some(#stopped) = #decision {
                match #stopped {
                    ::core::result::Result::Ok(#denied) => { #on_denied }
                    ::core::result::Result::Err(#error) => { #on_error }
                }
            } else #body
        }
    }

    /// Returns the branch of a body that gets the permit.
    pub(super) fn with_permit(
        &self,
        permit: &Ident,
        denied: &TokenStream,
        on_denied: &TokenStream,
        body: &TokenStream,
    ) -> TokenStream {
        let result = quote!(::core::result::Result);
        let FailurePolicy::Handled(handler) = &self.plan.on_error else {
            let decision = self.decision("allowed");
            return quote! {
                match #decision {
                    #result::Err(#denied) => { #on_denied }
                    #result::Ok(#permit) => #body
                }
            };
        };
        let on_error = self.outcome(handler, Occasion::Failure);
        let error = Occasion::Failure.binding(handler);
        let decision = self.decision("try_allowed");
        quote! {
            match #decision {
                #result::Err(#result::Ok(#denied)) => { #on_denied }
                #result::Err(#result::Err(#error)) => { #on_error }
                #result::Ok(#permit) => #body
            }
        }
    }

    /// Returns the pattern of a denial, and the outcome of the rule that denied.
    fn denial(&self) -> (TokenStream, TokenStream) {
        let outcomes: Vec<&Outcome> = self.plan.rules.iter().map(|rule| &rule.on_denied).collect();
        let (first, others) = match outcomes.split_first() {
            Some((first, others)) => (*first, others),
            None => return (quote!(_), TokenStream::new()),
        };
        let converts = |outcome: &&Outcome| matches!(outcome, Outcome::Converted { .. });
        if outcomes.len() == 1 || outcomes.iter().all(converts) {
            let denied = Occasion::Denial.binding(first);
            return (quote!((_, #denied)), self.outcome(first, Occasion::Denial));
        }
        let (which, denied) = (local("which"), local("denied"));
        let last = others.len();
        let arms = outcomes.iter().enumerate().map(|(place, outcome)| {
            let pattern = if place == last { quote!(_) } else { quote!(#place) };
            let arm = self.arm(outcome, &denied);
            quote!(#pattern => { #arm })
        });
        (quote!((#which, #denied)), quote!(match #which { #(#arms)* }))
    }

    fn arm(&self, outcome: &Outcome, denied: &Ident) -> TokenStream {
        let value = self.outcome(outcome, Occasion::Denial);
        match outcome {
            Outcome::Value(_) => {
                let binding = Occasion::Denial.binding(outcome);
                quote!(let #binding = #denied; #value)
            }
            _ => value,
        }
    }
}
