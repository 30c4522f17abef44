//! What one attribute asks for, checked: all that the expansion needs to know beside the function.

use proc_macro2::{Ident, TokenStream};
use syn::{Expr, ExprClosure, ExprPath, LitStr, Type};

use crate::params::HandedOn;
use crate::rebinding::Rebinding;

/// One decision of one or more rules.
pub(crate) struct Plan {
    /// The path of the crate that generated code calls.
    pub(crate) facade: TokenStream,
    pub(crate) rules: Vec<Rule>,
    pub(crate) limiter: Limiter,
    pub(crate) wait: Option<Given<u64>>,
    pub(crate) on_error: Failure,
    pub(crate) recover: Option<Recovery>,
    pub(crate) rebinding: Rebinding,
}

/// What one attribute says.
pub(crate) struct Rule {
    pub(crate) name: LitStr,
    pub(crate) key: Key,
    pub(crate) limits: Limits,
    pub(crate) cost: Given<u32>,
    pub(crate) when: Option<Expr>,
    pub(crate) on_denied: Outcome,
}

impl Rule {
    /// The only limit, where it is a literal and nothing else is said: what most rules are.
    pub(crate) fn plain_limit(&self) -> Option<(u32, u64)> {
        match (self.limits.limits.as_slice(), &self.limits.counted_by, &self.cost) {
            (
                &[Limit::Parts { max: Given::Literal(max), window_millis: Given::Literal(millis) }],
                None,
                Given::Literal(1),
            ) => Some((max, millis)),
            _ => None,
        }
    }

    /// Whether all that a call of it asks for is known when compiling, but for whether it asks.
    pub(crate) fn is_fixed(&self) -> bool {
        self.key.constant().is_some() && self.plain_limit().is_some()
    }
}

impl Key {
    /// The text of a key without values.
    pub(crate) fn constant(&self) -> Option<&LitStr> {
        match self {
            Self::Template(parts) => match parts.as_slice() {
                [Part::Text(text)] => Some(text),
                _ => None,
            },
            Self::Value(_) => None,
        }
    }
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

pub(crate) struct Limits {
    /// At least one; several are all-or-nothing.
    pub(crate) limits: Vec<Limit>,
    pub(crate) counted_by: Option<CountedBy>,
}

impl Limits {
    pub(crate) fn is_literal(&self) -> bool {
        let burst = self.counted_by.as_ref().and_then(|counted_by| counted_by.burst.as_ref());
        let literal = |limit: &Limit| match limit {
            Limit::Parts { max, window_millis } => max.is_literal() && window_millis.is_literal(),
            Limit::Value(_) => false,
        };
        self.limits.iter().all(literal) && burst.is_none_or(Given::is_literal)
    }
}

/// An algorithm other than the limits' own, for all of them.
pub(crate) struct CountedBy {
    pub(crate) algorithm: Algorithm,
    pub(crate) burst: Option<Given<u32>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    SlidingWindow,
    FixedWindow,
    SlidingCounter,
    TokenBucket,
    LeakyBucket,
}

impl Algorithm {
    pub(crate) fn has_burst(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }
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

impl<T> Given<T> {
    pub(crate) fn is_literal(&self) -> bool {
        matches!(self, Self::Literal(_))
    }
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

/// What becomes of the body's own errors.
pub(crate) struct Recovery {
    /// What the function returns.
    pub(crate) returned: Type,
    pub(crate) outcome: Outcome,
}

/// Why the function returns something else than its body's value.
#[derive(Clone, Copy)]
pub(crate) enum Occasion {
    Denial,
    /// Of the limiter.
    Failure,
    /// The body's own error.
    Mistake,
}

impl Occasion {
    /// The name under which the user's expressions find the denial or the error.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Denial => "denied",
            Self::Failure | Self::Mistake => "error",
        }
    }
}

/// What the function returns instead of its body's value.
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
    Arguments(Vec<HandedOn>),
    /// The denial or the error.
    Occasion,
}
