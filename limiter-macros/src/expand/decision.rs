//! The call of the limiter, with one request a rule.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::Expr;

use super::Expansion;
use super::spans::{borrowed, local, point_at};
use crate::plan::{Given, Limiter};

impl Expansion<'_> {
    /// Returns the call of the run time's function of this name, or of its blocking variant.
    pub(super) fn decision(&self, function: &str) -> TokenStream {
        let runtime = &self.runtime;
        let [limiter, wait, decision, held] = ["limiter", "wait", "decision", "held"].map(local);
        let (rules_let, rules) = self.rule_requests();
        let function_static = self.function_reference();
        let (limiter_let, limiter) = match &self.plan.limiter {
            Limiter::Current => (TokenStream::new(), quote!(#runtime::current())),
            Limiter::Value(value) => {
                let borrowed = borrowed(value);
                let value = self.with_borrowed_arguments(value, point_at(value, quote!(#runtime::limiter(#borrowed))));
                (quote!(let #limiter = #value;), quote!(#limiter))
            }
        };
        let (wait_let, wait) = match &self.plan.wait {
            Some(Given::Expression(value)) => {
                let value = self.typed(value, quote!(::core::time::Duration));
                (quote!(let #wait = #value;), quote!(#wait))
            }
            Some(wait) => (TokenStream::new(), self.duration(wait)),
            None => (TokenStream::new(), quote!(::core::time::Duration::ZERO)),
        };
        let (function, awaited) = match self.is_async {
            true => (format_ident!("{function}"), Some(quote!(.await))),
            false => (format_ident!("{function}_blocking"), None),
        };
        quote! {{
            #rules_let
            #limiter_let
            #wait_let
            let #decision = #runtime::#function(#function_static, #limiter, #rules, #wait, &mut #held) #awaited;
            #decision
        }}
    }

    /// Returns a `let` with the requests of all rules, and a reference to them. Requests that are known at compile time
    /// are a static instead, which the user's expressions cannot see.
    fn rule_requests(&self) -> (TokenStream, TokenStream) {
        let runtime = &self.runtime;
        let rules = &self.plan.rules;
        let requests = rules.iter().map(|rule| self.rule_request(rule));
        if rules.iter().all(|rule| rule.is_fixed() && rule.when.is_none()) {
            let count = rules.len();
            let rule = quote!(::core::option::Option<#runtime::RuleRequest>);
            return (TokenStream::new(), quote!({ static RULES: [#rule; #count] = [#(#requests),*]; &RULES }));
        }
        let name = local("rules");
        (quote!(let #name = [#(#requests),*];), quote!(&#name))
    }

    pub(super) fn duration(&self, duration: &Given<u64>) -> TokenStream {
        match duration {
            Given::Literal(millis) => quote!(::core::time::Duration::from_millis(#millis)),
            Given::Expression(value) => self.typed(value, quote!(::core::time::Duration)),
        }
    }

    /// Returns the value with this type. A type error then points at the expression alone.
    pub(super) fn typed(&self, value: &Expr, ty: TokenStream) -> TokenStream {
        let (binding, ty) = (local("value"), point_at(value, ty));
        let lets = self.plan.rebinding.borrowing_lets(&value.to_token_stream());
        quote!({ #lets let #binding: #ty = #value; #binding })
    }

    /// Returns `expanded`, in which the names in `value` are the function's arguments, borrowed.
    pub(super) fn with_borrowed_arguments(&self, value: &impl ToTokens, expanded: TokenStream) -> TokenStream {
        let lets = self.plan.rebinding.borrowing_lets(&value.to_token_stream());
        if lets.is_empty() { expanded } else { quote!({ #lets #expanded }) }
    }
}
