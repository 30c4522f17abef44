//! The items that the attribute's expansion uses. They are not part of the public API and may change with any version.

mod rules;
mod keys;
mod limiters;
mod limits;
mod outcome;

pub use crate::convert::{FromDenied, FromFailure};
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
}

impl Site {
    /// Creates a site from the names of its rules.
    #[must_use]
    pub const fn new(names: &'static [&'static str]) -> Self {
        Self { names, on_error: None }
    }

    #[must_use]
    pub const fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = Some(policy);
        self
    }
}
