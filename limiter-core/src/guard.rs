//! What happens when the store fails: the one place with failure policy.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::decision::Source;
use crate::denied_until::DeniedUntil;
use crate::observer::Observers;
use crate::overflow::Overflows;
use crate::standby::{Role, Standby};
use crate::store::{Answer, Asked, Question, RedisStore};
use crate::{Error, ErrorKind, Key, Limit};

/// What a call gets when the limiter itself fails.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnError {
    /// It is allowed; but [`Standby`](OnError::Standby) decides where callers can cause the failure
    /// ([`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded)), or a flood would pass any limit.
    Open,
    /// It is denied.
    Closed,
    /// An in-process stand-in decides, from what this process admitted within the window. Where it cannot be used either
    /// ([`ErrorKind::Forked`](crate::ErrorKind::Forked)), the call is denied.
    #[default]
    Standby,
    /// It gets the error. An annotated function whose own attribute says nothing of errors has no way to raise one:
    /// for it this is [`Closed`](OnError::Closed).
    Raise,
}

impl OnError {
    /// The policy for a failure of this kind.
    pub(crate) fn after(self, error: &Error) -> Self {
        match (self, error.kind()) {
            (Self::Open, ErrorKind::Overloaded) => Self::Standby,
            (Self::Standby, ErrorKind::Forked) => Self::Closed,
            _ => self,
        }
    }
}

/// A store that may fail, and the stand-in for when it does.
#[derive(Debug)]
pub(crate) struct Guard {
    store: Shared,
}

/// What this process knows by itself; so does whoever talks to the store, who keeps it up to date. A child of `fork` has its
/// own, as it has its own worker.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) standby: Arc<Standby>,
    pub(crate) denied: Arc<DeniedUntil>,
}

/// The settings that each [`Local`] of a limiter is made by.
#[derive(Debug)]
pub(crate) struct LocalSettings {
    pub(crate) role: Role,
    pub(crate) remember_denials: Duration,
    pub(crate) clock: Clock,
    pub(crate) overflows: Arc<Overflows>,
}

impl LocalSettings {
    pub(crate) fn local(&self) -> Local {
        self.local_with(self.standby())
    }

    /// For a child of `fork`.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no worker is started anew"))]
    pub(crate) fn local_of_child(&self) -> Local {
        self.local_with(self.standby().for_child())
    }

    fn standby(&self) -> Standby {
        Standby::counting(&self.role, self.clock.clone(), Arc::clone(&self.overflows))
    }

    fn local_with(&self, standby: Standby) -> Local {
        let denied = DeniedUntil::new(self.remember_denials, self.clock.clone());
        Local { standby: Arc::new(standby), denied: Arc::new(denied) }
    }
}

/// The store that processes share.
#[derive(Debug)]
pub(crate) enum Shared {
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "there is no such store then"))]
    Redis(RedisStore),
    /// There is none: it was configured wrongly where nobody could be told.
    Broken(Error, Local),
}

/// What becomes of a call.
#[derive(Clone, Debug)]
pub(crate) enum Ruling {
    Settled(Settled),
    /// Allowed without a count, because a policy says so.
    Opened,
    /// Denied without a count, because a policy says so.
    Closed,
}

/// The store's or the stand-in's word.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) answer: Answer,
    pub(crate) source: Source,
    /// When the stand-in took the permits, by its own clock; 0 if it did not.
    pub(crate) mirrored: u64,
    /// When the permits of each question were taken, where they were not taken together.
    pub(crate) stamps: Option<Arc<[u64]>>,
    /// What was asked, where that was put down for another thread.
    pub(crate) asked: Option<Arc<[Asked]>>,
}

/// Who granted permits, and when: what it takes to give them back.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) source: Source,
    /// By the store's clock, in microseconds.
    pub(crate) stamp: u64,
    /// The same for each question, where they were not taken together.
    stamps: Option<Arc<[u64]>>,
    /// By the stand-in's; 0 if it knows nothing of them.
    pub(crate) mirrored: u64,
}

impl Settled {
    pub(crate) fn by_store(answer: Answer, mirrored: u64) -> Self {
        Self { answer, source: Source::Store, mirrored, stamps: None, asked: None }
    }

    pub(crate) fn by_memory(answer: Answer) -> Self {
        Self { answer, source: Source::DeniedUntil, mirrored: 0, stamps: None, asked: None }
    }

    pub(crate) fn by_standby(answer: Answer) -> Self {
        Self { answer, source: Source::Standby, mirrored: answer.stamp, stamps: None, asked: None }
    }

    pub(crate) fn granted(&self) -> Granted {
        let Self { answer, source, mirrored, stamps, .. } = self;
        Granted { source: *source, stamp: answer.stamp, stamps: stamps.clone(), mirrored: *mirrored }
    }
}

impl Granted {
    /// By the store alone, at this time of its clock.
    pub(crate) fn by_store(stamp: u64) -> Self {
        Self { source: Source::Store, stamp, stamps: None, mirrored: 0 }
    }

    /// What was granted to one question.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no store has several clocks"))]
    pub(crate) fn of(&self, question: usize) -> Self {
        let stamp = self.stamps.as_ref().and_then(|stamps| stamps.get(question));
        Self::by_store(stamp.copied().unwrap_or(self.stamp))
    }
}

/// How a call is to be decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) on_error: OnError,
    /// How long it may wait for its turn, where its algorithm gives turns.
    pub(crate) patience: Duration,
    /// How long the store may take; the limiter's own deadline if it is not said.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "there is no such store then"))]
    pub(crate) deadline: Option<Duration>,
}

/// The store gave no answer. Permits that the stand-in holds for the call meanwhile are its answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) held: Option<Answer>,
}

impl Guard {
    pub(crate) fn new(store: Shared) -> Self {
        Self { store }
    }

    /// That of the latest worker: a call may have started another one, after a fork.
    fn local(&self) -> &Local {
        match &self.store {
            Shared::Redis(store) => store.local(),
            Shared::Broken(_, local) => local,
        }
    }

    pub(crate) async fn decide(
        &self,
        questions: &[Question<'_>],
        terms: Terms,
        observers: &Observers,
    ) -> Result<Ruling, Error> {
        let Terms { on_error, patience, .. } = terms;
        // Who waits for a turn may be given one.
        if patience.is_zero()
            && let Some(denial) = self.recall(questions)
        {
            return Ok(denial);
        }
        let Failure { error, held } = match self.store.take(questions, &terms).await {
            Ok(settled) => return Ok(Ruling::Settled(settled)),
            Err(failure) => failure,
        };
        observers.failed(&error);
        let on_error = on_error.after(&error);
        if let (OnError::Closed | OnError::Raise, Some(held)) = (on_error, held) {
            self.local().standby.refund(questions, held.stamp);
        }
        // Before and after: this task may have been woken late, and whoever asks meanwhile must ask the stand-in too.
        self.local().standby.call_failed(questions);
        let ruling = match on_error {
            OnError::Open => {
                if held.is_none() {
                    self.local().standby.record(questions);
                }
                Ruling::Opened
            }
            OnError::Closed => Ruling::Closed,
            OnError::Standby => match held.map_or_else(|| self.local().standby.decide(questions, patience), Ok) {
                Ok(answer) => Ruling::Settled(Settled::by_standby(answer)),
                Err(forked) => {
                    observers.failed(&forked);
                    Ruling::Closed
                }
            },
            OnError::Raise => return Err(error),
        };
        // What was admitted just now is unknown to the store for a window from now.
        self.local().standby.call_failed(questions);
        Ok(ruling)
    }

    /// The store's denial, if it still stands: nobody need be asked.
    pub(crate) fn recall(&self, questions: &[Question<'_>]) -> Option<Ruling> {
        let denial = self.local().denied.recall(questions)?;
        Some(Ruling::Settled(Settled::by_memory(denial)))
    }

    pub(crate) async fn peek(
        &self,
        questions: &[Question<'_>],
        terms: Terms,
        observers: &Observers,
    ) -> Result<Ruling, Error> {
        let error = match self.store.peek(questions, &terms).await {
            Ok(settled) => return Ok(Ruling::Settled(settled)),
            Err(failure) => failure.error,
        };
        observers.failed(&error);
        match terms.on_error.after(&error) {
            OnError::Open => Ok(Ruling::Opened),
            OnError::Closed => Ok(Ruling::Closed),
            OnError::Standby => match self.local().standby.peek(questions) {
                Ok(answer) => Ok(Ruling::Settled(Settled::by_standby(answer))),
                Err(forked) => {
                    observers.failed(&forked);
                    Ok(Ruling::Closed)
                }
            },
            OnError::Raise => Err(error),
        }
    }

    /// Gives back permits, to the store and to its mirror, or to the stand-in that granted them. There is no policy for
    /// this: a failure is told.
    pub(crate) async fn refund(
        &self,
        questions: &[Question<'_>],
        granted: Granted,
        observers: &Observers,
    ) -> Result<(), Error> {
        match granted.source {
            Source::Store => {
                let refunded = self.store.refund(questions, granted).await;
                self.local().denied.forget(questions);
                refunded.inspect_err(|error| observers.failed(error))
            }
            Source::Standby => {
                self.local().standby.refund(questions, granted.mirrored);
                Ok(())
            }
            // Nothing was granted.
            Source::Policy | Source::DeniedUntil => Ok(()),
        }
    }

    /// Forgets a key, in the stand-in and in the store. There is no policy for this: a failure is told.
    pub(crate) async fn reset(&self, key: &Key, limit: Limit, observers: &Observers) -> Result<(), Error> {
        self.local().standby.reset(key, limit);
        let forgotten = self.store.reset(key, limit).await;
        self.local().denied.forget(&[Question { key, limit, cost: 0 }]);
        forgotten.inspect_err(|error| observers.failed(error))
    }
}

impl Shared {
    async fn take(&self, questions: &[Question<'_>], terms: &Terms) -> Result<Settled, Failure> {
        match self {
            Self::Redis(store) => store.take(questions, terms).await,
            Self::Broken(error, _) => Err(Failure { error: error.clone(), held: None }),
        }
    }

    async fn peek(&self, questions: &[Question<'_>], terms: &Terms) -> Result<Settled, Failure> {
        match self {
            Self::Redis(store) => store.peek(questions, terms).await,
            Self::Broken(error, _) => Err(Failure { error: error.clone(), held: None }),
        }
    }

    async fn refund(&self, questions: &[Question<'_>], granted: Granted) -> Result<(), Error> {
        match self {
            Self::Redis(store) => store.refund(questions, granted).await,
            Self::Broken(error, _) => Err(error.clone()),
        }
    }

    async fn reset(&self, key: &Key, limit: Limit) -> Result<(), Error> {
        match self {
            Self::Redis(store) => store.reset(key, limit).await,
            Self::Broken(error, _) => Err(error.clone()),
        }
    }
}
