//! The guard of a shared store: a call whose store fails is decided by the failure policy.

use std::sync::Arc;
#[cfg(all(test, feature = "leases", not(limiter_loom)))]
use std::sync::Mutex;
use std::time::SystemTime;

use crate::decision::Resolution;
use crate::error::{Error, OnError, Source};
use crate::failure_policy::apply_policy;
use crate::health::{Health, HealthState};
use crate::key::Key;
use crate::limit::Limit;
use crate::local::{Local, LocalDecision, StoreTicket};
#[cfg(feature = "metrics")]
use crate::metrics::StoreUp;
use crate::metrics::{StoreCall, StoreOp};
use crate::observer::Observers;
use crate::request::{CallOptions, CountedReply, DecisionReply, RefundInfo, Request, StoreFailure};
#[cfg(feature = "redis")]
use crate::store::RedisStore;
#[cfg(feature = "test-util")]
use crate::store::SlowStore;

/// A store that may fail, with the failure policy for its calls.
#[derive(Debug)]
pub(crate) struct Guard {
    store: RemoteStore,
    /// The metric of the store's state.
    #[cfg(feature = "metrics")]
    _store_up: Option<StoreUp>,
    /// The setting of leases of each call so far.
    #[cfg(all(test, feature = "leases", not(limiter_loom)))]
    leases_of_calls: Mutex<Vec<bool>>,
}

/// A store that several processes share.
#[derive(Debug)]
pub(crate) enum RemoteStore {
    #[cfg(feature = "redis")]
    Redis(RedisStore),
    /// No store: the environment's URL cannot be used, or a test has none. Each call fails with this error.
    Failing(Error, Arc<Local>),
    #[cfg(feature = "test-util")]
    Slow(Box<SlowStore>, Arc<Local>),
}

/// Matches a remote store. The arm of a store without its feature is left out.
macro_rules! match_store {
    ($store:expr, {
        Redis($redis:pat) => $of_redis:expr,
        Slow($($slow:pat),+) => $of_slow:expr,
        Failing($($failing:pat),+) => $of_failing:expr,
    }) => {
        match $store {
            #[cfg(feature = "redis")]
            RemoteStore::Redis($redis) => $of_redis,
            #[cfg(feature = "test-util")]
            RemoteStore::Slow($($slow),+) => $of_slow,
            RemoteStore::Failing($($failing),+) => $of_failing,
        }
    };
}

#[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "only the store on Redis has names and tickets"))]
impl Guard {
    pub(crate) fn new(store: RemoteStore) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            _store_up: match_store!(&store, {
                Redis(_) => None,
                Slow(..) => Some(StoreUp::new(HealthState::Up)),
                Failing(..) => Some(StoreUp::new(HealthState::Down)),
            }),
            #[cfg(all(test, feature = "leases", not(limiter_loom)))]
            leases_of_calls: Mutex::default(),
            store,
        }
    }

    /// Adds the metric of a store whose state changes.
    #[cfg(all(feature = "metrics", feature = "redis"))]
    pub(crate) fn with_store_up(self, store_up: StoreUp) -> Self {
        Self { _store_up: Some(store_up), ..self }
    }

    /// The state of the latest worker. After a fork a call may have started another worker.
    fn local(&self) -> &Local {
        match_store!(&self.store, {
            Redis(store) => store.local(),
            Slow(_, local) => local,
            Failing(_, local) => local,
        })
    }

    /// The error of a store that fails each call, because the limiter could not be configured.
    pub(crate) fn permanent_failure(&self) -> Option<&Error> {
        match_store!(&self.store, {
            Redis(_) => None,
            Slow(..) => None,
            Failing(error, _) => Some(error),
        })
    }

    /// The store on Redis. `None` for the others, which are of tests or cannot be used.
    #[cfg(all(feature = "rules", feature = "redis"))]
    pub(crate) fn redis(&self) -> Option<&RedisStore> {
        match &self.store {
            RemoteStore::Redis(store) => Some(store),
            _ => None,
        }
    }

    /// The name of a request's counter in the store, if it has one.
    pub(crate) fn key_name(&self, request: &Request<'_>) -> Option<String> {
        match_store!(&self.store, {
            Redis(store) => store.key_name(request),
            Slow(..) => None,
            Failing(..) => None,
        })
    }

    /// A key as it appears in the store's names: encoded, or as a digest.
    pub(crate) fn subject(&self, key: &Key) -> String {
        // The others have no secret.
        match_store!(&self.store, {
            Redis(store) => store.subject(key),
            Slow(..) => key.encoded(),
            Failing(..) => key.encoded(),
        })
    }

    /// Returns the health of the store. A limiter without a usable store has been down since it was built.
    pub(crate) fn health(&self, built_at: SystemTime) -> Health {
        match_store!(&self.store, {
            Redis(store) => store.health(),
            Slow(..) => Health::new(HealthState::Up, built_at, None),
            Failing(..) => Health::new(HealthState::Down, built_at, None),
        })
    }

    /// Decides by the store, or by the failure policy if the store fails. Without a ticket it looks the requests up first, unless
    /// they may wait.
    pub(crate) async fn decide(
        &self,
        requests: &[Request<'_>],
        options: CallOptions,
        ticket: Option<StoreTicket>,
        observers: &Observers,
    ) -> Result<Resolution, Error> {
        let CallOptions { on_error, max_wait, leases, .. } = options;
        self.record_leases(leases);
        let ticket = match ticket {
            Some(ticket) => ticket,
            None if max_wait.is_zero() => match self.decide_locally(requests, leases, true) {
                Ok(resolution) => return Ok(resolution),
                Err(ticket) => ticket,
            },
            // A cached denial does not hold for a call that may wait: the store may give it a turn.
            None => StoreTicket::without_look_up(requests),
        };
        let call = StoreCall::begin(StoreOp::Decide);
        let taken = self.store.take(ticket, requests, &options).await;
        call.end(taken.is_ok());
        let StoreFailure { error, reservation } = match taken {
            Ok(counted) => return Ok(Resolution::Counted(counted)),
            Err(failure) => failure,
        };
        let count = |on_error| self.count_failed(on_error, requests, &options, reservation);
        let resolution = apply_policy(observers, error, on_error, count)?;
        // The store has no record of permits that were granted just now, for a window from now.
        self.local().fail(requests.iter().copied());
        Ok(resolution)
    }

    /// Records that the store has failed a call, and counts the call in this process as the policy demands. The reply is
    /// the standby limiter's, if the policy needs one.
    fn count_failed(
        &self,
        on_error: OnError,
        requests: &[Request<'_>],
        options: &CallOptions,
        reservation: Option<DecisionReply>,
    ) -> Result<Option<CountedReply>, Error> {
        let local = self.local();
        if let (OnError::Closed | OnError::Raise, Some(reservation)) = (on_error, &reservation) {
            local.release(requests, reservation);
        }
        // The failure is recorded before the decision and after it. This task may have been woken late, and other calls
        // must consult the standby limiter meanwhile.
        local.fail(requests.iter().copied());
        let DecisionReply { reply, per_request } = match (on_error, reservation) {
            (OnError::Standby, Some(reservation)) => reservation,
            (OnError::Standby, None) => local.decide_by_standby(requests, options)?,
            (OnError::Open, None) => {
                local.record(requests);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        Ok(Some(CountedReply { per_request, ..CountedReply::from_standby(reply) }))
    }

    /// Returns whether other processes use the store.
    pub(crate) fn is_shared(&self) -> bool {
        match_store!(&self.store, {
            Redis(_) => true,
            Slow(..) => false,
            Failing(..) => false,
        })
    }

    /// Decides by the store, past the denial cache, about a waiting call whose cached denial may be outdated by another
    /// process. `None` if the store fails. No observer, metric or policy applies: the call has its own check later.
    pub(crate) async fn check_again(&self, requests: &[Request<'_>], options: CallOptions) -> Option<Resolution> {
        match self.store.take(StoreTicket::without_look_up(requests), requests, &options).await {
            Ok(counted) => Some(Resolution::Counted(counted)),
            Err(StoreFailure { reservation, .. }) => {
                let local = self.local();
                if let Some(reservation) = &reservation {
                    local.release(requests, reservation);
                }
                local.fail(requests.iter().copied());
                None
            }
        }
    }

    /// Decides in this process: by a lease, or by a cached denial that still holds.
    ///
    /// # Errors
    /// The store has to decide.
    pub(crate) fn decide_locally(
        &self,
        requests: &[Request<'_>],
        leases: bool,
        needs_receipt: bool,
    ) -> Result<Resolution, StoreTicket> {
        self.record_leases(leases);
        match self.local().try_decide(requests, leases, needs_receipt) {
            LocalDecision::Leased(permits) => {
                if permits.needs_renewal {
                    self.store.renew_lease(&requests[0]);
                }
                Ok(Resolution::Leased(permits))
            }
            LocalDecision::Denied(denial) => Ok(Resolution::Counted(CountedReply::from_denial_cache(denial))),
            LocalDecision::Ask(ticket) => Err(ticket),
        }
    }

    /// Records the setting of a call for tests.
    #[cfg(all(test, feature = "leases", not(limiter_loom)))]
    fn record_leases(&self, leases: bool) {
        self.leases_of_calls.lock().expect("no panic").push(leases);
    }

    #[cfg(not(all(test, feature = "leases", not(limiter_loom))))]
    fn record_leases(&self, _: bool) {}

    /// Returns the settings of leases of the calls since the last time.
    #[cfg(all(test, feature = "leases", not(limiter_loom)))]
    pub(crate) fn take_leases_of_calls(&self) -> Vec<bool> {
        std::mem::take(&mut *self.leases_of_calls.lock().expect("no panic"))
    }

    /// Decides without taking permits, by the store or by the failure policy.
    pub(crate) async fn peek(
        &self,
        requests: &[Request<'_>],
        options: CallOptions,
        observers: &Observers,
    ) -> Result<Resolution, Error> {
        let call = StoreCall::begin(StoreOp::Peek);
        let peeked = self.store.peek(requests, &options).await;
        call.end(peeked.is_ok());
        let error = match peeked {
            Ok(counted) => return Ok(Resolution::Counted(counted)),
            Err(failure) => failure.error,
        };
        let count = |on_error| match on_error {
            OnError::Standby => self.local().peek_by_standby(requests).map(Some),
            _ => Ok(None),
        };
        apply_policy(observers, error, options.on_error, count)
    }

    /// Refunds permits to the store and its mirror, or to the standby limiter that granted them. The cost of a request
    /// is what the call holds. No failure policy applies: a failure is returned.
    pub(crate) async fn refund(
        &self,
        requests: &[Request<'_>],
        refund_info: RefundInfo,
        observers: &Observers,
    ) -> Result<(), Error> {
        match refund_info.source {
            Source::Lease if self.local().put_back(requests, &refund_info) => Ok(()),
            Source::Store | Source::Lease => {
                let call = StoreCall::begin(StoreOp::Refund);
                let refunded = self.store.refund(requests, refund_info).await;
                call.end(refunded.is_ok());
                self.local().invalidate_denials(requests);
                refunded.inspect_err(|error| observers.failed(error))
            }
            Source::Standby => {
                self.local().refund_by_standby(requests, &refund_info);
                Ok(())
            }
            // Nothing was granted.
            Source::Policy | Source::DeniedUntil | Source::Mode => Ok(()),
        }
    }

    /// Ends the lease of a counter and returns what is left of it, so that the store can forget those permits as well.
    async fn end_lease(&self, key: &Key, limit: Limit) {
        let Some(ended) = self.local().end_lease_of(key, limit) else { return };
        if ended.unused > 0 {
            let request = Request::new(key, limit, ended.unused);
            // If it fails, the permits count until their stamp expires.
            let _ = self.store.refund(&[request], RefundInfo::from_lease(ended.id, ended.mirror_stamp)).await;
        }
    }

    /// Resets a key in the standby limiter and in the store. No failure policy applies: a failure is returned.
    pub(crate) async fn reset(&self, key: &Key, limit: Limit, observers: &Observers) -> Result<(), Error> {
        self.end_lease(key, limit).await;
        self.local().reset(key, limit);
        let call = StoreCall::begin(StoreOp::Reset);
        let result = self.store.reset(key, limit).await;
        call.end(result.is_ok());
        self.local().invalidate_denials(&[Request::new(key, limit, 0)]);
        result.inspect_err(|error| observers.failed(error))
    }
}

#[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "only the store on Redis has tickets and leases"))]
impl RemoteStore {
    async fn take(
        &self,
        ticket: StoreTicket,
        requests: &[Request<'_>],
        options: &CallOptions,
    ) -> Result<CountedReply, StoreFailure> {
        match_store!(self, {
            Redis(store) => store.take(ticket, requests, options).await,
            Slow(store, _) => store.take(requests, options).await,
            Failing(error, _) => Err(StoreFailure { error: error.clone(), reservation: None }),
        })
    }

    /// Requests the next lease of a counter, and does not wait for it.
    fn renew_lease(&self, request: &Request<'_>) {
        match_store!(self, {
            Redis(store) => store.renew_lease(request),
            Slow(..) => {},
            Failing(..) => {},
        });
    }

    async fn peek(&self, requests: &[Request<'_>], options: &CallOptions) -> Result<CountedReply, StoreFailure> {
        match_store!(self, {
            Redis(store) => store.peek(requests, options).await,
            Slow(store, _) => store.peek(requests, options).await,
            Failing(error, _) => Err(StoreFailure { error: error.clone(), reservation: None }),
        })
    }

    async fn refund(&self, requests: &[Request<'_>], refund_info: RefundInfo) -> Result<(), Error> {
        match_store!(self, {
            Redis(store) => store.refund(requests, refund_info).await,
            Slow(store, _) => store.refund(requests, refund_info).await,
            Failing(error, _) => Err(error.clone()),
        })
    }

    async fn reset(&self, key: &Key, limit: Limit) -> Result<(), Error> {
        match_store!(self, {
            Redis(store) => store.reset(key, limit).await,
            Slow(store, _) => store.reset(key, limit).await,
            Failing(error, _) => Err(error.clone()),
        })
    }
}
