//! Arguments of the decision, not of one of its rules. A function has each in one attribute at most.

use syn::Expr;

use crate::args::{Args, Written};
use crate::errors::Errors;
use crate::names::Argument;

const DECISION_ARGUMENTS: [(Argument, &str); 6] = [
    (Argument::Limiter, "the rules of a function are one decision, which one limiter takes"),
    (Argument::Wait, "the rules of a function are one decision, and there is one wait for it"),
    (Argument::OnError, "the rules of a function are one decision, which fails as a whole"),
    (Argument::Recover, "a function has one body to recover from"),
    (Argument::Permit, "the rules of a function are one decision, with one permit"),
    (Argument::Crate, "the rules of a function are one decision, which one crate takes"),
];

pub(super) fn check(rules: &[Args], errors: &mut Errors) {
    for (argument, reason) in DECISION_ARGUMENTS {
        for again in rules.iter().filter_map(|args| args.get(argument)).skip(1) {
            let message = format!("`{}` is given twice, but {reason}: keep one", argument.name());
            errors.push_at(&again.ident, message);
        }
    }
}

pub(super) fn written(rules: &[Args], argument: Argument) -> Option<&Written> {
    rules.iter().find_map(|args| args.get(argument))
}

pub(super) fn value(rules: &[Args], argument: Argument) -> Option<&Expr> {
    written(rules, argument).map(|written| &written.value)
}
