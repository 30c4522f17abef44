//! The rule of one attribute: a key, its limits, and the cost of a call.

use syn::{Expr, ExprLit, Lit, LitBool, LitStr};

use super::{Subject, algorithm, block, calendar, configured, key, limit, number, once, outcome, settle};
use crate::args::Args;
use crate::errors::Errors;
use crate::names::Argument;
use crate::params::Params;
use crate::plan::{Given, Limit, Limits, Rule};
use crate::value::{literal, string};

pub(super) fn rule(args: &Args, subject: &Subject<'_>, params: Params<'_>, errors: &mut Errors) -> Option<Rule> {
    let name = key::name(args, errors);
    let key = key::key(args, params, errors);
    let limits = limits(args, params, errors);
    let cost = cost(args, subject, errors);
    let when = when(args, errors);
    let leases = leases(args, errors);
    let block = limits.as_ref().and_then(|limits| block::block(args, subject.rules, limits, errors));
    let plan = plan(args, errors);
    let settle = errors.take(settle::settle(args, params));
    let on_denied = errors.take(outcome::on_denied(args, subject.function, params));

    let (limits, cost) = (limits?, cost?);
    check_cost(args, &limits, &cost, errors);
    check_settlement(args, &limits, &cost, errors);
    let key_text = args.value(Argument::Key).and_then(string).cloned();
    let (name, key, settle, on_denied) = (name?, key?, settle?, on_denied?);
    Some(Rule { name, key, key_text, limits, cost, when, leases, block, plan, settle, on_denied })
}

fn limits(args: &Args, params: Params<'_>, errors: &mut Errors) -> Option<Limits> {
    if configured::is_configured(args, params) {
        configured::check(args, errors);
        return Some(Limits::Configured);
    }
    let limits = limit::limits(args, params, errors);
    if is_concurrent(limits.iter().flatten().map(|(limit, _)| limit)) && algorithm::check_concurrent(args, errors) {
        return None;
    }
    let counted_by = algorithm::algorithm(args, errors);
    let mut limits = limits?;
    let counted_by = calendar::apply(args, &mut limits, counted_by, errors).map(Box::new);
    let (limits, sources) = limits.into_iter().unzip();
    Some(Limits::Written { limits, sources, counted_by })
}

/// Returns whether all limits are of calls at once.
fn is_concurrent<'l>(mut limits: impl Iterator<Item = &'l Limit> + Clone) -> bool {
    limits.clone().next().is_some() && limits.all(Limit::is_concurrent)
}

fn cost(args: &Args, subject: &Subject<'_>, errors: &mut Errors) -> Option<Given<u32>> {
    let Some(cost) = args.value(Argument::Cost) else { return Some(Given::Literal(1)) };
    let is_settled = args.get(Argument::Settle).is_some() || once::written(subject.rules, Argument::Permit).is_some();
    if let Some(Lit::Int(number)) = literal(cost)
        && number.base10_digits() == "0"
    {
        if !is_settled {
            let message = "a cost of 0 limits nothing: add `settle` or `permit` to charge the call afterwards, or use \
                           `when` to leave it out";
            errors.push_at(cost, message);
            return None;
        }
        if matches!(cost, Expr::Lit(_)) && matches!(number.suffix(), "" | "u32") {
            return Some(Given::Literal(0));
        }
    }
    let least = if is_settled { 0 } else { 1 };
    let range = format!("`cost` must be a number of permits such as `2`, between {least} and {}", u32::MAX);
    errors.take(number::permits(cost, &range))
}

fn when(args: &Args, errors: &mut Errors) -> Option<Expr> {
    let when = args.value(Argument::When)?;
    match literal(when) {
        Some(Lit::Bool(_)) | None => {}
        Some(_) => errors.push_at(when, "`when` must be a condition such as `!user.is_admin`"),
    }
    Some(when.clone())
}

fn leases(args: &Args, errors: &mut Errors) -> Option<LitBool> {
    let value = args.value(Argument::Leases)?;
    if let Expr::Lit(ExprLit { lit: Lit::Bool(leases), .. }) = value {
        return Some(leases.clone());
    }
    let message = match string(value).map(LitStr::value).as_deref() {
        Some(word @ ("true" | "false")) => format!("a flag is written without quotes: `leases = {word}`"),
        _ => "`leases` must be `true` or `false`: settings by name can change it at run time".to_owned(),
    };
    errors.push_at(value, message);
    None
}

fn plan(args: &Args, errors: &mut Errors) -> Option<Expr> {
    let plan = args.value(Argument::Plan)?;
    match literal(plan) {
        Some(Lit::Str(name)) if name.value().contains('{') => {
            errors
                .push_at(plan, "`plan` is no template: write the expression without quotes, such as `customer.plan()`");
        }
        Some(Lit::Str(_)) | None => {}
        Some(_) => errors.push_at(plan, "`plan` must be the name of a plan, such as `customer.plan()` or `\"pro\"`"),
    }
    Some(plan.clone())
}

/// Reports a cost above the greatest number of permits that a limit can grant at once.
fn check_cost(args: &Args, limits: &Limits, cost: &Given<u32>, errors: &mut Errors) {
    let (Limits::Written { limits, counted_by, .. }, &Given::Literal(cost)) = (limits, cost) else { return };
    let burst = counted_by.as_ref().and_then(|counted_by| counted_by.burst.as_ref());
    let capacity = |limit: &Limit| match (limit, burst) {
        (&Limit::Concurrent(Given::Literal(max)), _) => Some(("concurrent", max)),
        (Limit::Calendar(calendar), _) => Some(("max", calendar.max)),
        (Limit::Concurrent(Given::Expression(_)), _) | (_, Some(Given::Expression(_))) => None,
        (_, Some(&Given::Literal(burst))) => Some(("burst", burst)),
        (&Limit::Parts { max: Given::Literal(max), .. }, None) => Some(("max", max)),
        _ => None,
    };
    let least = limits.iter().filter_map(capacity).min_by_key(|(_, capacity)| *capacity);
    if let (Some((what, capacity)), Some(value)) = (least, args.value(Argument::Cost))
        && cost > capacity
    {
        errors.push_at(
            value,
            format!("a cost of {cost} never fits into a `{what}` of {capacity}: lower it, or raise `{what}`"),
        );
    }
}

/// Reports a settlement of a rule that counts calls at once alone.
fn check_settlement(args: &Args, limits: &Limits, cost: &Given<u32>, errors: &mut Errors) {
    let Limits::Written { limits, .. } = limits else { return };
    if !is_concurrent(limits.iter()) {
        return;
    }
    if let Some(settle) = args.get(Argument::Settle) {
        let message = "`settle` charges permits of a window, and a slot is free again when the call ends: remove it";
        errors.push_at(&settle.ident, message);
    } else if let (Given::Literal(0), Some(cost)) = (cost, args.value(Argument::Cost)) {
        errors.push_at(cost, "a call with a cost of 0 has no slot, so it would limit nothing: remove `cost`");
    }
}
