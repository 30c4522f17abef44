//! The decision about requests, by the store or the guard, with its receipt and observers.

use std::ops::Range;
use std::pin::Pin;
use std::slice;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::Instrument;

use crate::collected;
use crate::decision::{DIRECT_CALL, Decision, DecisionContext, Denied, Resolution};
use crate::error::OnError;
use crate::failure_policy::apply_policy;
use crate::limiter::planned::{decision_of, enter_instead};
use crate::limiter::{Backend, FastDecision, Inside, Limiter};
use crate::local::StoreTicket;
use crate::request::{CallOptions, CountedReply, PerRequest, Request};
use crate::store::memory::{MemoryReply, MemoryStore};
use crate::{Allowed, Error, Key, Limit, TARGET};

impl Inside {
    /// The options of a call without options of its own.
    pub(crate) fn default_options(&self) -> &CallOptions {
        &self.rules.defaults().options
    }

    /// Applies the failure policy to a call that failed before any request was made, as one with an invalid limit. The
    /// standby limiter cannot decide such a call.
    pub(crate) fn fail_without_request(
        &self,
        context: DecisionContext<'_>,
        error: Error,
        on_error: OnError,
    ) -> Result<Denied, Error> {
        let denied = self.deny_after_failure(context, error, on_error)?;
        self.observers.denied(context, &denied);
        Ok(denied)
    }

    /// Denies a call in this process during a pause, from now until its end by the limiter's clock.
    pub(crate) fn deny_until(&self, context: DecisionContext<'_>, pause: Range<Duration>) -> Denied {
        let mut denied = context.denied_until(pause);
        self.expose_denied_key(&mut denied, context.requests);
        self.observers.denied(context, &denied);
        denied
    }

    /// Applies the failure policy as [`fail_without_request`](Self::fail_without_request) does, and does not call the
    /// observers of denials.
    pub(super) fn deny_after_failure(
        &self,
        context: DecisionContext<'_>,
        error: Error,
        on_error: OnError,
    ) -> Result<Denied, Error> {
        // `Open` denies as well. The invalid limit may come from a caller, such as a plan with 0 calls.
        let _ = self.resolve_by_policy(error, on_error)?;
        let mut denied = context.failed_closed();
        self.expose_denied_key(&mut denied, context.requests);
        Ok(denied)
    }

    /// Decides about one request of a direct call by the memory store. It has no rule, and so no block.
    #[inline(never)]
    pub(super) fn decide_in_memory(&self, store: &MemoryStore, request: &Request<'_>) -> Poll<Result<Decision, Error>> {
        let Inside { observers, limiter_id, .. } = self;
        let mut time = None;
        let decision = |reply: &MemoryReply| {
            time = Some(reply.now);
            Poll::Ready(Ok(Decision::from_unblocked(DIRECT_CALL, request, reply, *limiter_id)))
        };
        let mut ready = store.decide_unblocked(request, 0, decision);
        if let Poll::Ready(Ok(decision)) = &mut ready {
            self.expose_key(decision, slice::from_ref(request));
            observers.decided(DecisionContext::direct(slice::from_ref(request)), decision, time);
        }
        ready
    }

    /// Decides by the failure policy about a call that has no store in this process.
    #[cold]
    pub(super) fn decide_by_policy(
        &self,
        context: DecisionContext<'_>,
        on_error: OnError,
        error: Error,
    ) -> Result<Decision, Error> {
        Ok(context.decision(self.resolve_by_policy(error, on_error)?, None))
    }

    /// Applies the failure policy to a call that has no store and no standby limiter.
    #[cold]
    fn resolve_by_policy(&self, error: Error, on_error: OnError) -> Result<Resolution, Error> {
        apply_policy(&self.observers, error, on_error, |_| None)
    }

    /// Decides about one request to a shared store in this process, if that is possible. Without a receipt, permits that
    /// this process had taken ahead cannot be refunded.
    ///
    /// # Errors
    /// The store has to decide.
    pub(super) fn decide_locally(
        &self,
        name: &'static str,
        request: &Request<'_>,
        options: &CallOptions,
        needs_receipt: bool,
    ) -> Result<Decision, Option<StoreTicket>> {
        let Backend::Guarded(guard) = &self.backend else { return Err(None) };
        let requests = [*request];
        let resolution = guard.decide_locally(&requests, options, needs_receipt).map_err(Some)?;
        let context = DecisionContext { names: &[name], requests: &requests };
        let mut decision = context.decision(resolution, needs_receipt.then(|| self.receipt_terms(options)));
        self.expose_key(&mut decision, &requests);
        self.observers.decided(context, &decision, None);
        Ok(decision)
    }

    /// Decides about one request, if no reply of a shared store is needed.
    ///
    /// # Errors
    /// As for [`try_decide`](Self::try_decide).
    pub(crate) fn try_decide_one<D: FastDecision>(
        &self,
        name: &'static str,
        request: &Request<'_>,
        options: impl FnOnce() -> CallOptions,
    ) -> Result<D, Option<StoreTicket>> {
        let Inside { backend, observers, limiter_id, .. } = self;
        let Backend::Memory(store) = backend else {
            let needs_receipt = D::UNBUILT.is_none() || observers.receive_allowed();
            return self.decide_locally(name, request, &options(), needs_receipt).map(D::from_decision);
        };
        // An `Allowed` that nothing receives is not built.
        let unbuilt = D::UNBUILT.filter(|_| !observers.receive_allowed());
        let fast_reply = |reply: &MemoryReply| match unbuilt {
            Some(unbuilt) if reply.outcome.allowed => Ok((unbuilt, reply.outcome.remaining, reply.now)),
            _ => Err(*reply),
        };
        match store.decide_one(request, 0, fast_reply) {
            Ok((unbuilt, remaining, now)) => {
                observers.allowed_fast(name, request, remaining, now);
                Ok(D::from_unbuilt(unbuilt))
            }
            Err(reply) => {
                let mut decision = Decision::from_memory(name, request, &reply, *limiter_id);
                self.expose_key(&mut decision, slice::from_ref(request));
                let context = DecisionContext { names: &[name], requests: slice::from_ref(request) };
                observers.decided(context, &decision, Some(reply.now));
                Ok(D::from_decision(decision))
            }
        }
    }

    /// Decides about a call that does not wait, and calls the observers. It has a ticket if it was looked up already.
    pub(crate) async fn decide_requests(
        &self,
        context: DecisionContext<'_>,
        options: CallOptions,
        ticket: Option<StoreTicket>,
    ) -> Result<Decision, Error> {
        let wants_limits = self.wants_limits(context, &options);
        let resolution = self.resolve(context, options, ticket).await?;
        let mut decision = self.decision(context, resolution, wants_limits, &options);
        self.expose_key(&mut decision, context.requests);
        self.report(context, &mut decision);
        Ok(decision)
    }

    /// Calls the observers of a decision: once for each request of an allowed one.
    #[inline(always)]
    pub(super) fn report(&self, context: DecisionContext<'_>, decision: &mut Decision) {
        self.observers.decided_each(context, decision, |allowed| self.reports(context, allowed));
    }

    #[cold]
    #[inline(never)]
    fn reports(&self, context: DecisionContext<'_>, allowed: &mut Allowed) -> Vec<Allowed> {
        let mut reports = context.reports(allowed);
        if self.exposes_keys {
            for (index, report) in reports.iter_mut().enumerate() {
                if let Some(key) = self.exposed_key(context.requests, index) {
                    report.set_key(key);
                }
            }
        }
        reports
    }

    /// Returns whether the store must report each request of a call.
    pub(super) fn wants_reports(&self, context: DecisionContext<'_>, options: &CallOptions) -> bool {
        let has_several = context.requests.len() > 1;
        context.has_observed() || has_several && (self.observers.want_reports() || self.wants_limits(context, options))
    }

    /// Returns whether the caller of a decision about several requests has asked for the limit of each.
    #[inline]
    pub(super) fn wants_limits(&self, context: DecisionContext<'_>, options: &CallOptions) -> bool {
        context.requests.len() > 1 && (options.wants_reports || collected::is_collecting())
    }

    /// Returns the decision with its receipt, and with all limits of the call if its caller wants them.
    pub(super) fn decision(
        &self,
        context: DecisionContext<'_>,
        resolution: Resolution,
        wants_limits: bool,
        options: &CallOptions,
    ) -> Decision {
        let terms = Some(self.receipt_terms(options));
        if !wants_limits {
            return context.decision(resolution, terms);
        }
        let reports = resolution.reports();
        let mut decision = context.decision(resolution, terms);
        self.add_limits(context, &mut decision, reports.as_deref());
        decision
    }

    #[cold]
    #[inline(never)]
    fn add_limits(&self, context: DecisionContext<'_>, decision: &mut Decision, reports: Option<&PerRequest>) {
        let key_of = |index| if self.exposes_keys { self.exposed_key(context.requests, index) } else { None };
        let limits = reports.and_then(|per_request| context.limit_states(&per_request.reports, key_of));
        if let Some(limits) = limits {
            decision.set_limits(limits);
        }
    }

    /// Takes the permits from the store, or applies the failure policy.
    pub(super) async fn resolve(
        &self,
        context: DecisionContext<'_>,
        options: CallOptions,
        ticket: Option<StoreTicket>,
    ) -> Result<Resolution, Error> {
        let Inside { backend, observers, .. } = self;
        let requests = context.requests;
        let wants_reports = self.wants_reports(context, &options);
        match backend {
            Backend::Memory(store) if wants_reports => Ok(Resolution::Counted(store.decide_with_reports(requests))),
            Backend::Memory(store) => {
                let reply = store.decide_within(requests, options.max_wait);
                Ok(Resolution::Counted(CountedReply::from_store(reply, 0)))
            }
            _ if requests.is_empty() => Ok(Resolution::FailedOpen),
            Backend::Guarded(guard) => {
                let rule = context.names.first().copied();
                let span = tracing::trace_span!(target: TARGET, "decide", rule);
                let options = CallOptions { wants_reports, ..options };
                guard.decide(requests, options, ticket, observers).instrument(span).await
            }
        }
    }

    /// Decides without taking permits and without calling the observers.
    pub(super) async fn peek_once(
        &self,
        context: DecisionContext<'_>,
        options: CallOptions,
    ) -> Result<Decision, Error> {
        let options = CallOptions { wants_reports: self.wants_limits(context, &options), ..options };
        let resolution = match &self.backend {
            Backend::Memory(store) => Resolution::Counted(store.peek_with_options(context.requests, &options)),
            Backend::Guarded(guard) => guard.peek(context.requests, options, &self.observers).await?,
        };
        let reports = options.wants_reports.then(|| resolution.reports()).flatten();
        let mut decision = context.decision(resolution, None);
        self.add_limits(context, &mut decision, reports.as_deref());
        self.expose_key(&mut decision, context.requests);
        Ok(decision)
    }

    /// Adds its key to a decision, if the limiter exposes keys.
    #[inline]
    pub(super) fn expose_key(&self, decision: &mut Decision, requests: &[Request<'_>]) {
        if self.exposes_keys
            && let Some(key) = self.exposed_key(requests, decision.request_index())
        {
            decision.set_key(key);
        }
    }

    /// Adds its key to a denial, if the limiter exposes keys.
    #[inline]
    pub(super) fn expose_denied_key(&self, denied: &mut Denied, requests: &[Request<'_>]) {
        if self.exposes_keys
            && let Some(key) = self.exposed_key(requests, denied.request_index())
        {
            denied.set_key(key);
        }
    }

    /// Returns the key of a request as users see it: as it is in the names of a shared store.
    #[cold]
    #[inline(never)]
    fn exposed_key(&self, requests: &[Request<'_>], index: usize) -> Option<String> {
        // Decisions do not distinguish higher indices.
        let Request { key, .. } = requests.get(index).filter(|_| index < usize::from(u16::MAX))?;
        Some(match &self.backend {
            Backend::Memory(_) => key.encoded(),
            Backend::Guarded(guard) => guard.subject(key),
        })
    }
}

// The future that `check` and `check_n` return.

/// The future of a decision about one request. A store in memory decides at its first poll.
///
/// It is a type because each `async fn` moves the output of the future that it awaits. Moving a decision takes as long
/// as making it.
pub(super) struct CheckFuture<'a> {
    pub(super) limiter: &'a Limiter,
    pub(super) key: &'a Key,
    pub(super) limit: &'a Limit,
    pub(super) cost: u32,
    /// The decision of a shared store, from the first poll on.
    pub(super) inner: Option<DecisionFuture<'a>>,
    /// A decision was returned. A later poll takes no permits again.
    pub(super) is_done: bool,
}

pub(super) type DecisionFuture<'a> = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send + Sync + 'a>>;

impl<'a> CheckFuture<'a> {
    #[inline]
    fn request(&self) -> Request<'a> {
        Request::new(self.key, *self.limit, self.cost)
    }

    #[inline(never)]
    fn poll_boxed(&mut self, context: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        let (limiter, request) = (self.limiter.inside(), self.request());
        let inner = match &mut self.inner {
            Some(inner) => inner,
            inner => {
                // A decision in this process costs no allocation, so a flood of denied calls is cheap here as well. Only a
                // switch of modes makes a plan of the call.
                let rules = &limiter.rules;
                let plan = rules.switch().map(|_| rules.plan_direct(DIRECT_CALL, &[request]));
                let tried = match &plan {
                    None => limiter.decide_locally(DIRECT_CALL, &request, limiter.default_options(), true),
                    Some(plan) => limiter.try_decide(plan),
                };
                let ticket = match tried {
                    Ok(decision) => {
                        self.is_done = true;
                        return Poll::Ready(Ok(decision));
                    }
                    Err(ticket) => ticket,
                };
                inner.insert(match plan {
                    None => Box::pin(async move {
                        let options = *limiter.default_options();
                        limiter.decide_requests(DecisionContext::direct(&[request]), options, ticket).await
                    }),
                    Some(plan) => Box::pin(async move { limiter.decide(&plan, ticket).await.map(decision_of) }),
                })
            }
        };
        let decision = inner.as_mut().poll(context);
        self.is_done = decision.is_ready();
        decision
    }
}

impl Future for CheckFuture<'_> {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_done {
            return Poll::Pending;
        }
        if self.limit.is_concurrent() {
            self.is_done = true;
            return Poll::Ready(Err(enter_instead()));
        }
        let inside = self.limiter.inside();
        match &inside.backend {
            Backend::Memory(store) if inside.rules.switch().is_none() => {
                self.is_done = true;
                inside.decide_in_memory(store, &self.request())
            }
            _ => self.poll_boxed(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_after_ready_takes_no_permit() {
        let (limiter, key, limit) = (Limiter::memory(), Key::new("a"), Limit::WIDEST);
        let mut check =
            CheckFuture { limiter: &limiter, key: &key, limit: &limit, cost: 1, inner: None, is_done: false };
        let mut poll = || Pin::new(&mut check).poll(&mut Context::from_waker(std::task::Waker::noop()));
        assert!(poll().is_ready());
        assert!(poll().is_pending());
    }

    /// The caller moves both for each decision.
    #[test]
    fn a_decision_and_its_future_are_small() {
        let (future, decision) = (size_of::<CheckFuture<'_>>(), size_of::<Poll<Result<Decision, Error>>>());
        assert!(future <= 48 && decision <= 120, "{future} and {decision} bytes");
    }
}
