//! The function with its decision: one call into the run time and one branch, to the fallback or to the body as it was.
//!
//! ```text
//! if let Some(denied) = { …; denied(site, limiter, key, limit).await } { fallback } else { body }
//! ```
//!
//! A branch and not an early `return`, because a value in the place of a function's result may be `()` or diverge
//! without a lint's complaint, and the body keeps its own braces. Generated locals and paths carry the attribute's own
//! mark: they meet no name of the user's, and no lint takes them for the user's code. Values are bound before they are
//! passed on, so that what the user's expressions borrow is given back before anything is awaited.

mod key;
mod outcome;
mod spans;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::Expr;

use crate::item::Function;
use crate::plan::{Failure, Given, Limit, Limiter, Occasion, Plan, Policy};

use spans::{borrowed, local, over};

pub(crate) fn expand(plan: &Plan, mut function: Function) -> TokenStream {
    let mut body = TokenStream::new();
    function.braces.surround(&mut body, |inner| inner.extend(std::mem::take(&mut function.body)));
    let limited = Expansion::of(plan, &function).limited(&body);
    function.with_body(limited)
}

/// What every part of the expansion needs.
struct Expansion<'a> {
    plan: &'a Plan,
    /// The module that generated code calls into.
    runtime: TokenStream,
    is_async: bool,
}

impl<'a> Expansion<'a> {
    fn of(plan: &'a Plan, function: &Function) -> Self {
        let facade = &plan.facade;
        Self { plan, runtime: quote!(#facade::__private), is_async: function.is_async() }
    }

    fn limited(&self, body: &TokenStream) -> TokenStream {
        let on_denied = self.outcome(&self.plan.on_denied, Occasion::Denial);
        let denied = Occasion::Denial.binding(&self.plan.on_denied);
        let Failure::Handled(handler) = &self.plan.on_error else {
            let decision = self.decision("denied");
            return quote!(if let ::core::option::Option::Some(#denied) = #decision { #on_denied } else #body);
        };
        let on_error = self.outcome(handler, Occasion::Failure);
        let error = Occasion::Failure.binding(handler);
        let decision = self.decision("decide");
        let stopped = local("stopped");
        quote! {
            if let ::core::option::Option::Some(#stopped) = ::core::result::Result::transpose(#decision) {
                match #stopped {
                    ::core::result::Result::Ok(#denied) => #on_denied,
                    ::core::result::Result::Err(#error) => #on_error,
                }
            } else #body
        }
    }

    /// Asks, by the run time's function of this name or its blocking twin.
    fn decision(&self, function: &str) -> TokenStream {
        let runtime = &self.runtime;
        let [site, key, limit, limiter] = ["site", "key", "limit", "limiter"].map(local);
        let (site_value, key_value, limit_value, limiter_value) =
            (self.site(), self.key(), self.limit(), self.limiter());
        let (function, awaited) = match self.is_async {
            true => (format_ident!("{function}"), Some(quote!(.await))),
            false => (format_ident!("{function}_blocking"), None),
        };
        quote! {{
            let #site = #site_value;
            let #key = #key_value;
            let #limit = #limit_value;
            let #limiter = #limiter_value;
            #runtime::#function(#site, #limiter, #key, #limit) #awaited
        }}
    }

    /// The static is out of sight of the user's expressions.
    fn site(&self) -> TokenStream {
        let Self { plan: Plan { name, on_error, .. }, runtime, .. } = self;
        let policy = match on_error {
            Failure::Policy(Policy::Open) => quote!(.on_error(#runtime::OnError::Open)),
            Failure::Policy(Policy::Closed) => quote!(.on_error(#runtime::OnError::Closed)),
            Failure::Policy(Policy::Standby) => quote!(.on_error(#runtime::OnError::Standby)),
            Failure::Default | Failure::Handled(_) => TokenStream::new(),
        };
        quote!({ static SITE: #runtime::Site = #runtime::Site::new(#name) #policy; &SITE })
    }

    fn limit(&self) -> TokenStream {
        let runtime = &self.runtime;
        let (max, window) = match &self.plan.limit {
            Limit::Value(limit) => return over(limit, quote!(#runtime::limit_from(#limit))),
            Limit::Parts { max: Given::Literal(max), window_millis: Given::Literal(millis) } => {
                return quote!(::core::result::Result::Ok(#runtime::limit(#max, #millis)));
            }
            Limit::Parts { max, window_millis } => (max, window_millis),
        };
        let max = match max {
            Given::Literal(max) => quote!(#max),
            Given::Expression(max) => typed(max, quote!(::core::primitive::u32)),
        };
        let window = match window {
            Given::Literal(millis) => quote!(::core::time::Duration::from_millis(#millis)),
            Given::Expression(window) => typed(window, quote!(::core::time::Duration)),
        };
        quote!(#runtime::limit_of(#max, #window))
    }

    fn limiter(&self) -> TokenStream {
        let runtime = &self.runtime;
        match &self.plan.limiter {
            Limiter::Current => quote!(#runtime::current()),
            Limiter::Value(limiter) => {
                let borrowed = borrowed(limiter);
                over(limiter, quote!(#runtime::limiter(#borrowed)))
            }
        }
    }
}

/// A value of this type, or one error at the expression and nowhere else.
fn typed(value: &Expr, ty: TokenStream) -> TokenStream {
    let (binding, ty) = (local("value"), over(value, ty));
    quote!({ let #binding: #ty = #value; #binding })
}
