//! The request of one rule: a key, its limits and a cost, if the rule applies.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

use super::Expansion;
use super::spans::{borrowed, local, point_at};
use crate::plan::{Calendar, CountedBy, Given, Limit, Limits, Rule, Zone};

impl Expansion<'_> {
    pub(super) fn rule_request(&self, rule: &Rule) -> TokenStream {
        let runtime = &self.runtime;
        let [key, limit, cost] = ["key", "limit", "cost"].map(local);
        let key_value = self.key(rule);
        let request = match (rule.plain_limit(), &rule.limits) {
            (Some((max, millis)), _) => match self.plan.rules.len() {
                _ if rule.is_fixed() => quote!(#runtime::RuleRequest::one_permit_static(#key_value, #max, #millis)),
                1 => quote!(#runtime::RuleRequest::one_permit(#key_value, #max, #millis)),
                _ => quote!({ let #key = #key_value; #runtime::RuleRequest::one_permit(#key, #max, #millis) }),
            },
            (None, Limits::Configured) if rule.is_fixed() => {
                quote!(#runtime::RuleRequest::configured_static(#key_value))
            }
            (None, Limits::Configured) => {
                let (cost_let, cost) = bind(&cost, self.permits(&rule.cost), rule.cost.is_literal());
                quote! {{
                    let #key = #key_value;
                    #cost_let
                    #runtime::RuleRequest::configured(#key, #cost)
                }}
            }
            (None, Limits::Written { limits, counted_by, .. }) => {
                let burst = counted_by.as_ref().and_then(|counted_by| counted_by.burst.as_ref());
                let is_literal = limits.iter().all(Limit::is_literal) && burst.is_none_or(Given::is_literal);
                let constructor = if limits.len() == 1 { quote!(with_limit) } else { quote!(with_limits) };
                let (limit_let, limit) = bind(&limit, self.limits(limits, counted_by.as_deref()), is_literal);
                let (cost_let, cost) = bind(&cost, self.permits(&rule.cost), rule.cost.is_literal());
                quote! {{
                    let #key = #key_value;
                    #limit_let
                    #cost_let
                    ::core::option::Option::Some(#runtime::RuleRequest::#constructor(#key, #limit, #cost))
                }}
            }
        };
        let request = self.with_plan(rule, request);
        let request = match rule.block {
            Some(_) => quote!(::core::option::Option::map(#request, #runtime::RuleRequest::planned)),
            None => request,
        };
        let request = if self.plan.may_be_postpaid(rule) {
            quote!(::core::option::Option::map(#request, #runtime::RuleRequest::settled))
        } else {
            request
        };
        match &rule.when {
            None => request,
            Some(when) => {
                let when = self.typed(when, quote!(::core::primitive::bool));
                quote!(if #when { #request } else { ::core::option::Option::None })
            }
        }
    }

    /// Returns the request with the plan of the call's customer. The `let` ends the borrows of the user's expression.
    fn with_plan(&self, rule: &Rule, request: TokenStream) -> TokenStream {
        let Some(value) = &rule.plan else { return request };
        let (runtime, borrowed) = (&self.runtime, borrowed(value));
        let [of_rule, plan] = ["request", "plan"].map(local);
        let plan_value = self.with_borrowed_arguments(value, point_at(value, quote!(#runtime::plan(#borrowed))));
        quote! {{
            let #of_rule = #request;
            let #plan = #plan_value;
            #runtime::RuleRequest::of_plan(#of_rule, #plan)
        }}
    }

    /// Returns one limit, or an array of several.
    fn limits(&self, limits: &[Limit], counted_by: Option<&CountedBy>) -> TokenStream {
        let values = limits.iter().map(|limit| {
            let counted_by = counted_by.filter(|_| !limit.is_whole());
            self.counted_by(counted_by, self.limit(limit))
        });
        if limits.len() == 1 { quote!(#(#values)*) } else { quote!([#(#values),*]) }
    }

    fn counted_by(&self, counted_by: Option<&CountedBy>, limit: TokenStream) -> TokenStream {
        let runtime = &self.runtime;
        let Some(counted_by) = counted_by else { return limit };
        let algorithm = Ident::new(&format!("{:?}", counted_by.algorithm), Span::mixed_site());
        let burst = match &counted_by.burst {
            None => quote!(::core::option::Option::None),
            Some(burst) => {
                let burst = self.permits(burst);
                quote!(::core::option::Option::Some(#burst))
            }
        };
        quote!(#runtime::counted_by(#limit, #runtime::Algorithm::#algorithm, #burst))
    }

    fn limit(&self, limit: &Limit) -> TokenStream {
        let runtime = &self.runtime;
        match limit {
            Limit::Value(limit) => {
                let borrowed = borrowed(limit);
                self.with_borrowed_arguments(limit, point_at(limit, quote!(#runtime::limit_from(#borrowed))))
            }
            Limit::Parts { max: Given::Literal(max), window_millis: Given::Literal(millis) } => {
                quote!(::core::result::Result::Ok(#runtime::limit(#max, #millis)))
            }
            Limit::Concurrent(Given::Literal(max)) => {
                quote!(::core::result::Result::Ok(#runtime::concurrent(#max)))
            }
            Limit::Concurrent(max) => {
                let max = self.permits(max);
                quote!(#runtime::concurrent_of(#max))
            }
            Limit::Calendar(calendar) => self.calendar(calendar),
            Limit::Parts { max, window_millis } => {
                let (max, window) = (self.permits(max), self.duration(window_millis));
                quote!(#runtime::limit_of(#max, #window))
            }
        }
    }

    fn calendar(&self, calendar: &Calendar) -> TokenStream {
        let (runtime, text) = (&self.runtime, calendar.text());
        // The user's expressions cannot see the static.
        let limit = quote!({
            static CALENDAR: #runtime::CalendarLimit = #runtime::CalendarLimit::new(#text);
            &CALENDAR
        });
        match &calendar.zone {
            Some(Zone::Value(zone)) => {
                let borrowed = borrowed(zone);
                let expanded = quote!(#runtime::CalendarLimit::in_zone(#limit, #borrowed));
                self.with_borrowed_arguments(zone, point_at(zone, expanded))
            }
            _ => quote!(#runtime::CalendarLimit::limit(#limit)),
        }
    }

    fn permits(&self, permits: &Given<u32>) -> TokenStream {
        match permits {
            Given::Literal(permits) => quote!(#permits),
            Given::Expression(value) => self.typed(value, quote!(::core::primitive::u32)),
        }
    }
}

/// Returns a `let` of the value, and the name. The `let` ends the borrows of the user's expressions. A literal needs
/// none.
fn bind(name: &Ident, value: TokenStream, literal: bool) -> (TokenStream, TokenStream) {
    if literal { (TokenStream::new(), value) } else { (quote!(let #name = #value;), quote!(#name)) }
}
