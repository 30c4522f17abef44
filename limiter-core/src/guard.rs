//! The guard of a shared store: a call whose store fails is decided by the failure policy.

use std::sync::Arc;
use std::time::SystemTime;

use crate::clock::Clock;
use crate::concurrency::{FailingOutbox, ShownKey, SlotOutbox};
use crate::decision::Resolution;
use crate::error::{Error, ErrorKind, OnError, Source};
use crate::failure_policy::apply_policy;
use crate::health::{Health, HealthState};
use crate::key::Key;
use crate::local::{Local, LocalDecision, StoreTicket};
use crate::metrics::{StoreCall, StoreOp, StoreUp};
use crate::observer::Observers;
use crate::request::settlement::{self, Settlement};
use crate::request::sharing::{in_memory, in_redis};
use crate::request::{CallOptions, CountedReply, DecisionReply, RefundInfo, Request, StoreFailure};
#[cfg(feature = "redis")]
use crate::store::RedisStore;
#[cfg(feature = "test-util")]
use crate::store::SlowStore;
use crate::sync::process::Process;

/// A store that may fail, with the failure policy for its calls.
#[derive(Debug)]
pub(crate) struct Guard {
    store: RemoteStore,
    /// The state beside the store.
    local: Arc<Local>,
    /// The process whose calls these are.
    process: Process,
    /// The metric of the store's state.
    _store_up: Option<StoreUp>,
}

/// A store that several processes share.
#[derive(Debug)]
pub(crate) enum RemoteStore {
    #[cfg(feature = "redis")]
    Redis(Box<RedisStore>),
    /// No store: the environment's URL cannot be used, or a test has none. Each call fails with this error.
    Failing(Error),
    #[cfg(feature = "test-util")]
    Slow(Box<SlowStore>),
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
    pub(crate) fn new(store: RemoteStore, local: Arc<Local>) -> Self {
        Self {
            _store_up: match_store!(&store, {
                Redis(_) => None,
                Slow(..) => Some(StoreUp::new(HealthState::Up)),
                Failing(..) => Some(StoreUp::new(HealthState::Down)),
            }),
            store,
            local,
            process: Process::current(),
        }
    }

    /// Adds the metric of a store whose state changes.
    pub(crate) fn with_store_up(self, store_up: StoreUp) -> Self {
        Self { _store_up: Some(store_up), ..self }
    }

    /// The error of a store that fails each call, because the limiter could not be configured.
    pub(crate) fn permanent_failure(&self) -> Option<&Error> {
        match_store!(&self.store, {
            Redis(_) => None,
            Slow(..) => None,
            Failing(error) => Some(error),
        })
    }

    /// The store on Redis. `None` for the others, which are of tests or cannot be used.
    #[cfg(feature = "redis")]
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

    /// Returns a function that does as [`subject`](Self::subject) does, for reports without a call.
    pub(crate) fn shown_key(&self) -> ShownKey {
        match_store!(&self.store, {
            Redis(store) => store.shown_key(),
            Slow(..) => Box::new(Key::encoded),
            Failing(..) => Box::new(Key::encoded),
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

    /// Decides by the store, or by the failure policy if the store fails. Without a ticket it looks the requests up
    /// first, unless they may wait.
    pub(crate) async fn decide(
        &self,
        requests: &[Request<'_>],
        options: CallOptions,
        ticket: Option<StoreTicket>,
        observers: &Observers,
    ) -> Result<Resolution, Error> {
        if let Err(error) = self.process.check() {
            return apply_policy(observers, error, options.on_error, |_| None);
        }
        let CallOptions { on_error, max_wait, .. } = options;
        self.local.note_options(&options);
        let ticket = match ticket {
            Some(ticket) => ticket,
            None if max_wait.is_zero() => match self.decide_locally(requests, &options, true) {
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
        if is_of_parent(&error) {
            return apply_policy(observers, error, on_error, |_| None);
        }
        let count = |on_error| self.count_failed(on_error, requests, &options, reservation);
        let resolution = apply_policy(observers, error, on_error, count)?;
        // The store has no record of permits that were granted just now, for a window from now.
        self.local.fail(requests.iter().copied());
        Ok(resolution)
    }

    /// Records that the store has failed a call, and counts the call in this process as the policy demands. The reply
    /// is the standby limiter's, if the policy needs one.
    fn count_failed(
        &self,
        on_error: OnError,
        requests: &[Request<'_>],
        options: &CallOptions,
        reservation: Option<DecisionReply>,
    ) -> Option<CountedReply> {
        let local = &self.local;
        if let (OnError::Closed | OnError::Raise, Some(reservation)) = (on_error, &reservation) {
            local.release(requests, reservation);
        }
        // The failure is recorded before the decision and after it. This task may have been woken late, and other calls
        // must consult the standby limiter meanwhile.
        local.fail(requests.iter().copied());
        let reply = match (on_error, reservation) {
            (OnError::Standby, reservation) => local.decide_by_standby(requests, options, reservation),
            (OnError::Open, None) => {
                local.record(requests);
                return None;
            }
            _ => return None,
        };
        Some(CountedReply::from_standby(reply))
    }

    /// Returns whether the store itself settles a receipt once. One that fails each call settles none.
    pub(crate) fn marks_receipts(&self) -> bool {
        match_store!(&self.store, {
            Redis(_) => true,
            Slow(..) => false,
            Failing(_) => true,
        })
    }

    /// Checks that the store can settle a receipt of these requests, and mark it as used, in one script call.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it cannot.
    pub(crate) fn check_receipt(&self, requests: &[Request<'_>]) -> Result<(), Error> {
        match_store!(&self.store, {
            Redis(store) => store.check_receipt(requests),
            Slow(..) => Ok(()),
            Failing(_) => Ok(()),
        })
    }

    /// Returns whether other processes use the store.
    pub(crate) fn is_shared(&self) -> bool {
        match_store!(&self.store, {
            Redis(_) => true,
            Slow(..) => false,
            Failing(..) => false,
        })
    }

    /// The way of messages about slots to the store. `None` for a slow one, whose calls have the slots of this process.
    pub(crate) fn slot_outbox(&self, clock: &Clock) -> Option<Box<dyn SlotOutbox>> {
        let failing = |error| -> Box<dyn SlotOutbox> { Box::new(FailingOutbox { error, clock: clock.clone() }) };
        match_store!(&self.store, {
            Redis(store) => Some(store.slot_outbox().unwrap_or_else(failing)),
            Slow(..) => None,
            Failing(error) => Some(failing(error.clone())),
        })
    }

    /// Decides by the store, past the denial cache, about a waiting call whose cached denial may be outdated by another
    /// process. `None` if the store fails. No observer, metric or policy applies: the call has its own check later.
    pub(crate) async fn check_again(&self, requests: &[Request<'_>], options: CallOptions) -> Option<Resolution> {
        self.process.check().ok()?;
        match self.store.take(StoreTicket::without_look_up(requests), requests, &options).await {
            Ok(counted) => Some(Resolution::Counted(counted)),
            Err(StoreFailure { error, .. }) if is_of_parent(&error) => None,
            Err(StoreFailure { reservation, .. }) => {
                let local = &self.local;
                if let Some(reservation) = &reservation {
                    local.release(requests, reservation);
                }
                local.fail(requests.iter().copied());
                None
            }
        }
    }

    /// Decides in this process, if that is possible.
    ///
    /// # Errors
    /// The store has to decide.
    pub(crate) fn decide_locally(
        &self,
        requests: &[Request<'_>],
        options: &CallOptions,
        needs_receipt: bool,
    ) -> Result<Resolution, StoreTicket> {
        self.local.note_options(options);
        match self.local.try_decide(requests, options, needs_receipt) {
            LocalDecision::Granted(grant) => {
                if grant.needs_renewal {
                    self.store.renew(&requests[0]);
                }
                Ok(Resolution::Granted(grant))
            }
            LocalDecision::Denied(denial) => Ok(Resolution::Counted(CountedReply::from_denial_cache(denial))),
            LocalDecision::Ask(ticket) => Err(ticket),
        }
    }

    /// Decides without taking permits, by the store or by the failure policy.
    pub(crate) async fn peek(
        &self,
        requests: &[Request<'_>],
        options: CallOptions,
        observers: &Observers,
    ) -> Result<Resolution, Error> {
        if let Err(error) = self.process.check() {
            return apply_policy(observers, error, options.on_error, |_| None);
        }
        let call = StoreCall::begin(StoreOp::Peek);
        let peeked = self.store.peek(requests, &options).await;
        call.end(peeked.is_ok());
        let error = match peeked {
            Ok(counted) => return Ok(Resolution::Counted(counted)),
            Err(failure) => failure.error,
        };
        let is_of_parent = is_of_parent(&error);
        let count = |on_error| {
            (on_error == OnError::Standby && !is_of_parent).then(|| self.local.peek_by_standby(requests, &options))
        };
        apply_policy(observers, error, options.on_error, count)
    }

    /// Counts permits whether they fit or not. A failure is returned, unless the policy is
    /// [`OnError::Standby`]: the standby limiter counts them then.
    pub(crate) async fn charge(
        &self,
        requests: &[Request<'_>],
        options: &CallOptions,
        observers: &Observers,
    ) -> Result<CountedReply, Error> {
        self.process.check().inspect_err(|error| observers.failed(error))?;
        let call = StoreCall::begin(StoreOp::Charge);
        let charged = self.store.charge(requests, options).await;
        call.end(charged.is_ok());
        charged.or_else(|failure| self.charge_failed(failure.error, requests, options, observers))
    }

    /// Applies the policy to a charge that the store has failed.
    fn charge_failed(
        &self,
        error: Error,
        requests: &[Request<'_>],
        options: &CallOptions,
        observers: &Observers,
    ) -> Result<CountedReply, Error> {
        let is_of_parent = is_of_parent(&error);
        // The failure is recorded before and after the charge: the store has no record of it, for as long as it counts.
        let count = |on_error| {
            if is_of_parent {
                return None;
            }
            self.local.fail(requests.iter().copied());
            self.local.invalidate_denials(requests);
            (on_error == OnError::Standby).then(|| {
                let counted = self.local.charge_by_standby(requests);
                self.local.fail(requests.iter().copied());
                counted
            })
        };
        match apply_policy(observers, error.clone(), options.on_error, count)? {
            Resolution::Counted(counted) => Ok(counted),
            _ => Err(error),
        }
    }

    /// Changes what a call counts: less is given back as by [`refund`](Self::refund), more is charged as by
    /// [`charge`](Self::charge). The cost of a request is what it counts before.
    ///
    /// What permits of a lease cost in addition is taken from a lease of this process, if that has as many.
    pub(crate) async fn settle(
        &self,
        requests: &[Request<'_>],
        settlement: Settlement,
        options: &CallOptions,
        observers: &Observers,
    ) -> Result<CountedReply, Error> {
        self.process.check()?;
        let is_standby = settlement.info.source == Source::Standby;
        let changes = settlement.changes(requests, if is_standby { in_memory } else { in_redis });
        let charged = settlement::charged(&changes);
        let returns_any = changes.iter().any(|change| change.returned > 0);
        let charges_any = charged.iter().any(|request| request.cost > 0);
        match settlement.info.source {
            Source::Store if returns_any => {
                let call = StoreCall::begin(StoreOp::Settle);
                let settled = self.store.settle(requests, settlement, options).await;
                call.end(settled.is_ok());
                match settled {
                    Ok(counted) => Ok(counted),
                    Err(failure) if charges_any => self.charge_failed(failure.error, &charged, options, observers),
                    // What was not given back still counts. It may be back all the same.
                    Err(StoreFailure { error, .. }) => {
                        if !is_of_parent(&error) {
                            self.local.invalidate_denials(requests);
                        }
                        observers.failed(&error);
                        Err(error)
                    }
                }
            }
            Source::Standby => {
                let counted = self.local.return_to_standby(&changes, &settlement.info);
                if charges_any { self.charge(&charged, options, observers).await } else { Ok(counted) }
            }
            Source::Lease => {
                if returns_any {
                    let returned = settlement.info.with_max_permits(changes[0].returned);
                    self.refund(requests, returned, observers).await?;
                }
                let Some(grant) = self.local.charge_lease(&charged) else {
                    let counted = self.charge(&charged, options, observers).await;
                    // The permits are back, and only the level is unknown.
                    return counted
                        .or_else(|error| if charges_any { Err(error) } else { Ok(CountedReply::of_no_charge()) });
                };
                if grant.needs_renewal {
                    self.store.renew(&charged[0]);
                }
                Ok(grant.into_charge())
            }
            _ => self.charge(&charged, options, observers).await,
        }
    }

    /// Settles the permits of a receipt once, whatever process has taken them. No failure policy applies: a failure is
    /// returned, and the receipt may be used again. It is marked together with the settlement.
    pub(crate) async fn settle_receipt(
        &self,
        requests: &[Request<'_>],
        settlement: Settlement,
        options: &CallOptions,
        observers: &Observers,
    ) -> Result<CountedReply, Error> {
        self.process.check()?;
        let call = StoreCall::begin(StoreOp::Settle);
        let settled = self.store.settle(requests, settlement, options).await.map_err(|failure| failure.error);
        call.end(settled.is_ok());
        if !settled.as_ref().is_err_and(is_of_parent) {
            self.local.invalidate_denials(requests);
        }
        settled.inspect_err(|error| observers.failed(error))
    }

    /// Refunds permits to the store and its mirror, or to the standby limiter that granted them. The cost of a request
    /// is what the call holds. No failure policy applies: a failure is returned.
    pub(crate) async fn refund(
        &self,
        requests: &[Request<'_>],
        refund_info: RefundInfo,
        observers: &Observers,
    ) -> Result<(), Error> {
        self.process.check()?;
        if self.local.refund(requests, &refund_info) {
            return Ok(());
        }
        let call = StoreCall::begin(StoreOp::Refund);
        let refunded = self.store.refund(requests, refund_info).await;
        call.end(refunded.is_ok());
        if !refunded.as_ref().is_err_and(is_of_parent) {
            self.local.invalidate_denials(requests);
        }
        refunded.inspect_err(|error| observers.failed(error))
    }

    /// Resets a key in the standby limiter and in the store. No failure policy applies: a failure is returned.
    pub(crate) async fn reset(&self, request: &Request<'_>, observers: &Observers) -> Result<(), Error> {
        let &Request { key, limit, .. } = request;
        self.process.check()?;
        if let Some((unused, refund_info)) = self.local.begin_reset(key, limit) {
            // If it fails, the permits count until their stamp expires.
            let ended = self.store.refund(&[Request::new(key, limit, unused)], refund_info).await;
            ended.or_else(|error| if is_of_parent(&error) { Err(error) } else { Ok(()) })?;
        }
        self.local.reset(request);
        let call = StoreCall::begin(StoreOp::Reset);
        let result = self.store.reset(request).await;
        call.end(result.is_ok());
        if !result.as_ref().is_err_and(is_of_parent) {
            self.local.invalidate_denials(&[*request]);
        }
        result.inspect_err(|error| observers.failed(error))
    }
}

/// Returns whether a call belongs to a parent of this process, whose state must not be used here: its locks may be held
/// for ever.
fn is_of_parent(error: &Error) -> bool {
    error.kind() == ErrorKind::Forked
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
            Slow(store) => store.take(requests, options).await,
            Failing(error) => Err(StoreFailure { error: error.clone(), reservation: None }),
        })
    }

    /// Requests the renewal of what this process has taken ahead of a counter, and does not wait for it.
    fn renew(&self, request: &Request<'_>) {
        match_store!(self, {
            Redis(store) => store.renew(request),
            Slow(..) => {},
            Failing(..) => {},
        });
    }

    async fn peek(&self, requests: &[Request<'_>], options: &CallOptions) -> Result<CountedReply, StoreFailure> {
        match_store!(self, {
            Redis(store) => store.peek(requests, options).await,
            Slow(store) => store.peek(requests, options).await,
            Failing(error) => Err(StoreFailure { error: error.clone(), reservation: None }),
        })
    }

    async fn charge(&self, requests: &[Request<'_>], options: &CallOptions) -> Result<CountedReply, StoreFailure> {
        match_store!(self, {
            Redis(store) => store.charge(requests, options).await,
            Slow(store) => store.charge(requests, options).await,
            Failing(error) => Err(StoreFailure { error: error.clone(), reservation: None }),
        })
    }

    async fn settle(
        &self,
        requests: &[Request<'_>],
        settlement: Settlement,
        options: &CallOptions,
    ) -> Result<CountedReply, StoreFailure> {
        match_store!(self, {
            Redis(store) => store.settle(requests, settlement, options).await,
            Slow(store) => store.settle(requests, settlement, options).await,
            Failing(error) => Err(StoreFailure { error: error.clone(), reservation: None }),
        })
    }

    async fn refund(&self, requests: &[Request<'_>], refund_info: RefundInfo) -> Result<(), Error> {
        match_store!(self, {
            Redis(store) => store.refund(requests, refund_info).await,
            Slow(store) => store.refund(requests, refund_info).await,
            Failing(error) => Err(error.clone()),
        })
    }

    async fn reset(&self, request: &Request<'_>) -> Result<(), Error> {
        match_store!(self, {
            Redis(store) => store.reset(request).await,
            Slow(store) => store.reset(request).await,
            Failing(error) => Err(error.clone()),
        })
    }
}
