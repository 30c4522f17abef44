//! The question to the limiter, made of what every rule asks for.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::Expr;

use super::Expansion;
use super::spans::{borrowed, local, over};
use crate::plan::{Failure, Given, Limiter, Policy};

impl Expansion<'_> {
    /// Asks, by the run time's function of this name or its blocking twin.
    pub(super) fn decision(&self, function: &str) -> TokenStream {
        let runtime = &self.runtime;
        let [limiter, wait, decision] = ["limiter", "wait", "decision"].map(local);
        let (rules_let, rules) = self.rule_requests();
        let site = self.site();
        let (limiter_let, limiter) = match &self.plan.limiter {
            Limiter::Current => (TokenStream::new(), quote!(#runtime::current())),
            Limiter::Value(value) => {
                let borrowed = borrowed(value);
                let value = self.looking(value, over(value, quote!(#runtime::limiter(#borrowed))));
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
            let #decision = #runtime::#function(#site, #limiter, #rules, #wait) #awaited;
            #decision
        }}
    }

    /// What every rule asks for, and a reference to it. What is known when compiling is a static, out of sight of the
    /// user's expressions.
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

    /// The static is out of sight of the user's expressions.
    fn site(&self) -> TokenStream {
        let runtime = &self.runtime;
        let names = self.plan.rules.iter().map(|rule| &rule.name);
        let policy = match &self.plan.on_error {
            Failure::Policy(Policy::Open) => quote!(.on_error(#runtime::OnError::Open)),
            Failure::Policy(Policy::Closed) => quote!(.on_error(#runtime::OnError::Closed)),
            Failure::Policy(Policy::Standby) => quote!(.on_error(#runtime::OnError::Standby)),
            Failure::Default | Failure::Handled(_) => TokenStream::new(),
        };
        quote!({ static SITE: #runtime::Site = #runtime::Site::new(&[#(#names),*]) #policy; &SITE })
    }

    pub(super) fn duration(&self, duration: &Given<u64>) -> TokenStream {
        match duration {
            Given::Literal(millis) => quote!(::core::time::Duration::from_millis(#millis)),
            Given::Expression(value) => self.typed(value, quote!(::core::time::Duration)),
        }
    }

    /// A value of this type, or one error at the expression and nowhere else.
    pub(super) fn typed(&self, value: &Expr, ty: TokenStream) -> TokenStream {
        let (binding, ty) = (local("value"), over(value, ty));
        let looks = self.plan.rebinding.looks(&value.to_token_stream());
        quote!({ #looks let #binding: #ty = #value; #binding })
    }

    /// `expanded`, where the names in `value` mean the function's arguments.
    pub(super) fn looking(&self, value: &impl ToTokens, expanded: TokenStream) -> TokenStream {
        let looks = self.plan.rebinding.looks(&value.to_token_stream());
        if looks.is_empty() { expanded } else { quote!({ #looks #expanded }) }
    }
}
