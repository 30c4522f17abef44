//! What one attribute asks for, checked: all that the expansion needs to know beside the function.

use proc_macro2::{Ident, TokenStream};
use syn::{Expr, ExprClosure, ExprPath, LitStr};

pub(crate) struct Plan {
    /// The path of the crate that generated code calls.
    pub(crate) facade: TokenStream,
    pub(crate) name: LitStr,
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    pub(crate) limiter: Limiter,
    pub(crate) on_denied: Outcome,
    pub(crate) on_error: Failure,
}

pub(crate) enum Key {
    Template(Vec<Part>),
    /// A `Key`, or a value counted under the rule's name.
    Value(Expr),
}

pub(crate) enum Part {
    Text(LitStr),
    Value(Expr),
    /// A value and the template of its own, `{:spec}`, that it is formatted by.
    Formatted(LitStr, Expr),
    Captured(Captured),
}

/// A name that is no argument: a constant, or a slip that rustc is to point at inside the string.
///
/// rustc can do that only for what it captures itself, so it formats the whole template, with nothing for the
/// `others`; the text around the value is cut off again.
pub(crate) struct Captured {
    pub(crate) template: LitStr,
    pub(crate) others: Vec<Ident>,
    pub(crate) text_before: usize,
    pub(crate) text_after: usize,
}

pub(crate) enum Limit {
    Parts { max: Given<u32>, window_millis: Given<u64> },
    Value(Expr),
}

/// A number that was checked already, or an expression for run time.
pub(crate) enum Given<T> {
    Literal(T),
    Expression(Expr),
}

pub(crate) enum Limiter {
    Current,
    Value(Expr),
}

/// What becomes of a call when the limiter itself fails.
pub(crate) enum Failure {
    /// As the limiter is set.
    Default,
    Policy(Policy),
    /// The error comes back to the function.
    Handled(Outcome),
}

#[derive(Clone, Copy)]
pub(crate) enum Policy {
    Open,
    Closed,
    Standby,
}

/// Why the body does not run.
#[derive(Clone, Copy)]
pub(crate) enum Occasion {
    Denial,
    Failure,
}

impl Occasion {
    /// The name under which the user's expressions find the denial or the error.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Denial => "denied",
            Self::Failure => "error",
        }
    }
}

/// What the function returns instead of running its body.
pub(crate) enum Outcome {
    /// What the return type makes of the denial or the error; `place` is where rustc points when it cannot.
    Converted {
        place: TokenStream,
    },
    Function {
        path: ExprPath,
        passed: Passed,
    },
    /// Called with the denial or the error.
    Closure(ExprClosure),
    /// Evaluated with the denial or the error in scope.
    Value(Expr),
}

/// What a function that takes the body's place is called with.
pub(crate) enum Passed {
    /// The arguments of the annotated one.
    Arguments(Vec<Ident>),
    /// The denial or the error.
    Occasion,
}
