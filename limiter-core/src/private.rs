//! What the attribute expands to. Not part of the public API: it may change with any version.

mod rules;
mod keys;
mod limiters;
mod limits;
mod outcome;

pub use crate::convert::{FromDenied, FromFailure};
pub use crate::{Algorithm, Denied, Error, Key, Limit, Limiter, OnError};
pub use keys::{Constant, ToKey, key, only};
pub use limiters::{Chosen, LimiterRef, current, limiter};
pub use limits::{LimitOrNearest, LimitRef, counted_by, limit, limit_from, limit_of};
pub use outcome::{Fallible, Outcome, Pending, Resolving, Value, call, resolve, run};
pub use rules::{Ask, Counted, ask, ask_several, decide, decide_blocking, denied, denied_blocking, fixed, one};

/// What an annotated function knows of itself: a static in it.
#[derive(Debug)]
pub struct Site {
    names: &'static [&'static str],
    on_error: Option<OnError>,
}

impl Site {
    /// The names of its rules.
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
