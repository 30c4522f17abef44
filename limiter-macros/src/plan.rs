//! The checked content of the attributes: all that the expansion needs beside the function.

use limiter_syntax::{Anchor, AnchorText, BlockText, Period};
use proc_macro2::{Ident, TokenStream};
use syn::{Expr, ExprClosure, ExprPath, LitBool, LitStr, Type};

use crate::params::ForwardedArgument;
use crate::rebinding::Rebinding;

/// One decision of one or more rules.
pub(crate) struct Plan {
    /// The path of the crate that generated code calls.
    pub(crate) facade: TokenStream,
    pub(crate) rules: Vec<Rule>,
    pub(crate) limiter: Limiter,
    pub(crate) wait: Option<Given<u64>>,
    pub(crate) on_error: FailurePolicy,
    /// The type of the body's value, if an argument needs that value.
    pub(crate) caught: Option<Type>,
    /// The handler of the body's own errors.
    pub(crate) recover: Option<Outcome>,
    /// The variable of the body that holds the decision.
    pub(crate) permit: Option<Ident>,
    pub(crate) rebinding: Rebinding,
}

impl Plan {
    /// Returns whether a rule counts what the call has cost.
    pub(crate) fn settles(&self) -> bool {
        self.rules.iter().any(|rule| rule.settle.is_some())
    }

    /// Returns whether a call of the rule may take nothing and be charged afterwards. Without `settle` and `permit` a cost
    /// of 0 is none.
    pub(crate) fn may_be_postpaid(&self, rule: &Rule) -> bool {
        (rule.settle.is_some() || self.permit.is_some())
            && matches!(rule.cost, Given::Literal(0) | Given::Expression(_))
    }
}

/// The rule of one attribute.
pub(crate) struct Rule {
    pub(crate) name: LitStr,
    pub(crate) key: Key,
    /// The key as written, if it is a string.
    pub(crate) key_text: Option<LitStr>,
    pub(crate) limits: Limits,
    pub(crate) cost: Given<u32>,
    pub(crate) when: Option<Expr>,
    pub(crate) leases: Option<LitBool>,
    pub(crate) block: Option<BlockText>,
    /// The plan of the customer.
    pub(crate) plan: Option<Expr>,
    pub(crate) settle: Option<Settle>,
    pub(crate) on_denied: Outcome,
}

impl Rule {
    /// Returns permits and window, if the rule has one literal limit and nothing else, as most rules have.
    pub(crate) fn plain_limit(&self) -> Option<(u32, u64)> {
        match (&self.limits, &self.cost) {
            (Limits::Written { limits, counted_by: None, .. }, Given::Literal(1)) => match limits.as_slice() {
                &[Limit::Parts { max: Given::Literal(max), window_millis: Given::Literal(millis) }] => {
                    Some((max, millis))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the first limit of the calendar.
    pub(crate) fn calendar(&self) -> Option<&Calendar> {
        let Limits::Written { limits, .. } = &self.limits else { return None };
        limits.iter().find_map(|limit| if let Limit::Calendar(calendar) = limit { Some(&**calendar) } else { None })
    }

    /// Returns whether only a plan knows all settings of a call.
    fn is_planned(&self) -> bool {
        self.plan.is_some() || self.block.is_some()
    }

    /// Returns whether the request is known at compile time, except for its `when`.
    pub(crate) fn is_fixed(&self) -> bool {
        let is_configured = matches!((&self.limits, &self.cost), (Limits::Configured, Given::Literal(1)));
        self.key.constant().is_some() && !self.is_planned() && (is_configured || self.plain_limit().is_some())
    }
}

impl Key {
    /// Returns the text of a key without values.
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
    /// A template `{:spec}`, and the value that it formats.
    Formatted(LitStr, Expr),
    Captured(Captured),
}

/// A name that is no argument: a constant, or a spelling mistake at which rustc should point inside the string.
///
/// rustc points there only for names that it captures itself. So the expansion formats the whole template, with empty
/// values for the `others`, and removes the text around the value.
pub(crate) struct Captured {
    pub(crate) template: LitStr,
    pub(crate) others: Vec<Ident>,
    pub(crate) text_before: usize,
    pub(crate) text_after: usize,
}

pub(crate) enum Limits {
    /// The limits of the settings by name, with their algorithm.
    Configured,
    Written {
        /// One or more limits. A call takes permits from all of them or from none.
        limits: Vec<Limit>,
        /// The source of each limit, for the list of sites.
        sources: Vec<LimitSource>,
        counted_by: Option<Box<CountedBy>>,
    },
}

/// A limit as it was written.
pub(crate) enum LimitSource {
    Whole(Expr),
    Parts {
        max: Expr,
        window: Expr,
    },
    /// The value of `concurrent`.
    Concurrent(Expr),
    /// The text of a limit of the calendar.
    Calendar(String),
}

/// An algorithm that replaces that of each limit.
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
    Calendar,
}

impl Algorithm {
    pub(crate) const ALL: [Self; 6] = [
        Self::SlidingWindow,
        Self::FixedWindow,
        Self::SlidingCounter,
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::Calendar,
    ];

    pub(crate) fn has_burst(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }

    /// The name in an attribute and in a text of rules.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
            Self::FixedWindow => "fixed_window",
            Self::SlidingCounter => "sliding_counter",
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
            Self::Calendar => "calendar",
        }
    }
}

pub(crate) enum Limit {
    Parts {
        max: Given<u32>,
        window_millis: Given<u64>,
    },
    /// So many calls at once.
    Concurrent(Given<u32>),
    Calendar(Box<Calendar>),
    Value(Expr),
}

impl Limit {
    pub(crate) fn is_literal(&self) -> bool {
        match self {
            Self::Parts { max, window_millis } => max.is_literal() && window_millis.is_literal(),
            Self::Concurrent(max) => max.is_literal(),
            Self::Calendar(calendar) => !matches!(calendar.zone, Some(Zone::Value(_))),
            Self::Value(_) => false,
        }
    }

    /// Returns whether it limits calls at once, as far as the text shows.
    pub(crate) fn is_concurrent(&self) -> bool {
        matches!(self, Self::Concurrent(_))
    }

    /// Returns whether its text says how it counts, so that no other algorithm applies.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Concurrent(_) | Self::Calendar(_))
    }
}

/// A limit of periods of the calendar.
pub(crate) struct Calendar {
    pub(crate) max: u32,
    pub(crate) period: Period,
    pub(crate) anchor: Anchor,
    pub(crate) zone: Option<Zone>,
    /// The limit as written, at which errors point.
    pub(crate) place: Expr,
}

pub(crate) enum Zone {
    Name(String),
    /// An expression for run time.
    Value(Expr),
}

impl Calendar {
    /// The text of the limit. Without the name of a zone, which may come at run time, it is of UTC.
    pub(crate) fn text(&self) -> String {
        let zone = if let Some(Zone::Name(name)) = &self.zone { name } else { "UTC" };
        self.text_with_zone(zone)
    }

    pub(crate) fn text_with_zone(&self, zone: &str) -> String {
        let Self { max, period, anchor, .. } = *self;
        if anchor == Anchor::default_of(period) {
            return format!("{max}/{period}@{zone}");
        }
        format!("{max}/{period}:{}@{zone}", AnchorText { period, anchor })
    }
}

/// A checked number, or an expression for run time.
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

/// The policy for calls when the limiter itself fails.
pub(crate) enum FailurePolicy {
    /// The policy of the limiter.
    Default,
    Policy(Policy),
    /// The function gets the error.
    Handled(Outcome),
}

#[derive(Clone, Copy)]
pub(crate) enum Policy {
    Open,
    Closed,
    Standby,
}

/// The function that returns the cost of a call, from a reference to what its body returned.
pub(crate) enum Settle {
    Function(ExprPath),
    Closure(ExprClosure),
}

/// The reason why the function returns another value than its body's.
#[derive(Clone, Copy)]
pub(crate) enum Occasion {
    Denial,
    /// A failure of the limiter.
    Failure,
    /// An error that the body returned.
    BodyError,
}

impl Occasion {
    /// Returns the name of the denial or the error in the user's expressions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Denial => "denied",
            Self::Failure | Self::BodyError => "error",
        }
    }
}

/// The value that the function returns instead of its body's.
pub(crate) enum Outcome {
    /// The denial or the error, converted to the return type. rustc points at `place` if there is no conversion.
    Converted {
        place: TokenStream,
    },
    Function {
        path: ExprPath,
        passed: Passed,
    },
    /// A closure that is called with the denial or the error.
    Closure(ExprClosure),
    /// An expression that is evaluated with the denial or the error in scope.
    Value(Expr),
}

/// The arguments of a function that is called instead of the body.
pub(crate) enum Passed {
    /// The arguments of the annotated function.
    Arguments(Vec<ForwardedArgument>),
    /// The denial or the error.
    Occasion,
}
