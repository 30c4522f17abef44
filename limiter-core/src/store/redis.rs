//! The store that processes share: one Redis, or the nodes of a cluster, talked to from one thread.
//!
//! A decision is one script call, or a part of one that many go in; see `lua/`. Only keys in several slots of a cluster,
//! or in one that moves, take more. A call is handed to a thread of the store's own, which keeps a connection to each server, watches the
//! deadlines and answers every call in time, so that it makes no difference which runtime a
//! caller is on, or whether it is on any. The thread stops with the store.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::local::{LocalState, LocalStateOptions};
use crate::request::Request;
use crate::request::{CallOptions, CountedReply, RefundInfo, StoreFailure};
use crate::source::Source;
use crate::store::naming::Naming;
use crate::sync::process::PerProcess;
use crate::{Error, ErrorKind, Key, Limit};

mod server_text;
mod log_throttle;
mod command_error;
mod script;
mod server;
mod endpoint;
mod ready_signal;
mod connection;
mod worker;
mod worker_handle;

pub(crate) use endpoint::Endpoint;
pub(crate) use ready_signal::ReadySignal;
pub use server::Credentials;
#[cfg(feature = "tls")]
pub use server::Tls;
pub(crate) use server::{Provider, Server};
use worker::call::{Action, Reply};
use worker_handle::WorkerHandle;

/// A handle to the thread that talks to Redis.
#[derive(Debug)]
pub(crate) struct RedisStore {
    workers: PerProcess<WorkerHandle>,
    /// What a worker is started with, in this process or in a child of it.
    place: Endpoint,
    options: Options,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) naming: Arc<Naming>,
    pub(crate) deadline: Duration,
    pub(crate) max_in_flight: u32,
    pub(crate) clock: Clock,
    pub(crate) local: LocalStateOptions,
}

impl RedisStore {
    /// Starts the thread, which connects at once. If somebody waits to be `connected`, the first failure ends it.
    pub(crate) fn start(place: Endpoint, options: Options, connected: Option<ReadySignal>) -> Result<Self, Error> {
        let worker = WorkerHandle::start(&place, &options, options.local.new_state(), connected)?;
        Ok(Self { workers: PerProcess::with(worker), place, options })
    }

    /// What the latest worker keeps up to date.
    pub(crate) fn local(&self) -> &LocalState {
        self.latest().local()
    }

    fn latest(&self) -> &WorkerHandle {
        self.workers.latest().expect("a store begins with a worker")
    }

    /// The worker of this process. A child of `fork` starts one at its first call, with a connection of its own.
    fn worker(&self) -> Result<&WorkerHandle, Error> {
        self.workers.get_or_make(|| {
            WorkerHandle::start(&self.place, &self.options, self.options.local.new_state_in_child(), None).map_err(
                |error| {
                    let problem = "the limiter cannot be started anew in this process, which was forked";
                    Error::with_source(ErrorKind::Forked, problem, error)
                },
            )
        })
    }

    /// The worker that a call is handed to, unless an open breaker refuses it.
    fn worker_for(&self, requests: &[Request<'_>]) -> Result<&WorkerHandle, Error> {
        let worker = self.worker()?;
        worker.refusal(requests, &self.options.naming).map_or(Ok(worker), Err)
    }

    /// Decides, and takes the permits if they fit.
    pub(crate) async fn take(
        &self,
        requests: &[Request<'_>],
        terms: &CallOptions,
    ) -> Result<CountedReply, StoreFailure> {
        let reply = self.ask(Action::Take { max_wait: terms.max_wait }, requests, terms.deadline).await;
        if let Ok(CountedReply { answer, source: Source::Store, .. }) = &reply
            && answer.allowed
        {
            self.latest().written();
        }
        reply
    }

    /// What [`take`](Self::take) would say, taking nothing.
    pub(crate) async fn peek(
        &self,
        requests: &[Request<'_>],
        terms: &CallOptions,
    ) -> Result<CountedReply, StoreFailure> {
        self.ask(Action::Peek, requests, terms.deadline).await
    }

    /// Gives back what was taken.
    pub(crate) async fn refund(&self, requests: &[Request<'_>], granted: RefundInfo) -> Result<(), Error> {
        self.ask(Action::Refund(Box::new(granted)), requests, None).await.map(drop).map_err(|failure| failure.error)
    }

    /// Forgets what a key has taken.
    pub(crate) async fn reset(&self, key: &Key, limit: Limit) -> Result<(), Error> {
        self.ask(Action::Reset, &[Request { key, limit, cost: 0 }], None)
            .await
            .map(drop)
            .map_err(|failure| failure.error)
    }

    async fn ask(&self, action: Action, requests: &[Request<'_>], within: Option<Duration>) -> Reply {
        if self.options.naming.would_expose_key(requests) {
            return Err(StoreFailure { error: readable(), reservation: None });
        }
        let worker = self.worker_for(requests).map_err(|error| StoreFailure { error, reservation: None })?;
        worker.ask(action, requests, within.unwrap_or(self.options.deadline)).await
    }
}

fn readable() -> Error {
    let problem = "a sorted set that others share is found by its key's own text, which `hash_keys` does not let out: use a \
                   limiter without it for this limit, or another layout";
    Error::new(ErrorKind::Config, problem)
}
