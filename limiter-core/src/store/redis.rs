//! The store that processes share: one Redis, or the nodes of a cluster, talked to from one thread.
//!
//! A decision is one script call, or a part of one that many go in; see `lua/`. Only keys in several slots of a cluster,
//! or in one that moves, take more. A call is handed to a thread of the store's own, which keeps a connection to each server, watches the
//! deadlines and answers every call in time, so that it makes no difference which runtime a
//! caller is on, or whether it is on any. The thread stops with the store.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::decision::Source;
use crate::guard::{Failure, Granted, Local, Settled, Terms};
use crate::store::naming::Naming;
use crate::store::{Asked, Question, slot};
use crate::{Error, ErrorKind, Key, Limit};

mod call;
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

use call::{Action, Call, Reply, Until};
use in_flight::InFlight;
use notices::Notices;
use routes::Routes;
pub use server::Credentials;
#[cfg(feature = "tls")]
pub use server::Tls;
pub(crate) use server::{Provider, Server};

/// A handle to the thread that talks to Redis.
#[derive(Debug)]
pub(crate) struct RedisStore {
    calls: mpsc::UnboundedSender<Call>,
    routes: Arc<Routes>,
    naming: Arc<Naming>,
    deadline: Duration,
    in_flight: InFlight,
    notices: Notices,
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
}

pub(crate) struct Options {
    pub(crate) naming: Arc<Naming>,
    pub(crate) deadline: Duration,
    pub(crate) max_in_flight: u32,
    pub(crate) clock: Clock,
    pub(crate) local: Local,
}

impl RedisStore {
    /// Starts the thread, which connects at once. If somebody waits to be `connected`, the first failure ends it.
    pub(crate) fn start(place: Place, options: Options, connected: Option<Connected>) -> Result<Self, Error> {
        let (calls, queue) = mpsc::unbounded_channel();
        let (naming, deadline) = (Arc::clone(&options.naming), options.deadline);
        let routes = Arc::new(match place {
            Place::One(_) => Routes::one(),
            Place::Cluster(_) => Routes::slots(),
        });
        let in_flight = InFlight::new(options.max_in_flight);
        driver::spawn(place, Arc::clone(&routes), options, queue, connected)?;
        Ok(Self { calls, routes, naming, deadline, in_flight, notices: Notices::default() })
    }

    /// Decides, and takes the permits if they fit.
    pub(crate) async fn take(&self, questions: &[Question<'_>], terms: &Terms) -> Result<Settled, Failure> {
        let reply = self.ask(Action::Take { patience: terms.patience }, questions, terms.deadline).await;
        if let Ok(Settled { answer, source: Source::Store, .. }) = &reply
            && answer.allowed
        {
            self.notices.written();
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
        if self.naming.tells(questions) {
            return Err(Failure { error: readable(), held: None });
        }
        if let Some(error) = self.routes.refusal(questions, &self.naming) {
            return Err(Failure { error, held: None });
        }
        let _place = match self.in_flight.enter() {
            Ok(place) => place,
            Err(error) => {
                self.notices.failed(&error);
                return Err(Failure { error, held: None });
            }
        };
        let (reply, answer) = oneshot::channel();
        let until = Until::within(within.unwrap_or(self.deadline));
        let asked = Asked::all(questions);
        let call = Call { action, asked: Arc::clone(&asked), until, reply };
        // The thread answers every call it takes, and ends only with this store.
        let _ = self.calls.send(call);
        let mut reply = answer.await.unwrap_or_else(|_| Err(Failure { error: stopped(), held: None }));
        match &mut reply {
            Ok(settled) => settled.asked = Some(asked),
            Err(failure) => self.notices.failed(&failure.error),
        }
        reply
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
