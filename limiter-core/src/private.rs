//! The items that the attribute's expansion uses. They are not part of the public API and may change with any version.

mod rules;
mod keys;
mod limiters;
mod limits;
mod outcome;

pub use crate::convert::{FromDenied, FromFailure};
use crate::rule::RuleId;
pub use crate::{Algorithm, Denied, Error, Key, Limit, Limiter, OnError};
pub use keys::{StaticKey, ToKey, captured_value, key};
pub use limiters::{LimiterHandle, LimiterRef, current, limiter};
pub use limits::{LimitOrNearest, LimitRef, counted_by, limit, limit_from, limit_of};
pub use outcome::{Fallible, FutureValue, PlainValue, Resolvable, Resolving, call, resolve, run};
pub use rules::{KeyRef, RuleRequest, decide, decide_blocking, denied, denied_blocking};

/// The names of an annotated function's rules and its failure policy, in a static inside the function.
#[derive(Debug)]
pub struct Site {
    names: &'static [&'static str],
    on_error: Option<OnError>,
    /// The position of the first rule in the caches of threads.
    first_rule: RuleId,
}

impl Site {
    /// Creates a site from the names of its rules.
    #[must_use]
    pub const fn new(names: &'static [&'static str]) -> Self {
        Self { names, on_error: None, first_rule: RuleId::new() }
    }

    #[must_use]
    pub const fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = Some(policy);
        self
    }

    /// The position of a rule in the caches of threads.
    fn position(&self, rule_index: usize) -> u32 {
        let length = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.first_rule.position(length) + u32::try_from(rule_index).unwrap_or(0)
    }
}
