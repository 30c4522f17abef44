//! All checks of the arguments, their values and the function. All mistakes are collected; without one there is a plan.

mod algorithm;
mod block;
mod calendar;
mod configured;
mod facade;
mod function;
mod key;
mod limit;
mod names;
mod number;
mod once;
mod outcome;
mod permit;
mod recover;
mod rule;
mod settle;
mod skip;
mod wait;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::Signature;

use crate::args::Args;
use crate::errors::Errors;
use crate::item::Function;
use crate::names::Argument;
use crate::params::Params;
use crate::plan::{Limiter, Outcome, Passed, Plan};
use crate::rebinding::{Reasons, Rebinding};

pub(crate) use skip::check as check_skip;

/// One function, and the attributes that apply to it.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// The arguments of each attribute.
    pub(crate) rules: &'a [Args],
    pub(crate) function: &'a Function,
    /// All methods to which the attributes apply, if they are on an `impl` block.
    pub(crate) methods: &'a [&'a Function],
}

impl Subject<'_> {
    fn signature(&self) -> &Signature {
        &self.function.signature
    }

    fn is_method_of_block(&self) -> bool {
        !self.methods.is_empty()
    }
}

/// Returns the plan, unless there is an error here or there was one before.
pub(crate) fn validate(subject: &Subject<'_>, errors: &mut Errors) -> Option<Plan> {
    let Subject { rules, function, .. } = *subject;
    let params = Params::new(&function.signature);

    function::check(subject, errors);
    names::check(subject, errors);
    once::check(rules, errors);
    let facade = errors.take(facade::facade(once::value(rules, Argument::Crate)));
    let planned: Vec<_> = rules.iter().map(|args| rule::rule(args, subject, params, errors)).collect();
    let on_error = errors.take(outcome::on_error(once::written(rules, Argument::OnError), function, params));
    let recover = recover::recover(once::written(rules, Argument::Recover), function, params, errors);
    let settled = settle::returned(subject, errors);
    let permit = permit::permit(subject, params, errors);
    let limiter = limiter(rules, errors);
    let wait = wait::wait(once::value(rules, Argument::Wait), errors);

    let rules: Option<Vec<_>> = planned.into_iter().collect();
    let (facade, rules, on_error) = (facade?, rules?, on_error?);
    let (caught, recover) = match recover {
        Some((returned, outcome)) => (Some(returned), Some(outcome)),
        None => (settled, None),
    };
    let forwards_arguments =
        |outcome: &Outcome| matches!(outcome, Outcome::Function { passed: Passed::Arguments(_), .. });
    let reasons = Reasons {
        forwarded: rules.iter().any(|rule| forwards_arguments(&rule.on_denied)),
        owned: caught.is_some() && function.signature.asyncness.is_some(),
    };
    let rebinding = Rebinding::new(function, reasons, &all_values(subject.rules));
    errors.is_empty().then_some(Plan { facade, rules, limiter, wait, on_error, caught, recover, permit, rebinding })
}

fn limiter(rules: &[Args], errors: &mut Errors) -> Limiter {
    match once::value(rules, Argument::Limiter) {
        Some(limiter) => {
            if crate::value::literal(limiter).is_some() {
                let message = "`limiter` must be a `Limiter`, or a reference to one: a URL is for `Limiter::connect`, \
                               whose limiter is then installed";
                errors.push_at(limiter, message);
            }
            Limiter::Value(limiter.clone())
        }
        None => Limiter::Current,
    }
}

/// Returns the values of all arguments of all attributes.
fn all_values(rules: &[Args]) -> TokenStream {
    rules.iter().flat_map(Args::values).map(|written| written.value.to_token_stream()).collect()
}
