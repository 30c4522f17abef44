//! The decision about a call: allowed or denied, with its details.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Limit;
use crate::algorithm::Outcome;
use crate::clock::ceil_micros;
use crate::error::{OnError, Source};
use crate::request::{OwnedRequest, PerRequest, RefundInfo, Request, RequestReport};
use crate::store::memory::MemoryReply;

mod context;
mod limits;
mod rare;
pub(crate) mod receipt;

pub(crate) use context::{DIRECT_CALL, DecisionContext, Resolution};
pub use limits::LimitState;
use limits::LimitStates;
use rare::Rare;
use receipt::{Claim, LimiterId, ReceiptTerms};

macro_rules! detail_getters {
    () => {
        /// The rule's name: an attribute's `name`, or `check` for a direct call.
        #[must_use]
        pub fn name(&self) -> &str {
            self.details().name
        }

        /// The limit that the decision describes: of several, the first that denied, or the one with the least permits
        /// left.
        #[must_use]
        pub fn limit(&self) -> Limit {
            self.details().limit
        }

        /// The encoded key that the decision describes, such as `user:@42`; `None` unless the limiter
        /// [exposes keys](crate::Builder::expose_keys).
        ///
        /// It is the key of the request of [`limit`](Self::limit). [`Key::from_encoded`](crate::Key::from_encoded) reads
        /// it. With [`hash_keys`](crate::Builder) it is the digest that Redis has. A call without any limit in force has
        /// none. Neither `Debug` nor `Display` contains it.
        #[must_use]
        pub fn key(&self) -> Option<&str> {
            self.exposed_key()
        }

        /// Permits left in the window now; 0 if a failure policy decided, and all of them if the rule is
        /// [off](crate::Mode::Off).
        #[must_use]
        pub fn remaining(&self) -> u32 {
            self.details().remaining
        }

        /// The time until all permits are available again, without further calls; zero if a failure policy decided.
        #[must_use]
        pub fn reset_after(&self) -> Duration {
            Duration::from_micros(self.details().reset_after)
        }

        /// The part of the limiter that decided.
        #[must_use]
        pub fn source(&self) -> Source {
            self.details().source
        }
    };
}

mod denied;

pub use denied::Denied;

/// The decision about a call: allowed or denied. A denial is a value, not an error.
#[must_use = "an unused decision limits nothing"]
#[derive(Clone, Debug)]
pub enum Decision {
    /// The permits were taken, and the call may run.
    Allowed(Allowed),
    /// Nothing was taken, and the call must not run.
    Denied(Denied),
}

impl Decision {
    /// Returns `true` if the permits were taken.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Returns `true` if the limit is reached.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied(_))
    }

    detail_getters!();

    fn details(&self) -> &Details {
        match self {
            Self::Allowed(allowed) => allowed.details(),
            Self::Denied(denied) => denied.details(),
        }
    }

    fn exposed_key(&self) -> Option<&str> {
        match self {
            Self::Allowed(allowed) => allowed.exposed_key(),
            Self::Denied(denied) => denied.exposed_key(),
        }
    }

    /// The denial of a call whose wait has timed out.
    ///
    /// If there are permits now, earlier waiters are ahead of the call. `retry_after` is then the time until the first
    /// of them is expected to take its permits.
    pub(crate) fn into_timed_out(self, retry_after: Duration) -> Denied {
        match self {
            Self::Allowed(allowed) => {
                let description = allowed.description().cloned().map(Rare::new).unwrap_or_default();
                Denied::new(allowed.details, Some(ceil_micros(retry_after))).with_description(description)
            }
            Self::Denied(denied) => denied,
        }
    }

    /// The index of the request that the decision describes.
    pub(crate) fn request_index(&self) -> usize {
        match self {
            Self::Allowed(allowed) => allowed.details.request_index.into(),
            Self::Denied(denied) => denied.request_index(),
        }
    }

    /// The instant that is this long after the decision: the time since 1970, by the store's clock. Decisions that state
    /// the same event in other words, such as denials until one permit is back, name the same instant.
    pub(crate) fn instant_after(&self, time: Duration) -> Duration {
        Duration::from_micros(self.details().decided_at).saturating_add(time)
    }

    /// Marks the decision as that of a rule in shadow mode.
    pub(crate) fn in_shadow(mut self) -> Self {
        match &mut self {
            Self::Allowed(Allowed { details, .. }) | Self::Denied(Denied { details, .. }) => details.is_shadow = true,
        }
        self
    }

    /// Adds the key that the decision describes, in the form that users see.
    pub(crate) fn set_key(&mut self, encoded: String) {
        match self {
            Self::Allowed(allowed) => allowed.set_key(encoded),
            Self::Denied(denied) => denied.set_key(encoded),
        }
    }

    /// The decision as a `Result`, for `?`.
    ///
    /// # Errors
    /// The [`Denied`] of a denied call.
    pub fn into_result(self) -> Result<Allowed, Denied> {
        match self {
            Self::Allowed(allowed) => Ok(allowed),
            Self::Denied(denied) => Err(denied),
        }
    }
}

impl From<Allowed> for Decision {
    fn from(allowed: Allowed) -> Self {
        Self::Allowed(allowed)
    }
}

impl From<Denied> for Decision {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

/// The permits of an allowed call, and the receipt for a [refund](crate::Limiter::refund) of them.
///
/// [Observers](crate::Builder::on_allowed) of a call that several rules allow get one for each rule, as a report: it is
/// no receipt. It holds no permits, and a refund of it does nothing.
#[derive(Clone)]
pub struct Allowed {
    details: Details,
    /// `None` if there is nothing to refund.
    receipt: Option<Claim>,
    /// None unless a rule was in shadow mode, the limiter exposes keys, or there are several reports.
    extras: Rare<AllowedExtras>,
}

/// The parts of a description that most decisions do not have.
#[derive(Clone, Default)]
struct Description {
    /// The encoded key, if the limiter exposes keys.
    key: Option<String>,
    /// The limits of the call, if there are several and the caller has asked for all.
    limits: LimitStates,
}

/// The parts of an allowed decision that most decisions do not have.
#[derive(Clone, Default)]
struct AllowedExtras {
    description: Description,
    /// The first denial of a rule in shadow mode.
    shadowed: Option<Denied>,
    /// The receipts of rules in shadow mode, each with the rule that its decision describes.
    shadow_receipts: Vec<(Claim, &'static str)>,
    /// The data with the report of each request, until the observers get them.
    reported: Option<Arc<PerRequest>>,
    /// The data with the replies about observed requests, until the decisions about their rules are made.
    observed: Option<Arc<PerRequest>>,
}

impl AllowedExtras {
    /// The extras of a decision whose requests are reported one by one. None if there are no reports.
    #[cold]
    fn for_reports(per_request: &Arc<PerRequest>, has_observed: bool) -> Rare<Self> {
        if per_request.reports.is_empty() {
            return Rare::NONE;
        }
        let observed = has_observed.then(|| Arc::clone(per_request));
        Rare::new(Self { reported: Some(Arc::clone(per_request)), observed, ..Self::default() })
    }
}

/// The details that both decisions share. Kept small, because a decision is moved a few times before it is returned.
#[derive(Clone, Copy)]
struct Details {
    name: &'static str,
    /// The request of the decision that the details describe. Higher indices count as `u16::MAX`.
    request_index: u16,
    limit: Limit,
    remaining: u32,
    /// Microseconds.
    reset_after: u64,
    /// The time of the decision, in microseconds of the store's clock; 0 if nothing was counted.
    decided_at: u64,
    source: Source,
    /// The rule is in shadow mode.
    is_shadow: bool,
}

impl Allowed {
    detail_getters!();

    fn details(&self) -> &Details {
        &self.details
    }

    /// Returns whether the limit that the decision describes is enforced.
    ///
    /// `false` if every rule of the call is in [shadow mode](crate::Mode::Shadow), is off or has no limit. Headers for
    /// clients should describe enforced limits only.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        !self.details.is_shadow && self.details.source != Source::Mode
    }

    /// Returns whether all rules of the call are in shadow mode.
    pub(crate) fn is_shadow(&self) -> bool {
        self.details.is_shadow
    }

    /// The denial of a rule in [shadow mode](crate::Mode::Shadow), which was not enforced: of several rules, the first.
    #[must_use]
    pub fn shadowed(&self) -> Option<&Denied> {
        self.extras.get()?.shadowed.as_ref()
    }

    /// Adds the key that the decision describes, in the form that users see.
    pub(crate) fn set_key(&mut self, encoded: String) {
        self.extras.get_or_insert_default().description.key = Some(encoded);
    }

    /// The name that lives until the process ends.
    pub(crate) fn static_name(&self) -> &'static str {
        self.details.name
    }

    /// The permits left of each of several requests. Empty once the observers have got them.
    pub(crate) fn request_reports(&self) -> &[RequestReport] {
        let reported = self.extras.get().and_then(|extras| extras.reported.as_ref());
        reported.map_or(&[], |per_request| &per_request.reports)
    }

    /// Removes the reports that no observer gets.
    pub(crate) fn discard_reports(&mut self) {
        if let Some(extras) = self.extras.get_mut() {
            extras.reported = None;
        }
    }

    /// Removes and returns the replies about observed requests. `None` if no store has evaluated them.
    pub(crate) fn take_observed(&mut self) -> Option<Arc<PerRequest>> {
        self.extras.get_mut()?.observed.take()
    }

    /// The time at which the permits of its counter were taken, in microseconds of the store's clock.
    pub(crate) fn decided_at(&self) -> u64 {
        self.details.decided_at
    }

    fn description(&self) -> Option<&Description> {
        Some(&self.extras.get()?.description)
    }

    fn exposed_key(&self) -> Option<&str> {
        self.description()?.key.as_deref()
    }

    /// The decision about a call whose rules are off or have no limit.
    pub(crate) fn without_limit(name: &'static str, limit: Limit, source: Source) -> Self {
        let remaining = limit.max_cost();
        let (reset_after, decided_at) = (0, 0);
        let details = Details { remaining, reset_after, decided_at, source, ..Details::of_request(name, 0, limit) };
        Self { details, receipt: None, extras: Rare::NONE }
    }

    /// The decision about a call whose only rule is in shadow mode: the call is allowed.
    pub(crate) fn from_shadow_decision(decision: Decision) -> Self {
        match decision {
            Decision::Allowed(allowed) => allowed,
            Decision::Denied(denied) => {
                let (details, description) = (denied.details, denied.description().cloned().unwrap_or_default());
                let extras = AllowedExtras { description, shadowed: Some(denied), ..AllowedExtras::default() };
                Self { details, receipt: None, extras: Rare::new(extras) }
            }
        }
    }

    /// Adds the decision about a further rule, which is in shadow mode.
    pub(crate) fn with_shadow_decision(mut self, decision: Decision) -> Self {
        let extras = self.extras.get_or_insert_default();
        match decision {
            Decision::Allowed(Allowed { details, receipt, .. }) => {
                extras.shadow_receipts.extend(receipt.map(|receipt| (receipt, details.name)));
            }
            Decision::Denied(denied) => {
                extras.shadowed.get_or_insert(denied);
            }
        }
        self
    }
}

impl Decision {
    /// The decision from the memory store's reply to a single request.
    #[inline]
    pub(crate) fn from_memory(
        name: &'static str,
        request: &Request<'_>,
        reply: &MemoryReply,
        limiter_id: LimiterId,
    ) -> Self {
        match reply.outcome.retry_at {
            Some(at) if reply.is_blocked => {
                Self::Denied(Denied::blocked(Details::from_memory(name, request, reply), reply.until(at)))
            }
            _ => Self::from_unblocked(name, request, reply, limiter_id),
        }
    }

    /// The decision from the memory store's reply to a single request whose key is not blocked. It is small, so that each
    /// end of a check has one of its own.
    #[inline]
    pub(crate) fn from_unblocked(
        name: &'static str,
        request: &Request<'_>,
        reply: &MemoryReply,
        limiter_id: LimiterId,
    ) -> Self {
        let details = Details::from_memory(name, request, reply);
        let Outcome { allowed, retry_at, .. } = reply.outcome;
        if !allowed {
            return Self::Denied(Denied::new(details, retry_at.map(|at| reply.until(at))));
        }
        let receipt = Some(match reply.entry {
            Some(entry) => Claim::for_memory_entry(limiter_id, entry, request.cost),
            None => Self::claim_of_shared(name, request, details.decided_at, limiter_id),
        });
        Self::Allowed(Allowed { details, receipt, extras: Rare::NONE })
    }

    /// The claim of a request that was counted in a shared counter.
    #[cold]
    #[inline(never)]
    fn claim_of_shared(name: &'static str, request: &Request<'_>, decided_at: u64, limiter_id: LimiterId) -> Claim {
        Claim::new(
            ReceiptTerms { limiter_id, on_error: OnError::default(), deadline: None },
            OwnedRequest::copy_all(&[*request]),
            RefundInfo::from_store(decided_at),
            &[name],
        )
    }
}

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.details.debug(&mut f.debug_struct("Allowed")).finish()
    }
}

impl Details {
    /// The details of the memory store's reply to a single request.
    #[inline]
    fn from_memory(name: &'static str, request: &Request<'_>, reply: &MemoryReply) -> Self {
        let Outcome { remaining, reset_at, .. } = reply.outcome;
        let (reset_after, decided_at) = (reply.until(reset_at), reply.now.micros());
        let (request_index, limit, source, is_shadow) = (0, request.limit, Source::Store, false);
        Self { name, request_index, limit, remaining, reset_after, decided_at, source, is_shadow }
    }

    /// The details of a request that nothing has decided.
    #[inline]
    fn of_request(name: &'static str, request_index: u16, limit: Limit) -> Self {
        let (remaining, reset_after, decided_at) = (0, 0, 0);
        let (source, is_shadow) = (Source::Policy, false);
        Self { name, request_index, limit, remaining, reset_after, decided_at, source, is_shadow }
    }

    fn debug<'a, 'b, 'c>(&self, debug: &'c mut fmt::DebugStruct<'a, 'b>) -> &'c mut fmt::DebugStruct<'a, 'b> {
        let Self { name, request_index: _, limit, remaining, reset_after, decided_at: _, source, is_shadow: _ } = self;
        debug
            .field("name", name)
            .field("limit", limit)
            .field("remaining", remaining)
            .field("reset_after", &Duration::from_micros(*reset_after))
            .field("source", source)
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests;
