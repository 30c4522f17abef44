//! What a check gives: allowed or denied, and what there is to know beside it.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::Limit;
use crate::store::Answer;

/// Allowed or denied. A denial is a value, not an error.
#[must_use = "a decision that nobody looks at limits nothing"]
#[derive(Clone, Debug)]
pub enum Decision {
    /// The permits were taken: go ahead.
    Allowed(Allowed),
    /// Nothing was taken: do not.
    Denied(Denied),
}

impl Decision {
    /// Whether the permits were taken.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Whether the limit is reached.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied(_))
    }

    /// Permits left now, after this decision.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        match self {
            Self::Allowed(allowed) => allowed.remaining(),
            Self::Denied(denied) => denied.remaining(),
        }
    }

    /// The decision as a `Result`, for `?`.
    ///
    /// # Errors
    /// The [`Denied`], when it is one.
    pub fn into_result(self) -> Result<Allowed, Denied> {
        match self {
            Self::Allowed(allowed) => Ok(allowed),
            Self::Denied(denied) => Err(denied),
        }
    }
}

/// Who decided.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The store.
    Store,
    /// The in-process stand-in, because the store failed or did so less than a window ago.
    Standby,
    /// A policy, because the store failed: nothing was counted, and nothing is known beyond the limit itself.
    Policy,
}

/// The permits were taken.
#[derive(Clone)]
pub struct Allowed {
    facts: Facts,
}

/// The limit is reached: nothing was taken, and nothing was written.
#[derive(Clone)]
pub struct Denied {
    facts: Facts,
    retry_after: Option<Duration>,
}

#[derive(Clone, Copy)]
struct Facts {
    name: &'static str,
    limit: Limit,
    remaining: u32,
    reset_after: Duration,
    source: Source,
}

macro_rules! facts {
    () => {
        /// The rule's name: an attribute's `name`, or `check` for a direct call.
        #[must_use]
        pub fn name(&self) -> &str {
            self.facts.name
        }

        /// The limit that was asked for.
        #[must_use]
        pub fn limit(&self) -> Limit {
            self.facts.limit
        }

        /// Permits left in the window now; none where a policy decided.
        #[must_use]
        pub fn remaining(&self) -> u32 {
            self.facts.remaining
        }

        /// How long until the limit is whole again if nobody calls; nothing where a policy decided.
        #[must_use]
        pub fn reset_after(&self) -> Duration {
            self.facts.reset_after
        }

        /// Who decided.
        #[must_use]
        pub fn source(&self) -> Source {
            self.facts.source
        }
    };
}

impl Allowed {
    facts!();
}

impl Denied {
    facts!();

    /// How long until this call would be admitted if nobody else calls: exact where a store decided, at most a second
    /// where a policy did, [`Duration::MAX`] for a denial that [is final](Denied::is_final).
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after.unwrap_or(Duration::MAX)
    }

    /// Whether waiting cannot help: the call costs more than the limit ever holds.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.retry_after.is_none()
    }
}

/// What the decisions of one rule share.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) limit: Limit,
}

impl Rule {
    pub(crate) fn decision(self, answer: &Answer, source: Source) -> Decision {
        let facts = Facts {
            name: self.name,
            limit: self.limit,
            remaining: answer.remaining,
            reset_after: answer.reset_after,
            source,
        };
        if answer.allowed {
            Decision::Allowed(Allowed { facts })
        } else {
            Decision::Denied(Denied { facts, retry_after: answer.retry_after })
        }
    }

    /// Allowed without a count, because a policy says so.
    pub(crate) fn opened(self) -> Decision {
        Decision::Allowed(Allowed { facts: self.unknown() })
    }

    /// Denied without a count, because a policy says so.
    pub(crate) fn closed(self) -> Denied {
        let retry_after = Some(self.limit.window().min(Duration::from_secs(1)));
        Denied { facts: self.unknown(), retry_after }
    }

    fn unknown(self) -> Facts {
        let Self { name, limit } = self;
        Facts { name, limit, remaining: 0, reset_after: Duration::ZERO, source: Source::Policy }
    }
}

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.debug(&mut f.debug_struct("Allowed")).finish()
    }
}

impl fmt::Debug for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.debug(&mut f.debug_struct("Denied")).field("retry_after", &self.retry_after).finish()
    }
}

impl Facts {
    fn debug<'a, 'b, 'c>(&self, debug: &'c mut fmt::DebugStruct<'a, 'b>) -> &'c mut fmt::DebugStruct<'a, 'b> {
        let Self { name, limit, remaining, reset_after, source } = self;
        debug
            .field("name", name)
            .field("limit", limit)
            .field("remaining", remaining)
            .field("reset_after", reset_after)
            .field("source", source)
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { name, limit, source, .. } = self.facts;
        match (source, self.retry_after) {
            (_, None) => write!(f, "the call costs more than the rate limit `{name}` of {limit} ever allows"),
            (Source::Policy, Some(_)) => write!(f, "the rate limit `{name}` of {limit} cannot be checked: denied"),
            (_, Some(after)) => {
                let millis = after.as_nanos().div_ceil(1_000_000);
                write!(f, "rate limit `{name}` of {limit} reached: retry after {}.{:03}s", millis / 1000, millis % 1000)
            }
        }
    }
}

impl StdError for Denied {}
