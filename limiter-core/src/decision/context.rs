//! The conversion of a store's replies into decisions, and into the reports of their requests.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::limits::LimitStates;
use super::receipt::{Claim, ReceiptTerms};
use super::{Allowed, AllowedExtras, Decision, Denied, Details, Rare};
use crate::Limit;
use crate::clock::ceil_micros;
use crate::error::Source;
use crate::local::LocalGrant;
use crate::request::{CountedReply, OwnedRequest, PerRequest, Request, RequestReport, Role, StoreReply, sharing};

/// The result of a call, before it becomes a decision.
#[derive(Debug)]
pub(crate) enum Resolution {
    /// Counted by the store or by the standby limiter, or denied from the denial cache.
    Counted(CountedReply),
    /// Allowed by permits that this process had taken ahead.
    Granted(LocalGrant),
    /// Allowed by a failure policy, without a count.
    FailedOpen,
    /// Denied by a failure policy, without a count.
    FailedClosed,
}

/// The requests of one decision, and the names of the rules they come from.
#[derive(Clone, Copy)]
pub(crate) struct DecisionContext<'a> {
    /// One name for each request, or one for all.
    pub(crate) names: &'a [&'static str],
    /// Observed ones come last: they are of rules in shadow mode, and the store evaluates them in the same decision.
    pub(crate) requests: &'a [Request<'a>],
}

/// The rule name in decisions of direct calls.
pub(crate) const DIRECT_CALL: &str = "check";

impl Resolution {
    /// The reports of the requests, if the caller has asked for them.
    pub(crate) fn reports(&self) -> Option<Arc<PerRequest>> {
        if let Self::Counted(counted) = self { counted.per_request.clone() } else { None }
    }
}

impl<'a> DecisionContext<'a> {
    #[inline]
    pub(crate) fn new(names: &'a [&'static str], requests: &'a [Request<'a>]) -> Self {
        Self { names, requests }
    }

    /// The context of a direct call.
    pub(crate) fn direct(requests: &'a [Request<'a>]) -> Self {
        Self::new(&[DIRECT_CALL], requests)
    }

    /// Returns it with these requests in place of its own, if there are any: its own, and observed ones.
    pub(crate) fn with_observed(self, requests: Option<&'a [Request<'a>]>) -> Self {
        Self { requests: requests.unwrap_or(self.requests), ..self }
    }

    /// Returns whether the store observes any of the requests.
    #[inline]
    pub(crate) fn has_observed(&self) -> bool {
        self.requests.last().is_some_and(|request| request.role.is_observed())
    }

    /// The requests that are not observed.
    #[inline]
    pub(crate) fn enforced(&self) -> &'a [Request<'a>] {
        if self.has_observed() { &self.requests[..sharing::enforced(self.requests)] } else { self.requests }
    }
}

impl DecisionContext<'_> {
    /// Converts a resolution into a decision. An allowed one has a receipt if its terms are given.
    pub(crate) fn decision(&self, resolution: Resolution, terms: Option<ReceiptTerms>) -> Decision {
        let counted = &match resolution {
            Resolution::Counted(counted) => counted,
            Resolution::Granted(grant) => return self.granted(grant, terms),
            Resolution::FailedOpen => return self.failed_open(),
            Resolution::FailedClosed => return Decision::Denied(self.failed_closed()),
        };
        let requests = || match &counted.requests {
            Some(copied) if self.requests.iter().all(|request| request.role == Role::ADDED) => Arc::clone(copied),
            _ => OwnedRequest::copy_taken(self.enforced()),
        };
        let receipt = || terms.map(|terms| Claim::new(terms, requests(), counted.refund_info(), self.names));
        self.counted_decision(counted, receipt)
    }

    /// The decision about requests that were observed, by the reply about each. It has no receipt.
    pub(crate) fn observed_decision(&self, replies: &[StoreReply], source: Source) -> Decision {
        let indexed = |(request_index, reply): (usize, &StoreReply)| StoreReply { request_index, ..*reply };
        let replies: Vec<_> = replies.iter().enumerate().map(indexed).collect();
        let counted = CountedReply { source, ..CountedReply::from_store(StoreReply::merged(&replies), 0) };
        self.counted_decision(&counted, || None)
    }

    /// The limits of the call after a decision with these reports, each with the key that `key_of` returns for the index of
    /// its request. `None` if there is one limit, which the decision itself describes.
    pub(crate) fn limit_states(
        &self,
        reports: &[RequestReport],
        key_of: impl Fn(usize) -> Option<String>,
    ) -> Option<LimitStates> {
        let state = |(index, &RequestReport { remaining, reset_after }): (usize, &RequestReport)| {
            let details = Details { remaining, reset_after: ceil_micros(reset_after), ..self.details(index) };
            (details.limit_state(None), key_of(index))
        };
        (reports.len() > 1).then(|| reports.iter().enumerate().map(state).collect())
    }

    /// Removes the reports of an allowed decision, and returns them for observers: one for each of several requests, in
    /// their order, without a receipt. Returns none for one request, which the decision itself reports.
    pub(crate) fn reports(&self, allowed: &mut Allowed) -> Vec<Allowed> {
        if self.enforced().len() < 2 {
            return Vec::new();
        }
        let Details { source, is_shadow, decided_at, .. } = allowed.details;
        let report = |index, &RequestReport { remaining, reset_after }: &_, decided_at| {
            let reset_after = ceil_micros(reset_after);
            let details = Details { remaining, reset_after, decided_at, source, is_shadow, ..self.details(index) };
            Allowed { details, receipt: None, extras: Rare::NONE }
        };
        let reported = allowed.extras.get_mut().and_then(|extras| extras.reported.take());
        match (&reported, source) {
            (Some(reported), _) => {
                let decided_at = |index| reported.stamps.get(index).copied().unwrap_or(decided_at);
                let reports = (0..).zip(&reported.reports);
                reports.map(|(index, values)| report(index, values, decided_at(index))).collect()
            }
            // Nothing was counted.
            (None, Source::Policy) => {
                (0..self.enforced().len()).map(|index| report(index, &RequestReport::default(), 0)).collect()
            }
            (None, _) => Vec::new(),
        }
    }

    #[inline]
    fn counted_decision(&self, counted: &CountedReply, receipt: impl FnOnce() -> Option<Claim>) -> Decision {
        let &CountedReply { ref reply, source, .. } = counted;
        let &StoreReply { remaining, stamp: decided_at, request_index, .. } = reply;
        let reset_after = ceil_micros(reply.reset_after);
        let details = Details { remaining, reset_after, decided_at, source, ..self.details(request_index) };
        if reply.allowed {
            let for_reports = |per_request| AllowedExtras::for_reports(per_request, self.has_observed());
            let extras = counted.per_request.as_ref().map(for_reports).unwrap_or_default();
            Decision::Allowed(Allowed { details, receipt: receipt(), extras })
        } else {
            let retry_after = reply.retry_after.map(ceil_micros);
            Decision::Denied(match retry_after {
                Some(retry_after) if reply.is_blocked => Denied::blocked(details, retry_after),
                retry_after => Denied::new(details, retry_after),
            })
        }
    }

    /// The decision about a single request whose permits this process had taken ahead.
    #[inline]
    fn granted(&self, grant: LocalGrant, terms: Option<ReceiptTerms>) -> Decision {
        let LocalGrant { remaining, reset_after, decided_at, token, .. } = grant;
        let cost = self.requests.first().map_or(0, |request| request.cost);
        let receipt = terms.zip(token).map(|(terms, token)| Claim::for_grant(terms, token, cost));
        let details = Details { remaining, reset_after, decided_at, source: LocalGrant::SOURCE, ..self.details(0) };
        Decision::Allowed(Allowed { details, receipt, extras: Rare::NONE })
    }

    /// The decision of a policy that fails open. A call that costs more than its limit ever allows is denied all the
    /// same.
    fn failed_open(&self) -> Decision {
        let is_impossible = |request: &Request<'_>| request.cost > request.limit.burst();
        match self.enforced().iter().position(is_impossible) {
            Some(index) => Decision::Denied(Denied::new(self.details(index), None)),
            None => Decision::Allowed(Allowed { details: self.details(0), receipt: None, extras: Rare::NONE }),
        }
    }

    /// The denial of a policy that fails closed.
    pub(crate) fn failed_closed(&self) -> Denied {
        let details = self.details(0);
        let retry_after =
            Some(ceil_micros(Duration::from_millis(details.limit.window_millis()).min(Duration::from_secs(1))));
        Denied::new(details, retry_after)
    }

    /// The denial of a call that may be sent after a pause, from now until its end.
    pub(crate) fn denied_until(&self, pause: Range<Duration>) -> Denied {
        let (now, end) = (ceil_micros(pause.start), ceil_micros(pause.end));
        let (source, retry_after) = (Source::DeniedUntil, end.saturating_sub(now));
        let details = Details { source, reset_after: retry_after, decided_at: now, ..self.details(0) };
        Denied::new(details, Some(retry_after))
    }

    /// The final denial of a rule that denies every call.
    pub(crate) fn denied_by_mode(&self) -> Denied {
        Denied::new(Details { source: Source::Mode, ..self.details(0) }, None)
    }

    /// The name of a request's rule.
    #[inline]
    pub(crate) fn name_of(&self, request_index: usize) -> &'static str {
        self.names.get(request_index).or(self.names.first()).copied().unwrap_or_default()
    }

    /// The details of a request that no store has replied to.
    #[inline]
    fn details(&self, request_index: usize) -> Details {
        let name = self.name_of(request_index);
        let limit = self.requests.get(request_index).map_or(Limit::WIDEST, |request| request.limit);
        let request_index = u16::try_from(request_index).unwrap_or(u16::MAX);
        Details::of_request(name, request_index, limit)
    }
}
