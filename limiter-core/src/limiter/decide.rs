//! The decision about requests, by the store or the guard, with its receipt and observers.

use std::slice;
use std::task::Poll;
use std::time::Duration;

use crate::Error;
use crate::decision::{DIRECT_CALL, Decision, DecisionContext, Denied};
use crate::limiter::{Backend, Limiter, LimiterInner};
use crate::on_error::OnError;
use crate::request::{CallOptions, CountedReply, Request, Resolution};
use crate::rule::RuleOverrides;
use crate::store::memory::{MemoryReply, MemoryStore};
use crate::sync::process::forked;

impl Limiter {
    pub(crate) fn rule_overrides(&self) -> &RuleOverrides {
        &self.inner.rules
    }

    /// The options of a call without options of its own.
    pub(crate) fn default_options(&self) -> CallOptions {
        CallOptions { on_error: self.inner.on_error, max_wait: Duration::ZERO, deadline: None }
    }

    /// Decides about an annotated call, which may wait up to `max_wait`. Returns the denial if it is denied.
    pub(crate) async fn decide_or_wait(
        &self,
        context: DecisionContext<'_>,
        options: CallOptions,
        max_wait: Duration,
    ) -> Result<Option<Denied>, Error> {
        let decision = if max_wait.is_zero() {
            self.decide(context, options).await?
        } else {
            self.decide_waiting(context, options, max_wait).await?
        };
        Ok(decision.into_result().err())
    }

    /// Applies the failure policy to a call that failed before any request was made, as one with an invalid limit. The
    /// standby limiter cannot decide such a call.
    pub(crate) fn fail_without_request(
        &self,
        context: DecisionContext<'_>,
        error: Error,
        on_error: OnError,
    ) -> Result<Option<Denied>, Error> {
        let observers = &self.inner.observers;
        observers.failed(&error);
        match on_error {
            OnError::Raise => Err(error),
            // `Open` denies as well. The invalid limit may come from a caller, such as a plan with 0 calls.
            OnError::Open | OnError::Closed | OnError::Standby => {
                let denied = context.failed_closed();
                observers.denied(&denied);
                Ok(Some(denied))
            }
        }
    }

    /// Decides about one request of a direct call by the memory store.
    #[inline(never)]
    pub(super) fn decide_in_memory(&self, store: &MemoryStore, request: &Request<'_>) -> Poll<Result<Decision, Error>> {
        let LimiterInner { observers, limiter_id, .. } = &*self.inner;
        let decision = |reply: &_| Poll::Ready(Ok(Decision::from_memory(DIRECT_CALL, request, reply, *limiter_id)));
        let ready = store.decide_one(request, 0, decision, || Poll::Ready(self.decide_in_child(request)));
        if let Poll::Ready(Ok(decision)) = &ready {
            observers.decided(decision);
        }
        ready
    }

    /// The failure policy's decision, for a memory store that cannot be used in this child of `fork`.
    #[cold]
    fn decide_in_child(&self, request: &Request<'_>) -> Result<Decision, Error> {
        let resolution = self.resolve_by_policy(forked(), self.default_options())?;
        Ok(DecisionContext::direct(slice::from_ref(request)).decision(&resolution, None))
    }

    /// Applies the failure policy to a call that has no store and no standby limiter.
    #[cold]
    pub(super) fn resolve_by_policy(&self, error: Error, options: CallOptions) -> Result<Resolution, Error> {
        self.inner.observers.failed(&error);
        match options.on_error.for_error(&error) {
            OnError::Open => Ok(Resolution::FailedOpen),
            OnError::Closed | OnError::Standby => Ok(Resolution::FailedClosed),
            OnError::Raise => Err(error),
        }
    }

    /// Decides about one request of a direct call by any store.
    pub(super) async fn decide_one(&self, request: Request<'_>) -> Result<Decision, Error> {
        self.decide(DecisionContext::direct(&[request]), self.default_options()).await
    }

    /// Returns the denial of a shared store that is cached for this request and still valid.
    pub(super) fn cached_denial(&self, name: &'static str, request: &Request<'_>) -> Option<Decision> {
        let Backend::Guarded(guard) = &self.inner.backend else { return None };
        let requests = [*request];
        let denial = guard.cached_denial(&requests)?;
        let decision = DecisionContext { names: &[name], requests: &requests }.decision(&denial, None);
        self.inner.observers.decided(&decision);
        Some(decision)
    }

    /// Decides about one request of an annotated call, if no reply of a shared store is needed. Returns `Some(None)`
    /// for an allowed call.
    pub(crate) fn denied_at_once(&self, name: &'static str, request: &Request<'_>) -> Option<Option<Denied>> {
        let LimiterInner { backend, observers, limiter_id, .. } = &*self.inner;
        let Backend::Memory(store) = backend else {
            return Some(self.cached_denial(name, request)?.into_result().err());
        };
        // An `Allowed` that no observer receives is not built.
        let skip_allowed = !observers.observe_allowed();
        let reply_to_use = |reply: &MemoryReply| {
            let is_skipped = reply.outcome.allowed && skip_allowed;
            Some((!is_skipped).then_some(*reply))
        };
        // A failure falls back to the full path, which applies the failure policy.
        let Some(reply) = store.decide_one(request, 0, reply_to_use, || None)? else {
            observers.report_overflow();
            return Some(None);
        };
        let decision = Decision::from_memory(name, request, &reply, *limiter_id);
        observers.decided(&decision);
        Some(decision.into_result().err())
    }

    /// Decides about a call that does not wait, and calls the observers.
    pub(crate) async fn decide(&self, context: DecisionContext<'_>, options: CallOptions) -> Result<Decision, Error> {
        let decision = self.decide_once(context, options).await?;
        self.inner.observers.decided(&decision);
        Ok(decision)
    }

    /// Decides without calling the observers.
    pub(super) async fn decide_once(
        &self,
        context: DecisionContext<'_>,
        options: CallOptions,
    ) -> Result<Decision, Error> {
        let resolution = self.resolve(context, options).await?;
        Ok(context.decision(&resolution, Some(self.inner.limiter_id)))
    }

    /// Takes the permits from the store, or applies the failure policy.
    pub(super) async fn resolve(
        &self,
        context: DecisionContext<'_>,
        options: CallOptions,
    ) -> Result<Resolution, Error> {
        match &self.inner.backend {
            Backend::Memory(store) => match store.decide_within(context.requests, options.max_wait) {
                Ok(reply) => Ok(Resolution::Counted(CountedReply::from_store(reply, 0))),
                Err(error) => self.resolve_by_policy(error, options),
            },
            _ if context.requests.is_empty() => Ok(Resolution::FailedOpen),
            Backend::Guarded(guard) => guard.decide(context.requests, options, &self.inner.observers).await,
        }
    }

    /// Decides without taking permits and without calling the observers.
    pub(super) async fn peek_once(
        &self,
        context: DecisionContext<'_>,
        options: CallOptions,
    ) -> Result<Decision, Error> {
        let resolution = match &self.inner.backend {
            Backend::Memory(store) => match store.peek(context.requests) {
                Ok(reply) => Resolution::Counted(CountedReply::from_store(reply, 0)),
                Err(error) => self.resolve_by_policy(error, options)?,
            },
            Backend::Guarded(guard) => guard.peek(context.requests, options, &self.inner.observers).await?,
        };
        Ok(context.decision(&resolution, None))
    }
}
