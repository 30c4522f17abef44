//! The store that processes share: one Redis, or the nodes of a cluster.
//!
//! A decision is one script call, or a part of a batch; see `script/lua/`. It takes more only if its keys are in
//! several slots of a cluster, or in one that is being migrated. Each call goes to the worker, a thread of the store's
//! own. It keeps a connection to each server and enforces the deadlines. So a caller may be on any runtime, or on none.
//! The thread ends with the store.

use std::sync::Arc;
#[cfg(feature = "rules")]
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

mod slot;
mod naming;
mod packed;
mod notifier;
mod busy_polling;
mod resp;
mod command_error;
mod pipelined;
mod health;
mod known_slots;
mod script;
mod server;
mod endpoint;
mod connection;
#[cfg(feature = "rules")]
mod shared_rules;
mod presence;
mod worker;
mod worker_handle;

pub(crate) use endpoint::Endpoint;
pub(crate) use naming::Secret;
pub use presence::Instance;
pub(crate) use presence::{ActivitySource, InventorySource, PresenceOptions, StreamId, StreamPart};
pub use server::Credentials;
pub(crate) use server::Provider;
#[cfg(feature = "tls")]
pub use server::Tls;
#[cfg(feature = "rules")]
pub(crate) use shared_rules::{CachedText, NewText, PublishedText, SharedTextObserver, StoredText, StoredVersion};

use busy_polling::usable_limit;
use endpoint::{ReadySignal, worker_stopped};
use health::HealthBoard;
use naming::{Naming, RedisKeys};
use presence::{FollowedVersion, PresenceCall};
use script::action::Action;
#[cfg(test)]
pub(crate) use script::slots::model::StoredSlots;
#[cfg(feature = "rules")]
use shared_rules::{ReplyTo, RulesCall};
use worker::call::CallResult;
use worker::receipts::check_mark;
use worker::{Renewal, WorkerSettings};
use worker_handle::WorkerHandle;

use once_cell::sync::OnceCell;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use crate::clock::Clock;
use crate::concurrency::{ShownKey, SlotOutbox};
use crate::health::{Health, HealthObservers, HealthState};
use crate::local::{Local, StoreTicket};
use crate::metrics::BatchSizes;
use crate::request::{CallOptions, OwnedRequest, RefundInfo, Request, Settlement, StoreFailure};
use crate::sync::process::AtHome;
use crate::{Error, Key};

/// A handle to the worker.
#[derive(Debug)]
pub(crate) struct RedisStore {
    /// Started with the limiter, or by the first call of a child of `fork`.
    worker: OnceCell<WorkerHandle>,
    endpoint: Endpoint,
    naming: Arc<Naming>,
    options: Options,
    /// The user of the shared rules, once the limiter follows them.
    #[cfg(feature = "rules")]
    rules_observer: Arc<OnceLock<Arc<dyn SharedTextObserver>>>,
}

/// The options of a store, and what it shares with its limiter.
#[derive(Debug)]
pub(crate) struct Options {
    /// The start of the names of its keys.
    pub(crate) prefix: String,
    /// The secret that replaces keys by digests in names.
    pub(crate) secret: Option<Secret>,
    pub(crate) deadline: Duration,
    pub(crate) busy_poll: Duration,
    pub(crate) max_in_flight: u32,
    pub(crate) clock: Clock,
    pub(crate) local: Arc<Local>,
    pub(crate) health_observers: Arc<HealthObservers>,
    pub(crate) presence: PresenceOptions,
}

impl RedisStore {
    /// Creates a store that is not started yet.
    pub(crate) fn new(endpoint: Endpoint, options: Options) -> Self {
        let naming = Arc::new(Naming::new(&options.prefix, options.secret.clone(), endpoint.is_cluster()));
        Self {
            worker: OnceCell::new(),
            endpoint,
            naming,
            options,
            #[cfg(feature = "rules")]
            rules_observer: Arc::default(),
        }
    }

    /// Starts the worker, which connects at once.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.worker.get_or_try_init(|| self.start_worker(None)).map(drop)
    }

    /// Starts the worker, and waits for the result of its first attempt to connect.
    ///
    /// # Errors
    /// The system cannot start a thread, or the attempt has failed.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        let (ready, is_ready) = ReadySignal::channel();
        self.worker.get_or_try_init(|| self.start_worker(Some(ready)))?;
        is_ready.await
    }

    fn start_worker(&self, ready: Option<ReadySignal>) -> Result<WorkerHandle, Error> {
        let Options { deadline, busy_poll, max_in_flight, clock, local, health_observers, presence, .. } =
            &self.options;
        let settings = WorkerSettings {
            naming: Arc::clone(&self.naming),
            deadline: *deadline,
            busy_poll: usable_limit(*busy_poll),
            clock: clock.clone(),
            local: Arc::clone(local),
            health: Arc::new(HealthBoard::new(
                self.endpoint.to_string(),
                health_observers,
                presence.instances().clone(),
            )),
            batch_sizes: BatchSizes::new(),
            has_slot_notices: Arc::default(),
            presence: presence.clone(),
            followed_version: self.followed_version(),
        };
        WorkerHandle::start(&self.endpoint, settings, *max_in_flight, ready)
    }

    /// Returns a function that returns the version of the shared rules in force, if the limiter follows them.
    fn followed_version(&self) -> FollowedVersion {
        #[cfg(feature = "rules")]
        let observer = Arc::clone(&self.rules_observer);
        #[cfg(feature = "rules")]
        return Arc::new(move || observer.get().map(|observer| observer.version()));
        #[cfg(not(feature = "rules"))]
        Arc::new(|| None)
    }

    /// Lists the limiters that write heartbeats.
    ///
    /// # Errors
    /// The failure of the store.
    pub(crate) async fn instances(&self) -> Result<Vec<Instance>, Error> {
        self.ask_presence(PresenceCall::Instances).await
    }

    /// Reads the text of an inventory.
    ///
    /// # Errors
    /// The failure of the store.
    pub(crate) async fn inventory(&self, digest: &str) -> Result<Option<String>, Error> {
        self.ask_presence(|reply_to| PresenceCall::Inventory(digest.to_owned(), reply_to)).await
    }

    /// Reads the entries of activity behind this one.
    ///
    /// # Errors
    /// The failure of the store.
    pub(crate) async fn activity(&self, behind: Option<StreamId>) -> Result<StreamPart, Error> {
        self.ask_presence(|reply_to| PresenceCall::Activity(behind, reply_to)).await
    }

    async fn ask_presence<T: Send + 'static>(
        &self,
        question: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> PresenceCall,
    ) -> Result<T, Error> {
        let (reply_to, reply) = oneshot::channel();
        self.worker()?.send_presence_call(question(reply_to));
        AtHome::new(unconstrained(reply)).await?.unwrap_or_else(|_| Err(worker_stopped()))
    }

    /// Returns the health of the store. It starts the worker, as a call would.
    pub(crate) fn health(&self) -> Health {
        match self.worker() {
            Ok(worker) => worker.health(),
            Err(error) => Health::new(HealthState::after(&error), SystemTime::now(), Some(self.endpoint.to_string())),
        }
    }

    /// Returns the worker, and starts it in a child of `fork`.
    fn worker(&self) -> Result<&WorkerHandle, Error> {
        self.worker.get_or_try_init(|| {
            let worker = self.start_worker(None)?;
            #[cfg(feature = "rules")]
            if let Some(observer) = self.rules_observer.get() {
                worker.send_rules_call(RulesCall::Follow { observer: Arc::clone(observer), first: None });
            }
            Ok(worker)
        })
    }

    /// Returns a function that does as [`subject`](Self::subject) does.
    pub(crate) fn shown_key(&self) -> ShownKey {
        let naming = Arc::clone(&self.naming);
        Box::new(move |key| naming.subject(key).to_string())
    }

    /// The way of orders about slots to the worker.
    ///
    /// # Errors
    /// The worker of this process cannot be started.
    pub(crate) fn slot_outbox(&self) -> Result<Box<dyn SlotOutbox>, Error> {
        Ok(Box::new(self.worker()?.slot_sender()))
    }

    /// Follows the shared rules as the store of a parent of this process does.
    #[cfg(feature = "rules")]
    pub(crate) fn follow_rules_as(&self, parent: &Self) {
        if let Some(observer) = parent.rules_observer.get() {
            let _ = self.rules_observer.set(Arc::clone(observer));
        }
    }

    /// Follows the shared rules. The future returns when they were read once.
    ///
    /// # Errors
    /// The failure of the store. A text that is missing or cannot be used is none.
    #[cfg(feature = "rules")]
    pub(crate) fn follow_rules(
        &self,
        observer: Arc<dyn SharedTextObserver>,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        let (first, is_read) = oneshot::channel();
        let worker = self.worker();
        let _ = self.rules_observer.set(Arc::clone(&observer));
        if let Ok(worker) = worker {
            worker.send_rules_call(RulesCall::Follow { observer, first: Some(first) });
        }
        // As for a call, tokio's budget does not apply.
        let is_read = AtHome::new(unconstrained(is_read));
        async { is_read.await?.unwrap_or_else(|_| Err(worker_stopped())) }
    }

    /// Reads the present text of the shared rules. Its version is 0 if there is none.
    ///
    /// # Errors
    /// The failure of the store.
    #[cfg(feature = "rules")]
    pub(crate) async fn read_rules(&self) -> Result<PublishedText, Error> {
        self.call_rules(|reply_to| RulesCall::Read { reply_to }).await
    }

    /// Reads the newest entries of the history of the shared rules, from the newest.
    ///
    /// # Errors
    /// The failure of the store.
    #[cfg(feature = "rules")]
    pub(crate) async fn rules_history(&self, max_entries: usize) -> Result<Vec<PublishedText>, Error> {
        self.call_rules(|reply_to| RulesCall::History { max_entries, reply_to }).await
    }

    /// Publishes a text of shared rules, and returns its version.
    ///
    /// # Errors
    /// The failure of the store. [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if the text is based on another
    /// version than the present one.
    #[cfg(feature = "rules")]
    pub(crate) async fn publish_rules(&self, text: NewText) -> Result<u64, Error> {
        self.call_rules(|reply_to| RulesCall::Publish { text: Box::new(text), reply_to }).await
    }

    #[cfg(feature = "rules")]
    async fn call_rules<T>(&self, call: impl FnOnce(ReplyTo<T>) -> RulesCall) -> Result<T, Error> {
        let (reply_to, reply) = oneshot::channel();
        self.worker()?.send_rules_call(call(reply_to));
        AtHome::new(unconstrained(reply)).await?.unwrap_or_else(|_| Err(worker_stopped()))
    }

    /// The place of the shared rules in one line: the URLs of the servers, the database and the prefix, without user and
    /// password.
    #[cfg(feature = "rules")]
    pub(crate) fn rules_place(&self) -> String {
        let (prefix, database) = (self.naming.prefix(), self.endpoint.database());
        format!("{}, database {database}, prefix `{prefix}`", self.endpoint)
    }

    /// The start of the names of its keys.
    pub(crate) fn prefix(&self) -> &str {
        self.naming.prefix()
    }

    /// Returns whether names have digests in place of keys.
    pub(crate) fn hashes_keys(&self) -> bool {
        self.options.secret.is_some()
    }

    /// The name of a request's counter; `None` if it would contain a key that must be hidden.
    pub(crate) fn key_name(&self, request: &Request<'_>) -> Option<String> {
        self.naming.name(request)
    }

    /// A key as it appears in names.
    pub(crate) fn subject(&self, key: &Key) -> String {
        self.naming.subject(key).to_string()
    }

    /// Decides, and takes the permits if they fit.
    pub(crate) fn take(
        &self,
        ticket: StoreTicket,
        requests: &[Request<'_>],
        options: &CallOptions,
    ) -> impl Future<Output = CallResult> {
        self.call(ticket, Action::take(requests, options), requests, options.deadline)
    }

    /// Returns the reply that [`take`](Self::take) would give, and takes nothing.
    pub(crate) fn peek(&self, requests: &[Request<'_>], options: &CallOptions) -> impl Future<Output = CallResult> {
        let action = if options.wants_reports { Action::PeekWithReports } else { Action::Peek };
        self.call(StoreTicket::without_look_up(requests), action, requests, options.deadline)
    }

    /// Counts permits whether they fit or not. The reply has the charge of each request.
    pub(crate) fn charge(&self, requests: &[Request<'_>], options: &CallOptions) -> impl Future<Output = CallResult> {
        self.call(StoreTicket::without_look_up(requests), Action::Charge, requests, options.deadline)
    }

    /// Requests the renewal of what this process has taken ahead of a counter, and does not wait for it.
    pub(crate) fn renew(&self, request: &Request<'_>) {
        let request = Request { cost: 0, ..*request };
        // A call by the store meets the same errors, and reports them.
        if let (Ok(keys), Ok(worker)) = (RedisKeys::new(&[request], &self.naming), self.worker()) {
            worker.send_renewal(Renewal { request: OwnedRequest::from(&request), keys });
        }
    }

    /// Gives permits back.
    pub(crate) async fn refund(&self, requests: &[Request<'_>], info: RefundInfo) -> Result<(), Error> {
        let (ticket, action) = (StoreTicket::without_look_up(requests), Action::Refund(Box::new(info)));
        let result = self.call(ticket, action, requests, None).await;
        result.map(drop).map_err(|failure| failure.error)
    }

    /// Changes what a call counts, of permits that are returned to the store or charged there. The cost of a request is what
    /// it counts before. The reply has the charge of each request.
    pub(crate) async fn settle(
        &self,
        requests: &[Request<'_>],
        settlement: Settlement,
        options: &CallOptions,
    ) -> CallResult {
        let (ticket, action) = (StoreTicket::without_look_up(requests), Action::Settle(Box::new(settlement)));
        self.call(ticket, action, requests, options.deadline).await
    }

    /// Checks that one script call can settle a receipt of these requests.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if it cannot.
    pub(crate) fn check_receipt(&self, requests: &[Request<'_>]) -> Result<(), Error> {
        let keys = RedisKeys::new(requests, &self.naming)?;
        check_mark(keys.as_slice(), &self.naming)
    }

    /// Deletes the counter of a request, and the block of its key.
    pub(crate) async fn reset(&self, request: &Request<'_>) -> Result<(), Error> {
        let requests = [Request { cost: 0, ..*request }];
        let ticket = StoreTicket::without_look_up(&requests);
        let result = self.call(ticket, Action::Reset, &requests, None).await;
        result.map(drop).map_err(|failure| failure.error)
    }

    async fn call(
        &self,
        ticket: StoreTicket,
        action: Action,
        requests: &[Request<'_>],
        timeout: Option<Duration>,
    ) -> CallResult {
        let worker = self.worker().map_err(|error| StoreFailure { error, reservation: None })?;
        let timeout = timeout.unwrap_or(self.options.deadline);
        worker.call(ticket, action, requests, &self.naming, timeout).await
    }
}
