//! The store that processes share: one Redis, or the nodes of a cluster, talked to from one thread.
//!
//! A decision is one script call, or a part of one that many go in; see `lua/`. Only keys in several slots of a cluster,
//! or in one that moves, take more. A call is handed to a thread of the store's own, which keeps a connection to each server, watches the
//! deadlines and answers every call in time, so that it makes no difference which runtime a
//! caller is on, or whether it is on any. The thread stops with the store.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::decision::Source;
use crate::guard::{Failure, Granted, Local, LocalSettings, Settled, Terms};
use crate::store::naming::Naming;
use crate::store::{Question, slot};
use crate::sync::process::PerProcess;
use crate::{Error, ErrorKind, Key, Limit};

mod call;
mod worker;
mod driver;
mod pending;
mod lane;
mod deadlines;
mod in_flight;
mod group;
mod by_count;
mod exchange;
mod script;

mod routes;
mod nodes;
mod cluster;
mod link;
mod breaker;
mod wire;
mod server;
mod failure;
mod foreign_text;
mod notices;
#[cfg(test)]
mod fuzz;

use call::{Action, Reply};
pub use server::Credentials;
#[cfg(feature = "tls")]
pub use server::Tls;
pub(crate) use server::{Provider, Server};
use worker::Worker;

/// A handle to the thread that talks to Redis.
#[derive(Debug)]
pub(crate) struct RedisStore {
    workers: PerProcess<Worker>,
    /// What a worker is started with, in this process or in a child of it.
    place: Place,
    options: Options,
}

/// Where the counts are.
pub(crate) enum Place {
    One(Box<Server>),
    /// Any nodes of a cluster, to ask about the others.
    Cluster(Vec<Server>),
}

impl Place {
    /// Slots that keys are spread over.
    pub(crate) fn slots(&self) -> u16 {
        match self {
            Self::One(_) => 1,
            Self::Cluster(_) => slot::COUNT,
        }
    }

    /// The same for a worker of its own, without what others have found out or wait for.
    fn anew(&self) -> Self {
        match self {
            Self::One(server) => Self::One(Box::new(server.anew())),
            Self::Cluster(seeds) => Self::Cluster(seeds.iter().map(Server::anew).collect()),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(server) => f.debug_tuple("One").field(server).finish(),
            Self::Cluster(seeds) => f.debug_tuple("Cluster").field(seeds).finish(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) naming: Arc<Naming>,
    pub(crate) deadline: Duration,
    pub(crate) max_in_flight: u32,
    pub(crate) clock: Clock,
    pub(crate) local: LocalSettings,
}

impl RedisStore {
    /// Starts the thread, which connects at once. If somebody waits to be `connected`, the first failure ends it.
    pub(crate) fn start(place: Place, options: Options, connected: Option<Connected>) -> Result<Self, Error> {
        let worker = Worker::start(&place, &options, options.local.local(), connected)?;
        Ok(Self { workers: PerProcess::with(worker), place, options })
    }

    /// What the latest worker keeps up to date.
    pub(crate) fn local(&self) -> &Local {
        self.latest().local()
    }

    fn latest(&self) -> &Worker {
        self.workers.latest().expect("a store begins with a worker")
    }

    /// The worker of this process. A child of `fork` starts one at its first call, with a connection of its own.
    fn worker(&self) -> Result<&Worker, Error> {
        self.workers.of_this_process(|| {
            Worker::start(&self.place, &self.options, self.options.local.local_of_child(), None).map_err(|error| {
                let problem = "the limiter cannot be started anew in this process, which was forked";
                Error::with_source(ErrorKind::Forked, problem, error)
            })
        })
    }

    /// The worker that a call is handed to, unless an open breaker refuses it.
    fn worker_for(&self, questions: &[Question<'_>]) -> Result<&Worker, Error> {
        let worker = self.worker()?;
        worker.refusal(questions, &self.options.naming).map_or(Ok(worker), Err)
    }

    /// Decides, and takes the permits if they fit.
    pub(crate) async fn take(&self, questions: &[Question<'_>], terms: &Terms) -> Result<Settled, Failure> {
        let reply = self.ask(Action::Take { patience: terms.patience }, questions, terms.deadline).await;
        if let Ok(Settled { answer, source: Source::Store, .. }) = &reply
            && answer.allowed
        {
            self.latest().written();
        }
        reply
    }

    /// What [`take`](Self::take) would say, taking nothing.
    pub(crate) async fn peek(&self, questions: &[Question<'_>], terms: &Terms) -> Result<Settled, Failure> {
        self.ask(Action::Peek, questions, terms.deadline).await
    }

    /// Gives back what was taken.
    pub(crate) async fn refund(&self, questions: &[Question<'_>], granted: Granted) -> Result<(), Error> {
        self.ask(Action::Refund(Box::new(granted)), questions, None).await.map(drop).map_err(|failure| failure.error)
    }

    /// Forgets what a key has taken.
    pub(crate) async fn reset(&self, key: &Key, limit: Limit) -> Result<(), Error> {
        self.ask(Action::Reset, &[Question { key, limit, cost: 0 }], None)
            .await
            .map(drop)
            .map_err(|failure| failure.error)
    }

    async fn ask(&self, action: Action, questions: &[Question<'_>], within: Option<Duration>) -> Reply {
        if self.options.naming.tells(questions) {
            return Err(Failure { error: readable(), held: None });
        }
        let worker = self.worker_for(questions).map_err(|error| Failure { error, held: None })?;
        worker.ask(action, questions, within.unwrap_or(self.options.deadline)).await
    }
}

fn readable() -> Error {
    let problem = "a sorted set that others share is found by its key's own text, which `hash_keys` does not let out: use a \
                   limiter without it for this limit, or another layout";
    Error::new(ErrorKind::Config, problem)
}

fn stopped() -> Error {
    Error::new(ErrorKind::Unavailable, "the thread that talks to Redis has stopped")
}

/// Tells whoever waits for a first connection how it went.
#[derive(Debug)]
pub(crate) struct Connected(oneshot::Sender<Result<(), Error>>);

impl Connected {
    pub(crate) fn channel() -> (Self, impl Future<Output = Result<(), Error>>) {
        let (sender, mut receiver) = oneshot::channel();
        let answer = poll_fn(move |context| {
            Pin::new(&mut receiver).poll(context).map(|told| told.unwrap_or_else(|_| Err(stopped())))
        });
        (Self(sender), answer)
    }

    fn tell(self, result: Result<(), Error>) {
        // Whoever waited may have been dropped; then the store is, too.
        let _ = self.0.send(result);
    }
}
