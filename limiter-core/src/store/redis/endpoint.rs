//! The server, or the nodes of a cluster, that hold a limiter's counters.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;

use tokio::sync::oneshot;
use tokio::task::unconstrained;

#[cfg(feature = "tls")]
use crate::store::redis::server::Tls;
use crate::store::redis::server::{Provider, Server};
use crate::store::redis::slot;
use crate::{Error, ErrorKind};

/// The servers of a store.
pub(crate) enum Endpoint {
    Single(Box<Server>),
    /// Seed nodes of a cluster, from which the other nodes are read.
    Cluster(Vec<Server>),
}

impl Endpoint {
    /// Parses a URL whose scheme is one of Redis.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a URL that names no server.
    pub(crate) fn from_url(url: &str) -> Result<Self, Error> {
        if url.starts_with("redis-cluster:") || url.starts_with("rediss-cluster:") {
            Server::seeds_from_url(url).map(Self::Cluster)
        } else {
            Server::from_url(url).map(|server| Self::Single(Box::new(server)))
        }
    }

    /// Returns the server that a client of the program connects to, with the client's user, database and certificates.
    pub(crate) fn from_client(client: &redis::Client) -> Self {
        Self::Single(Box::new(Server::from_client(client)))
    }

    /// Sets the certificates.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a server without TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(self, tls: &Tls) -> Result<Self, Error> {
        Ok(match self {
            Self::Single(server) => Self::Single(Box::new(server.with_tls(tls)?)),
            Self::Cluster(seeds) => {
                Self::Cluster(seeds.into_iter().map(|seed| seed.with_tls(tls)).collect::<Result<_, _>>()?)
            }
        })
    }

    /// Sets the provider of the user and the password. It is called before each attempt to connect.
    pub(crate) fn with_provider(self, provider: &Provider) -> Self {
        match self {
            Self::Single(server) => Self::Single(Box::new(server.with_provider(provider.clone()))),
            Self::Cluster(seeds) => {
                Self::Cluster(seeds.into_iter().map(|seed| seed.with_provider(provider.clone())).collect())
            }
        }
    }

    /// The number of slots that keys are distributed over.
    pub(crate) fn slots(&self) -> u16 {
        match self {
            Self::Single(_) => 1,
            Self::Cluster(_) => slot::COUNT,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The database in use. A cluster has number 0 alone.
    pub(crate) fn database(&self) -> i64 {
        match self {
            Self::Single(server) => server.database(),
            Self::Cluster(_) => 0,
        }
    }

    /// Returns the same endpoint for another worker, without the state that lookups by sentinels have left.
    pub(crate) fn clone_without_state(&self) -> Self {
        match self {
            Self::Single(server) => Self::Single(Box::new(server.clone_without_state())),
            Self::Cluster(seeds) => Self::Cluster(seeds.iter().map(Server::clone_without_state).collect()),
        }
    }
}

impl fmt::Display for Endpoint {
    /// Writes the URLs of the servers, without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(server) => fmt::Display::fmt(server, f),
            Self::Cluster(seeds) => {
                for (index, seed) in seeds.iter().enumerate() {
                    write!(f, "{}{seed}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(server) => f.debug_tuple("Single").field(server).finish(),
            Self::Cluster(seeds) => f.debug_tuple("Cluster").field(seeds).finish(),
        }
    }
}

// The result of the first attempt to connect.

/// Sends the result of the first attempt to connect to the caller that waits for it.
#[derive(Debug)]
pub(crate) struct ReadySignal(oneshot::Sender<Result<(), Error>>);

impl ReadySignal {
    /// Creates a signal and the future of its result. The future returns an error if the signal is dropped.
    pub(crate) fn channel() -> (Self, impl Future<Output = Result<(), Error>>) {
        let (sender, receiver) = oneshot::channel();
        // As for a call, tokio's budget does not apply.
        let mut receiver = unconstrained(receiver);
        let result = poll_fn(move |context| {
            let received = Pin::new(&mut receiver).poll(context);
            received.map(|result| result.unwrap_or_else(|_| Err(worker_stopped())))
        });
        (Self(sender), result)
    }

    pub(crate) fn send(self, result: Result<(), Error>) {
        // The waiting caller may have been dropped, and with it the store.
        let _ = self.0.send(result);
    }
}

/// The error of a worker whose thread has ended.
pub(crate) fn worker_stopped() -> Error {
    Error::new(ErrorKind::Unavailable, "the thread for Redis has stopped")
}
