//! From a request to a decision: store or guard, receipt, observers.

use std::slice;
use std::task::Poll;
use std::time::Duration;

use crate::Error;
use crate::decision::{Decision, DecisionContext, Denied};
use crate::limiter::api::{DIRECT, direct};
use crate::limiter::{Backend, Inner, Limiter};
use crate::on_error::OnError;
use crate::request::Request;
use crate::request::{CallOptions, CountedReply, Resolution};
use crate::rule::RuleOverrides;
use crate::store::memory::{MemoryReply, MemoryStore};
use crate::sync::process::forked;

impl Limiter {
    pub(crate) fn rulebook(&self) -> &RuleOverrides {
        &self.inner.rules
    }

    /// How a call is decided that says nothing of it.
    pub(crate) fn terms(&self) -> CallOptions {
        CallOptions { on_error: self.inner.on_error, max_wait: Duration::ZERO, deadline: None }
    }

    /// The denial of an annotated call, if it is one, after waiting up to `wait`.
    pub(crate) async fn decide_or_wait(
        &self,
        rules: DecisionContext<'_>,
        terms: CallOptions,
        wait: Duration,
    ) -> Result<Option<Denied>, Error> {
        let decision = if wait.is_zero() {
            self.decide(rules, terms).await?
        } else {
            self.decide_within(rules, terms, wait).await?
        };
        Ok(decision.into_result().err())
    }

    /// What becomes of a call that failed before there was anything to ask, as by a limit that cannot be: no stand-in
    /// can decide that.
    pub(crate) fn without_answer(
        &self,
        rules: DecisionContext<'_>,
        error: Error,
        on_error: OnError,
    ) -> Result<Option<Denied>, Error> {
        let observers = &self.inner.observers;
        observers.failed(&error);
        match on_error {
            OnError::Raise => Err(error),
            // Not even `Open` runs what has an impossible limit: it may come from a caller, as a plan without calls.
            OnError::Open | OnError::Closed | OnError::Standby => {
                let denied = rules.closed();
                observers.denied(&denied);
                Ok(Some(denied))
            }
        }
    }

    /// Decides about one request of a direct call, by a store that answers at once.
    #[inline(never)]
    pub(super) fn decide_in_memory(&self, store: &MemoryStore, request: &Request<'_>) -> Poll<Result<Decision, Error>> {
        let Inner { observers, limiter_id, .. } = &*self.inner;
        let told = |told: &_| Poll::Ready(Ok(Decision::told(DIRECT, request, told, *limiter_id)));
        let ready = store.decide_one(request, 0, told, || Poll::Ready(self.decide_without_store(request)));
        if let Poll::Ready(Ok(decision)) = &ready {
            observers.decided(decision);
        }
        ready
    }

    /// The decision of the policy, for a store in memory that cannot be used in this process.
    #[cold]
    fn decide_without_store(&self, request: &Request<'_>) -> Result<Decision, Error> {
        let ruling = self.rule_without_store(forked(), self.terms())?;
        Ok(direct(slice::from_ref(request)).decision(&ruling, None))
    }

    #[cold]
    pub(super) fn rule_without_store(&self, error: Error, terms: CallOptions) -> Result<Resolution, Error> {
        self.inner.observers.failed(&error);
        match terms.on_error.for_error(&error) {
            OnError::Open => Ok(Resolution::FailedOpen),
            OnError::Closed | OnError::Standby => Ok(Resolution::FailedClosed),
            OnError::Raise => Err(error),
        }
    }

    /// The same by any store.
    pub(super) async fn decide_alone(&self, request: Request<'_>) -> Result<Decision, Error> {
        self.decide(direct(&[request]), self.terms()).await
    }

    /// What a store has said that others share, where it still holds.
    pub(super) fn known_denial(&self, name: &'static str, request: &Request<'_>) -> Option<Decision> {
        let Backend::Guarded(guard) = &self.inner.backend else { return None };
        let requests = [*request];
        let denial = guard.get(&requests)?;
        let decision = DecisionContext { names: &[name], requests: &requests }.decision(&denial, None);
        self.inner.observers.decided(&decision);
        Some(decision)
    }

    /// The denial of one request, if the store answers at once and it is one.
    pub(crate) fn denied_at_once(&self, name: &'static str, request: &Request<'_>) -> Option<Option<Denied>> {
        let Inner { backend, observers, limiter_id, .. } = &*self.inner;
        let Backend::Memory(store) = backend else {
            return Some(self.known_denial(name, request)?.into_result().err());
        };
        // Unless somebody watches, an admission is for nobody.
        let is_unseen = !observers.watch(true);
        let told = |told: &MemoryReply| {
            let is_for_nobody = told.outcome.allowed && is_unseen;
            Some((!is_for_nobody).then_some(*told))
        };
        // A failure is decided where policies are.
        let Some(told) = store.decide_one(request, 0, told, || None)? else {
            observers.overflowing();
            return Some(None);
        };
        let decision = Decision::told(name, request, &told, *limiter_id);
        observers.decided(&decision);
        Some(decision.into_result().err())
    }

    pub(crate) async fn decide(&self, rules: DecisionContext<'_>, terms: CallOptions) -> Result<Decision, Error> {
        let decision = self.ask(rules, terms).await?;
        self.inner.observers.decided(&decision);
        Ok(decision)
    }

    pub(super) async fn ask(&self, rules: DecisionContext<'_>, terms: CallOptions) -> Result<Decision, Error> {
        let ruling = self.rule(rules, terms).await?;
        Ok(rules.decision(&ruling, Some(self.inner.limiter_id)))
    }

    pub(super) async fn rule(&self, rules: DecisionContext<'_>, terms: CallOptions) -> Result<Resolution, Error> {
        match &self.inner.backend {
            Backend::Memory(store) => match store.decide_within(rules.requests, terms.max_wait) {
                Ok(answer) => Ok(Resolution::Counted(CountedReply::from_store(answer, 0))),
                Err(error) => self.rule_without_store(error, terms),
            },
            _ if rules.requests.is_empty() => Ok(Resolution::FailedOpen),
            Backend::Guarded(guard) => guard.decide(rules.requests, terms, &self.inner.observers).await,
        }
    }

    pub(super) async fn look(&self, rules: DecisionContext<'_>, terms: CallOptions) -> Result<Decision, Error> {
        let ruling = match &self.inner.backend {
            Backend::Memory(store) => match store.peek(rules.requests) {
                Ok(answer) => Resolution::Counted(CountedReply::from_store(answer, 0)),
                Err(error) => self.rule_without_store(error, terms)?,
            },
            Backend::Guarded(guard) => guard.peek(rules.requests, terms, &self.inner.observers).await?,
        };
        Ok(rules.decision(&ruling, None))
    }
}
