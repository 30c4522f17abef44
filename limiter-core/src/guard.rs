//! What happens when the store fails: the one place with failure policy.

use crate::error::Error;
use crate::key::Key;
use crate::limit::Limit;
use crate::local::LocalState;
use crate::observer::Observers;
use crate::on_error::OnError;
use crate::request::{CallOptions, CountedReply, RefundInfo, Request, Resolution, StoreFailure};
use crate::source::Source;
use crate::store::RedisStore;

/// A store that may fail, and the stand-in for when it does.
#[derive(Debug)]
pub(crate) struct Guard {
    store: RemoteStore,
}

/// The store that processes share.
#[derive(Debug)]
pub(crate) enum RemoteStore {
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "there is no such store then"))]
    Redis(RedisStore),
    /// There is none: it was configured wrongly where nobody could be told.
    Misconfigured(Error, LocalState),
}

impl Guard {
    pub(crate) fn new(store: RemoteStore) -> Self {
        Self { store }
    }

    /// That of the latest worker: a call may have started another one, after a fork.
    fn local(&self) -> &LocalState {
        match &self.store {
            RemoteStore::Redis(store) => store.local(),
            RemoteStore::Misconfigured(_, local) => local,
        }
    }

    pub(crate) async fn decide(
        &self,
        requests: &[Request<'_>],
        terms: CallOptions,
        observers: &Observers,
    ) -> Result<Resolution, Error> {
        let CallOptions { on_error, max_wait, .. } = terms;
        // Who waits for a turn may be given one.
        if max_wait.is_zero()
            && let Some(denial) = self.get(requests)
        {
            return Ok(denial);
        }
        let StoreFailure { error, reservation } = match self.store.take(requests, &terms).await {
            Ok(settled) => return Ok(Resolution::Counted(settled)),
            Err(failure) => failure,
        };
        observers.failed(&error);
        let on_error = on_error.for_error(&error);
        if let (OnError::Closed | OnError::Raise, Some(reservation)) = (on_error, reservation) {
            self.local().standby.refund(requests, reservation.stamp);
        }
        // Before and after: this task may have been woken late, and whoever asks meanwhile must ask the stand-in too.
        self.local().standby.call_failed(requests);
        let ruling = match on_error {
            OnError::Open => {
                if reservation.is_none() {
                    self.local().standby.record(requests);
                }
                Resolution::FailedOpen
            }
            OnError::Closed => Resolution::FailedClosed,
            OnError::Standby => match reservation.map_or_else(|| self.local().standby.decide(requests, max_wait), Ok) {
                Ok(answer) => Resolution::Counted(CountedReply::from_standby(answer)),
                Err(forked) => {
                    observers.failed(&forked);
                    Resolution::FailedClosed
                }
            },
            OnError::Raise => return Err(error),
        };
        // What was admitted just now is unknown to the store for a window from now.
        self.local().standby.call_failed(requests);
        Ok(ruling)
    }

    /// The store's denial, if it still stands: nobody need be asked.
    pub(crate) fn get(&self, requests: &[Request<'_>]) -> Option<Resolution> {
        let denial = self.local().denials.get(requests)?;
        Some(Resolution::Counted(CountedReply::from_denial_cache(denial)))
    }

    pub(crate) async fn peek(
        &self,
        requests: &[Request<'_>],
        terms: CallOptions,
        observers: &Observers,
    ) -> Result<Resolution, Error> {
        let error = match self.store.peek(requests, &terms).await {
            Ok(settled) => return Ok(Resolution::Counted(settled)),
            Err(failure) => failure.error,
        };
        observers.failed(&error);
        match terms.on_error.for_error(&error) {
            OnError::Open => Ok(Resolution::FailedOpen),
            OnError::Closed => Ok(Resolution::FailedClosed),
            OnError::Standby => match self.local().standby.peek(requests) {
                Ok(answer) => Ok(Resolution::Counted(CountedReply::from_standby(answer))),
                Err(forked) => {
                    observers.failed(&forked);
                    Ok(Resolution::FailedClosed)
                }
            },
            OnError::Raise => Err(error),
        }
    }

    /// Gives back permits, to the store and to its mirror, or to the stand-in that granted them. There is no policy for
    /// this: a failure is told.
    pub(crate) async fn refund(
        &self,
        requests: &[Request<'_>],
        granted: RefundInfo,
        observers: &Observers,
    ) -> Result<(), Error> {
        match granted.source {
            Source::Store => {
                let refunded = self.store.refund(requests, granted).await;
                self.local().denials.invalidate(requests);
                refunded.inspect_err(|error| observers.failed(error))
            }
            Source::Standby => {
                self.local().standby.refund(requests, granted.mirror_stamp);
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
        self.local().denials.invalidate(&[Request { key, limit, cost: 0 }]);
        forgotten.inspect_err(|error| observers.failed(error))
    }
}

impl RemoteStore {
    async fn take(&self, requests: &[Request<'_>], terms: &CallOptions) -> Result<CountedReply, StoreFailure> {
        match self {
            Self::Redis(store) => store.take(requests, terms).await,
            Self::Misconfigured(error, _) => Err(StoreFailure { error: error.clone(), reservation: None }),
        }
    }

    async fn peek(&self, requests: &[Request<'_>], terms: &CallOptions) -> Result<CountedReply, StoreFailure> {
        match self {
            Self::Redis(store) => store.peek(requests, terms).await,
            Self::Misconfigured(error, _) => Err(StoreFailure { error: error.clone(), reservation: None }),
        }
    }

    async fn refund(&self, requests: &[Request<'_>], granted: RefundInfo) -> Result<(), Error> {
        match self {
            Self::Redis(store) => store.refund(requests, granted).await,
            Self::Misconfigured(error, _) => Err(error.clone()),
        }
    }

    async fn reset(&self, key: &Key, limit: Limit) -> Result<(), Error> {
        match self {
            Self::Redis(store) => store.reset(key, limit).await,
            Self::Misconfigured(error, _) => Err(error.clone()),
        }
    }
}
