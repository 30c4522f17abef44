//! The answer to a call that was decided.

use std::sync::Arc;
use std::time::Duration;

use rate_limited::{Decision, Limit, Receipt, Source};

/// The answer to a call that was decided: allowed or denied.
#[derive(Debug)]
pub(crate) struct Answer {
    decision: Decision,
    /// The cost that was taken or denied.
    cost: u32,
    /// The limit that stands for none in the decision.
    no_limit: Limit,
    receipt: Option<Receipt>,
    slot: Option<SlotAnswer>,
}

/// The slot of a call that has entered.
#[derive(Clone, Debug)]
pub(crate) struct SlotAnswer {
    /// Its text, by which it is renewed and left.
    pub(crate) id: Arc<str>,
    /// The time after which it ends, unless it is renewed.
    pub(crate) ttl: Duration,
}

/// One limit of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitAnswer<'a> {
    /// The name of its rule.
    pub(crate) rule: &'a str,
    pub(crate) limit: Limit,
    pub(crate) remaining: u32,
    /// The time until this limit allows the call; zero if it does. `None` for never.
    pub(crate) retry_after: Option<Duration>,
    /// The time until all of its permits are free.
    pub(crate) reset_after: Duration,
}

impl Answer {
    pub(super) fn new(decision: Decision, cost: u32, no_limit: Limit) -> Self {
        Self { decision, cost, no_limit, receipt: None, slot: None }
    }

    pub(super) fn with_receipt(self, receipt: Receipt) -> Self {
        Self { receipt: Some(receipt), ..self }
    }

    pub(super) fn with_slot(self, slot: SlotAnswer) -> Self {
        Self { slot: Some(slot), ..self }
    }

    /// Returns whether the call may run.
    pub(crate) fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// The rule of the limit that the decision describes; `check` for limits of the caller.
    pub(crate) fn rule(&self) -> &str {
        self.decision.name()
    }

    /// The part of the limiter that decided.
    pub(crate) fn source(&self) -> Source {
        self.decision.source()
    }

    /// The time until a denied call would be allowed; zero for an allowed one. `None` for never.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match &self.decision {
            Decision::Allowed(_) => Some(Duration::ZERO),
            Decision::Denied(denied) => (!denied.is_final()).then(|| denied.retry_after()),
        }
    }

    /// Returns whether a block of the key denied the call.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(&self.decision, Decision::Denied(denied) if denied.is_blocked())
    }

    /// Returns whether a rule in shadow mode would have denied the call, which was allowed.
    pub(crate) fn is_shadowed(&self) -> bool {
        matches!(&self.decision, Decision::Allowed(allowed) if allowed.shadowed().is_some())
    }

    /// The limits that decided, each with its own numbers. None if a mode decided without one.
    ///
    /// A denial knows the time of the limit that denied first. Of another one that lacks permits it is the time until all of
    /// them are free, which may be later than needed.
    pub(crate) fn limits(&self) -> impl Iterator<Item = LimitAnswer<'_>> {
        let (decision, cost, denied_limit) = (&self.decision, self.cost, self.decision.limit());
        let retry_after = self.retry_after();
        let of_denied = move |limit: Limit, rule: &str| limit == denied_limit && rule == decision.name();
        let limits = decision.limits().filter(|state| state.limit() != self.no_limit);
        limits.map(move |state| LimitAnswer {
            rule: state.name(),
            limit: state.limit(),
            remaining: state.remaining(),
            retry_after: match decision {
                Decision::Denied(_) if of_denied(state.limit(), state.name()) => retry_after,
                Decision::Denied(_) if state.remaining() < cost => Some(state.reset_after()),
                _ => Some(Duration::ZERO),
            },
            reset_after: state.reset_after(),
        })
    }

    /// The decision, for the fields of HTTP.
    pub(crate) fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The receipt by which the call is settled or refunded.
    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }

    /// The slot that the call holds.
    pub(crate) fn slot(&self) -> Option<&SlotAnswer> {
        self.slot.as_ref()
    }
}

/// Returns a duration in milliseconds, rounded up.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
