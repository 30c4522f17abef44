//! The static of the annotated function: its rules as written, and their place in the source.

use limiter_syntax::BlockText;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Expr, Lit};

use super::Expansion;
use super::source_text::source_text;
use super::spans::point_at;
use crate::plan::{Algorithm, FailurePolicy, Given, LimitSource, Limits, Policy, Rule};
use crate::value::literal;

impl Expansion<'_> {
    /// Returns a reference to the static, which the user's expressions cannot see. Its rules are registered for the list
    /// of all sites.
    pub(super) fn function_static(&self) -> TokenStream {
        let runtime = &self.runtime;
        let rules = &self.plan.rules;
        let (names, count) = (rules.iter().map(|rule| &rule.name), rules.len());
        let sites = rules.iter().map(|rule| self.rule_site(rule));
        let policy = match &self.plan.on_error {
            FailurePolicy::Policy(Policy::Open) => quote!(.on_error(#runtime::OnError::Open)),
            FailurePolicy::Policy(Policy::Closed) => quote!(.on_error(#runtime::OnError::Closed)),
            FailurePolicy::Policy(Policy::Standby) => quote!(.on_error(#runtime::OnError::Standby)),
            FailurePolicy::Default | FailurePolicy::Handled(_) => TokenStream::new(),
        };
        let (leases, settled, blocks) = (self.leases_of_rules(), self.settled_rules(), self.blocks_of_rules());
        let (require_leases, require_calendar) = (self.require_leases(), self.require_calendar());
        let function = quote!(#runtime::AnnotatedFunction);
        quote! {{
            static SITES: [#runtime::RuleSite; #count] = [#(#sites),*];
            static FUNCTION: #function = #function::new(&[#(#names),*], &SITES) #policy #leases #settled #blocks;
            #runtime::register_sites! { &SITES }
            #require_leases
            #require_calendar
            &FUNCTION
        }}
    }

    /// Returns the call that sets the `leases` of all rules, if one of them has it.
    fn leases_of_rules(&self) -> Option<TokenStream> {
        let rules = &self.plan.rules;
        let leases = rules.iter().map(|rule| match &rule.leases {
            Some(leases) => quote!(::core::option::Option::Some(#leases)),
            None => quote!(::core::option::Option::None),
        });
        rules.iter().any(|rule| rule.leases.is_some()).then(|| quote!(.leases(&[#(#leases),*])))
    }

    /// Returns the call that sets the blocks of all rules, if one of them has any.
    fn blocks_of_rules(&self) -> Option<TokenStream> {
        let (runtime, rules) = (&self.runtime, &self.plan.rules);
        let blocks = rules.iter().map(|rule| match rule.block {
            Some(BlockText { time_millis, factor_thousandths, most_millis, is_extended }) => quote! {
                ::core::option::Option::Some(
                    #runtime::block(#time_millis, #factor_thousandths, #most_millis, #is_extended)
                )
            },
            None => quote!(::core::option::Option::None),
        });
        rules.iter().any(|rule| rule.block.is_some()).then(|| quote!(.blocks(&[#(#blocks),*])))
    }

    /// Returns the call that says which rules may be charged after a call, if one may not.
    fn settled_rules(&self) -> Option<TokenStream> {
        let settled: Vec<_> = self.plan.rules.iter().map(|rule| rule.settle.is_some()).collect();
        let some_are_not = self.plan.settles() && self.plan.permit.is_none() && settled.contains(&false);
        some_are_not.then(|| quote!(.settled(&[#(#settled),*])))
    }

    /// Returns the check that leases are in the build, if a rule needs them. Its error points at the value.
    fn require_leases(&self) -> Option<TokenStream> {
        let runtime = &self.runtime;
        let needed = self.plan.rules.iter().filter_map(|rule| rule.leases.as_ref()).find(|leases| leases.value)?;
        Some(point_at(needed, quote!(#runtime::require_leases! {})))
    }

    /// Returns the check that calendars are in the build, if a limit needs them. Its error points at the limit.
    fn require_calendar(&self) -> Option<TokenStream> {
        let runtime = &self.runtime;
        let calendar = self.plan.rules.iter().find_map(Rule::calendar)?;
        Some(point_at(&calendar.place, quote!(#runtime::require_calendar! {})))
    }

    fn rule_site(&self, rule: &Rule) -> TokenStream {
        let runtime = &self.runtime;
        let (name, function) = (&rule.name, self.function.to_string());
        let key = match &rule.key_text {
            Some(text) => quote!(::core::option::Option::Some(#text)),
            None => quote!(::core::option::Option::None),
        };
        let limits = match &rule.limits {
            Limits::Configured => quote!("configured"),
            Limits::Written { sources, .. } => {
                let texts = sources.iter().map(limit_text);
                quote!(#(#texts),*)
            }
        };
        let counted_by = match &rule.limits {
            Limits::Written { counted_by, .. } => counted_by.as_ref(),
            Limits::Configured => None,
        };
        let has_burst = counted_by.is_some_and(|by| by.burst.is_some());
        let algorithm = counted_by.map_or(Algorithm::SlidingWindow, |by| by.algorithm).name();
        let burst = match counted_by.and_then(|by| by.burst.as_ref()) {
            Some(Given::Literal(burst)) => quote!(::core::option::Option::Some(#burst)),
            Some(_) => quote!(::core::option::Option::Some(0)),
            None => quote!(::core::option::Option::None),
        };
        let cost = match &rule.cost {
            Given::Literal(cost) if !has_burst => quote!(::core::option::Option::Some(#cost)),
            _ => quote!(::core::option::Option::None),
        };
        let block = match rule.block {
            Some(block) => {
                let text = block.to_string();
                quote!(::core::option::Option::Some(#text))
            }
            None => quote!(::core::option::Option::None),
        };
        quote! {
            #runtime::RuleSite {
                name: #name,
                key: #key,
                limits: &[#limits],
                algorithm: #algorithm,
                burst: #burst,
                cost: #cost,
                block: #block,
                function: ::core::concat!(::core::module_path!(), "::", #function),
                file: ::core::file!(),
                line: ::core::line!(),
            }
        }
    }
}

/// Returns the text of a limit, such as `5/10s`.
fn limit_text(source: &LimitSource) -> String {
    match source {
        LimitSource::Whole(limit) => text(limit),
        LimitSource::Concurrent(max) => format!("{} concurrent", text(max)),
        LimitSource::Calendar(text) => text.clone(),
        LimitSource::Parts { max, window } => format!("{}/{}", text(max), text(window)),
    }
}

/// Returns the content of a string, the digits of a number, or the source text of another expression.
fn text(value: &Expr) -> String {
    match literal(value) {
        Some(Lit::Str(text)) => text.value(),
        Some(Lit::Int(number)) => number.base10_digits().to_owned(),
        _ => source_text(value.to_token_stream()),
    }
}
