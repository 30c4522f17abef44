//! From a question to a decision: store or guard, receipt, observers.

use std::slice;
use std::task::Poll;
use std::time::Duration;

use super::operations::{DIRECT, direct};
use super::{Engine, Inner, Limiter};
use crate::Error;
use crate::decision::{Decision, Denied, Rules};
use crate::guard::{OnError, Ruling, Settled, Terms};
use crate::rule::Rulebook;
use crate::store::Question;
use crate::store::memory::{MemoryStore, Told};
use crate::sync::process::forked;

impl Limiter {
    pub(crate) fn rulebook(&self) -> &Rulebook {
        &self.inner.rules
    }

    /// How a call is decided that says nothing of it.
    pub(crate) fn terms(&self) -> Terms {
        Terms { on_error: self.inner.on_error, patience: Duration::ZERO, deadline: None }
    }

    /// The denial of an annotated call, if it is one, after waiting up to `wait`.
    pub(crate) async fn decide_or_wait(
        &self,
        rules: Rules<'_>,
        terms: Terms,
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
        rules: Rules<'_>,
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

    /// Decides about one question of a direct call, by a store that answers at once.
    #[inline(never)]
    pub(super) fn decide_in_memory(
        &self,
        store: &MemoryStore,
        question: &Question<'_>,
    ) -> Poll<Result<Decision, Error>> {
        let Inner { observers, giver, .. } = &*self.inner;
        let told = |told: &_| Poll::Ready(Ok(Decision::told(DIRECT, question, told, *giver)));
        let ready = store.decide_one(question, 0, told, || Poll::Ready(self.decide_without_store(question)));
        if let Poll::Ready(Ok(decision)) = &ready {
            observers.decided(decision);
        }
        ready
    }

    /// The decision of the policy, for a store in memory that cannot be used in this process.
    #[cold]
    fn decide_without_store(&self, question: &Question<'_>) -> Result<Decision, Error> {
        let ruling = self.rule_without_store(forked(), self.terms())?;
        Ok(direct(slice::from_ref(question)).decision(&ruling, None))
    }

    #[cold]
    pub(super) fn rule_without_store(&self, error: Error, terms: Terms) -> Result<Ruling, Error> {
        self.inner.observers.failed(&error);
        match terms.on_error.after(&error) {
            OnError::Open => Ok(Ruling::Opened),
            OnError::Closed | OnError::Standby => Ok(Ruling::Closed),
            OnError::Raise => Err(error),
        }
    }

    /// The same by any store.
    pub(super) async fn decide_alone(&self, question: Question<'_>) -> Result<Decision, Error> {
        self.decide(direct(&[question]), self.terms()).await
    }

    /// What a store has said that others share, where it still holds.
    pub(super) fn known_denial(&self, name: &'static str, question: &Question<'_>) -> Option<Decision> {
        let Engine::Guarded(guard) = &self.inner.engine else { return None };
        let questions = [*question];
        let denial = guard.recall(&questions)?;
        let decision = Rules { names: &[name], questions: &questions }.decision(&denial, None);
        self.inner.observers.decided(&decision);
        Some(decision)
    }

    /// The denial of one question, if the store answers at once and it is one.
    pub(crate) fn denied_at_once(&self, name: &'static str, question: &Question<'_>) -> Option<Option<Denied>> {
        let Inner { engine, observers, giver, .. } = &*self.inner;
        let Engine::Memory(store) = engine else {
            return Some(self.known_denial(name, question)?.into_result().err());
        };
        // Unless somebody watches, an admission is for nobody.
        let is_unseen = !observers.watch(true);
        let told = |told: &Told| {
            let is_for_nobody = told.outcome.allowed && is_unseen;
            Some((!is_for_nobody).then_some(*told))
        };
        // A failure is decided where policies are.
        let Some(told) = store.decide_one(question, 0, told, || None)? else {
            observers.overflowing();
            return Some(None);
        };
        let decision = Decision::told(name, question, &told, *giver);
        observers.decided(&decision);
        Some(decision.into_result().err())
    }

    pub(crate) async fn decide(&self, rules: Rules<'_>, terms: Terms) -> Result<Decision, Error> {
        let decision = self.ask(rules, terms).await?;
        self.inner.observers.decided(&decision);
        Ok(decision)
    }

    pub(super) async fn ask(&self, rules: Rules<'_>, terms: Terms) -> Result<Decision, Error> {
        let ruling = self.rule(rules, terms).await?;
        Ok(rules.decision(&ruling, Some(self.inner.giver)))
    }

    pub(super) async fn rule(&self, rules: Rules<'_>, terms: Terms) -> Result<Ruling, Error> {
        match &self.inner.engine {
            Engine::Memory(store) => match store.decide_within(rules.questions, terms.patience) {
                Ok(answer) => Ok(Ruling::Settled(Settled::by_store(answer, 0))),
                Err(error) => self.rule_without_store(error, terms),
            },
            _ if rules.questions.is_empty() => Ok(Ruling::Opened),
            Engine::Guarded(guard) => guard.decide(rules.questions, terms, &self.inner.observers).await,
        }
    }

    pub(super) async fn look(&self, rules: Rules<'_>, terms: Terms) -> Result<Decision, Error> {
        let ruling = match &self.inner.engine {
            Engine::Memory(store) => match store.peek(rules.questions) {
                Ok(answer) => Ruling::Settled(Settled::by_store(answer, 0)),
                Err(error) => self.rule_without_store(error, terms)?,
            },
            Engine::Guarded(guard) => guard.peek(rules.questions, terms, &self.inner.observers).await?,
        };
        Ok(rules.decision(&ruling, None))
    }
}
