//! What a check gives: allowed or denied, and what there is to know beside it.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::Limit;
use crate::algorithm::Outcome;
use crate::request::{OwnedRequest, Request, StoreReply};
use crate::request::{RefundInfo, Resolution};
use crate::source::Source;
use crate::store::memory::MemoryReply;

pub(crate) mod limiter_id;
pub(crate) mod receipt;

use limiter_id::LimiterId;
use receipt::Receipt;

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

    /// The denial of a call that waited for too long. Where it would be allowed now, others are ahead of it, and
    /// `retry_after` is when they are expected to go on.
    pub(crate) fn out_of_time(self, retry_after: Duration) -> Denied {
        match self {
            Self::Allowed(Allowed { facts, .. }) => Denied { facts, retry_after: Some(micros(retry_after)) },
            Self::Denied(denied) => denied,
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

/// The permits were taken. This is the receipt to [give them back](crate::Limiter::refund) with.
#[derive(Clone)]
pub struct Allowed {
    facts: Details,
    /// Where there is something to give back.
    receipt: Option<Receipt>,
}

/// The limit is reached: nothing was taken, and nothing was written.
#[derive(Clone)]
pub struct Denied {
    facts: Details,
    /// Microseconds.
    retry_after: Option<u64>,
}

/// Small, because a decision is moved a few times on its way.
#[derive(Clone, Copy)]
struct Details {
    name: &'static str,
    /// Nobody asks about more requests at once than this counts to.
    request_index: u16,
    limit: Limit,
    remaining: u32,
    /// Microseconds.
    reset_after: u64,
    source: Source,
}

macro_rules! facts {
    () => {
        /// The rule's name: an attribute's `name`, or `check` for a direct call.
        #[must_use]
        pub fn name(&self) -> &str {
            self.facts.name
        }

        /// The limit that this is about: of several, the first that denied, or the one with the least left.
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
            Duration::from_micros(self.facts.reset_after)
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

    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }
}

impl Denied {
    facts!();

    /// Which request of the decision denied it: the first, if several did.
    pub(crate) fn request_index(&self) -> usize {
        self.facts.request_index.into()
    }

    /// What [`retry_after`](Denied::retry_after) says of a denial that is final: 136 years, which an instant can be
    /// moved by.
    pub const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

    /// How long until this call would be admitted if nobody else calls: exact where a store decided, at most a second
    /// where a policy did, [`NEVER`](Denied::NEVER) for a denial that [is final](Denied::is_final).
    ///
    /// It is not in whole seconds or milliseconds: round up for those who can only wait for such.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after.map_or(Self::NEVER, Duration::from_micros)
    }

    /// Whether waiting cannot help: the call costs more than the limit ever holds.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.retry_after.is_none()
    }
}

impl Decision {
    /// What the memory store says to one request.
    #[inline]
    pub(crate) fn told(name: &'static str, request: &Request<'_>, told: &MemoryReply, limiter_id: LimiterId) -> Self {
        let Outcome { allowed, remaining, retry_at, reset_at, .. } = told.outcome;
        let reset_after = told.until(reset_at);
        let facts =
            Details { name, request_index: 0, limit: request.limit, remaining, reset_after, source: Source::Store };
        if !allowed {
            return Self::Denied(Denied { facts, retry_after: retry_at.map(|at| told.until(at)) });
        }
        let stamp = told.now.micros();
        let receipt = match told.entry {
            Some(entry) => Receipt::at(limiter_id, entry, request.cost, stamp),
            None => Receipt::new(limiter_id, OwnedRequest::copy_all(&[*request]), RefundInfo::from_store(stamp)),
        };
        Self::Allowed(Allowed { facts, receipt })
    }
}

/// The requests of one decision, and the names of the rules they come from.
#[derive(Clone, Copy)]
pub(crate) struct DecisionContext<'a> {
    /// One for each request, or one for all.
    pub(crate) names: &'a [&'static str],
    pub(crate) requests: &'a [Request<'a>],
}

impl DecisionContext<'_> {
    /// The decision, with a receipt if there is a limiter_id to take it back.
    pub(crate) fn decision(&self, ruling: &Resolution, limiter_id: Option<LimiterId>) -> Decision {
        let settled = match ruling {
            Resolution::Counted(settled) => settled,
            Resolution::FailedOpen => return self.opened(),
            Resolution::FailedClosed => return Decision::Denied(self.closed()),
        };
        let asked = || settled.asked.clone().unwrap_or_else(|| OwnedRequest::copy_all(self.requests));
        let receipt = || limiter_id.and_then(|limiter_id| Receipt::new(limiter_id, asked(), settled.refund_info()));
        self.settled(&settled.answer, settled.source, receipt)
    }

    #[inline]
    fn settled(&self, answer: &StoreReply, source: Source, receipt: impl FnOnce() -> Option<Receipt>) -> Decision {
        let reset_after = micros(answer.reset_after);
        let facts = Details { remaining: answer.remaining, reset_after, source, ..self.facts(answer.request_index) };
        if answer.allowed {
            Decision::Allowed(Allowed { facts, receipt: receipt() })
        } else {
            Decision::Denied(Denied { facts, retry_after: answer.retry_after.map(micros) })
        }
    }

    /// Allowed without a count, because a policy says so; but what no count would ever allow is denied all the same.
    fn opened(&self) -> Decision {
        let impossible = |request: &Request<'_>| request.cost > request.limit.burst();
        match self.requests.iter().position(impossible) {
            Some(which) => Decision::Denied(Denied { facts: self.facts(which), retry_after: None }),
            None => Decision::Allowed(Allowed { facts: self.facts(0), receipt: None }),
        }
    }

    /// Denied without a count, because a policy says so.
    pub(crate) fn closed(&self) -> Denied {
        let facts = self.facts(0);
        Denied { facts, retry_after: Some(micros(facts.limit.window().min(Duration::from_secs(1)))) }
    }

    /// What is known of a request before anybody answers it.
    #[inline]
    fn facts(&self, request_index: usize) -> Details {
        let name = self.names.get(request_index).or(self.names.first()).copied().unwrap_or_default();
        let limit = self.requests.get(request_index).map_or(Limit::WIDEST, |request| request.limit);
        let request_index = u16::try_from(request_index).unwrap_or(u16::MAX);
        Details { name, request_index, limit, remaining: 0, reset_after: 0, source: Source::Policy }
    }
}

/// Whole microseconds, rounded up.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.debug(&mut f.debug_struct("Allowed")).finish()
    }
}

impl fmt::Debug for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry_after = self.retry_after.map(Duration::from_micros);
        self.facts.debug(&mut f.debug_struct("Denied")).field("retry_after", &retry_after).finish()
    }
}

impl Details {
    fn debug<'a, 'b, 'c>(&self, debug: &'c mut fmt::DebugStruct<'a, 'b>) -> &'c mut fmt::DebugStruct<'a, 'b> {
        let Self { name, request_index: _, limit, remaining, reset_after, source } = self;
        debug
            .field("name", name)
            .field("limit", limit)
            .field("remaining", remaining)
            .field("reset_after", &Duration::from_micros(*reset_after))
            .field("source", source)
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { name, limit, source, .. } = self.facts;
        match (source, self.retry_after) {
            (_, None) => write!(f, "the call costs more than the rate limit `{name}` of {limit} ever allows"),
            (Source::Policy, Some(_)) => write!(f, "the rate limit `{name}` of {limit} cannot be checked: denied"),
            (_, Some(after)) => {
                let millis = after.div_ceil(1000);
                write!(f, "rate limit `{name}` of {limit} reached: retry after {}.{:03}s", millis / 1000, millis % 1000)
            }
        }
    }
}

impl StdError for Denied {}
