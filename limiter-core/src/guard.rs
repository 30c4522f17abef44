//! What happens when the store fails: the one place with failure policy.

use std::sync::Arc;

use crate::decision::{Decision, Denied, Rule, Source};
use crate::observer::Observers;
use crate::standby::Standby;
use crate::store::memory::Question;
use crate::store::{Answer, RedisStore};
use crate::{Error, Key, Limit};

/// What a call gets when the limiter itself fails.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnError {
    /// It is allowed.
    Open,
    /// It is denied.
    Closed,
    /// An in-process stand-in decides, from what this process admitted within the window.
    #[default]
    Standby,
    /// It gets the error. An annotated function whose own attribute says nothing of errors has no way to raise one:
    /// for it this is [`Closed`](OnError::Closed).
    Raise,
}

/// A store that may fail, and the stand-in for when it does.
#[derive(Debug)]
pub(crate) struct Guard {
    store: Shared,
    standby: Arc<Standby>,
}

/// The store that processes share.
#[derive(Debug)]
pub(crate) enum Shared {
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "there is no such store then"))]
    Redis(RedisStore),
    /// There is none: it was configured wrongly where nobody could be told.
    Broken(Error),
}

/// The store's or the stand-in's word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) answer: Answer,
    pub(crate) source: Source,
}

/// The store gave no answer. Permits that the stand-in holds for the call meanwhile are its answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) held: Option<Answer>,
}

impl Guard {
    pub(crate) fn new(store: Shared, standby: Arc<Standby>) -> Self {
        Self { store, standby }
    }

    pub(crate) async fn decide(
        &self,
        rule: Rule,
        question: Question<'_>,
        on_error: OnError,
        observers: &Observers,
    ) -> Result<Decision, Error> {
        let Failure { error, held } = match self.store.take(question).await {
            Ok(settled) => return Ok(rule.decision(&settled.answer, settled.source)),
            Err(failure) => failure,
        };
        observers.failed(&error);
        if let (OnError::Closed | OnError::Raise, Some(held)) = (on_error, held) {
            self.standby.release(question, &held);
        }
        let decision = match on_error {
            OnError::Open => {
                if held.is_none() {
                    self.standby.record(question);
                }
                rule.opened()
            }
            OnError::Closed => Decision::Denied(rule.closed()),
            OnError::Standby => {
                let answer = held.unwrap_or_else(|| self.standby.decide(question));
                rule.decision(&answer, Source::Standby)
            }
            OnError::Raise => return Err(error),
        };
        // This task may have been woken late: what was admitted just now is unknown to the store for a window from now.
        self.standby.call_failed(&error);
        Ok(decision)
    }

    pub(crate) async fn peek(
        &self,
        rule: Rule,
        question: Question<'_>,
        on_error: OnError,
        observers: &Observers,
    ) -> Result<Decision, Error> {
        let error = match self.store.peek(question).await {
            Ok(settled) => return Ok(rule.decision(&settled.answer, settled.source)),
            Err(failure) => failure.error,
        };
        observers.failed(&error);
        match on_error {
            OnError::Open => Ok(rule.opened()),
            OnError::Closed => Ok(Decision::Denied(rule.closed())),
            OnError::Standby => Ok(rule.decision(&self.standby.peek(question), Source::Standby)),
            OnError::Raise => Err(error),
        }
    }

    /// Forgets a key, in the stand-in and in the store. There is no policy for this: a failure is told.
    pub(crate) async fn reset(&self, key: &Key, limit: Limit, observers: &Observers) -> Result<(), Error> {
        self.standby.reset(key, limit);
        self.store.reset(key, limit).await.inspect_err(|error| observers.failed(error))
    }
}

impl Shared {
    async fn take(&self, question: Question<'_>) -> Result<Settled, Failure> {
        match self {
            Self::Redis(store) => store.take(question).await,
            Self::Broken(error) => Err(Failure { error: error.clone(), held: None }),
        }
    }

    async fn peek(&self, question: Question<'_>) -> Result<Settled, Failure> {
        match self {
            Self::Redis(store) => store.peek(question).await,
            Self::Broken(error) => Err(Failure { error: error.clone(), held: None }),
        }
    }

    async fn reset(&self, key: &Key, limit: Limit) -> Result<(), Error> {
        match self {
            Self::Redis(store) => store.reset(key, limit).await,
            Self::Broken(error) => Err(error.clone()),
        }
    }
}

/// The limiter failed before there was anything to ask, as with a limit that cannot be: no stand-in can decide then.
pub(crate) fn without_answer(rule: Rule, error: Error, on_error: OnError) -> Result<Option<Denied>, Error> {
    match on_error {
        OnError::Open => Ok(None),
        OnError::Closed | OnError::Standby => Ok(Some(rule.closed())),
        OnError::Raise => Err(error),
    }
}
