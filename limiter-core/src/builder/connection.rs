//! Options that say where the store is, and how to get to it.

#[cfg(feature = "redis")]
use crate::Credentials;
#[cfg(feature = "tls")]
use crate::Tls;
use crate::builder::Builder;
#[cfg(feature = "redis")]
use crate::store::redis::{Endpoint, Provider, Server};
use crate::{Error, ErrorKind};

#[derive(Default)]
pub(super) struct Connection {
    named: Named,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    #[cfg(feature = "redis")]
    provider: Option<Provider>,
}

#[derive(Default)]
enum Named {
    #[default]
    Memory,
    Url(String),
    #[cfg(feature = "redis")]
    Client(Box<redis::Client>),
}

impl Builder {
    /// The store, by URL as for [`Limiter::connect`](crate::Limiter::connect). Default: `memory:`.
    pub fn url(mut self, url: &str) -> Self {
        self.connection.named = Named::Url(url.to_owned());
        self
    }

    /// The store, by a client of the program's own in place of a URL: its address, user, password, database and
    /// certificates. The limiter opens a connection of its own, and always speaks RESP3.
    ///
    /// The client is one of `rate_limited::redis`, the version of the `redis` crate that the limiter is built with.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Limiter, redis};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1:6379/3")?;
    /// let limiter = Limiter::builder().client(client).build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis")]
    pub fn client(mut self, client: redis::Client) -> Self {
        self.connection.named = Named::Client(Box::new(client));
        self
    }

    /// Certificates for a store over TLS, in place of what the system trusts: see [`Tls`]. The store's URL has to be one
    /// with TLS, or [`build`](Builder::build) fails with [`ErrorKind::Config`].
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.connection.tls = Some(tls);
        self
    }

    /// Where the user and the password come from, if they change while the program runs: asked before every connection,
    /// in place of what the URL says.
    ///
    /// It runs on a thread where it may block, one call at a time: connections that are opened meanwhile use the same
    /// credentials. An attempt to connect takes at most 1 s (the first one of
    /// [`connect`](Builder::connect) 4 s), and what it takes is part of that. While it panics there is no connection:
    /// calls get an [`ErrorKind::Config`], or what [`on_error`](Builder::on_error) makes of it.
    ///
    /// A connection that is up stays up. Whoever takes a password away ends its connections as well (`CLIENT KILL`, or
    /// `ACL DELUSER`), and then the limiter asks here for the new one.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::fs;
    /// use rate_limited::{Credentials, Limiter};
    ///
    /// let limiter = Limiter::builder()
    ///     .url("redis://redis.internal")
    ///     .credentials(|| {
    ///         let password = fs::read_to_string("/run/secrets/redis").unwrap_or_default();
    ///         Credentials::new("limiter", password.trim_end())
    ///     })
    ///     .build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[cfg(feature = "redis")]
    pub fn credentials(mut self, provider: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        self.connection.provider = Some(Provider::new(provider));
        self
    }
}

pub(super) enum Store {
    Memory,
    #[cfg(feature = "redis")]
    Redis(Endpoint),
}

impl Connection {
    pub(super) fn store(&self) -> Result<Store, Error> {
        let store = match &self.named {
            Named::Memory => Store::Memory,
            Named::Url(url) => Store::named(url)?,
            #[cfg(feature = "redis")]
            Named::Client(client) => Store::Redis(Endpoint::Single(Box::new(Server::from_client(client)))),
        };
        match store {
            Store::Memory => self.without_options(),
            #[cfg(feature = "redis")]
            Store::Redis(Endpoint::Single(server)) => {
                Ok(Store::Redis(Endpoint::Single(Box::new(self.with_options(*server)?))))
            }
            #[cfg(feature = "redis")]
            Store::Redis(Endpoint::Cluster(seeds)) => {
                let seeds = seeds.into_iter().map(|seed| self.with_options(seed));
                Ok(Store::Redis(Endpoint::Cluster(seeds.collect::<Result<_, _>>()?)))
            }
        }
    }

    fn without_options(&self) -> Result<Store, Error> {
        #[cfg(feature = "redis")]
        if self.provider.is_some() {
            return Err(unusable(
                "there are credentials, and the store is `memory:`: write a URL such as `redis://host`",
            ));
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return Err(unusable(
                "there are options for TLS, and the store is `memory:`: write a URL such as `rediss://host`",
            ));
        }
        Ok(Store::Memory)
    }

    #[cfg(feature = "redis")]
    fn with_options(&self, server: Server) -> Result<Server, Error> {
        #[cfg(feature = "tls")]
        let server = match &self.tls {
            Some(tls) => server.with_tls(tls)?,
            None => server,
        };
        Ok(match &self.provider {
            Some(provider) => server.with_provider(provider.clone()),
            None => server,
        })
    }
}

impl Store {
    fn named(url: &str) -> Result<Self, Error> {
        let scheme = url.split(':').next().unwrap_or_default();
        match scheme {
            "memory" if url == "memory:" => Ok(Self::Memory),
            "memory" => Err(unusable("the embedded store is named `memory:`, with nothing behind it")),
            "rediss" | "rediss-sentinel" | "rediss-cluster" if cfg!(feature = "redis") && !cfg!(feature = "tls") => {
                Err(unusable(format!("`{scheme}://` needs the feature `tls` of `rate-limited`")))
            }
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+unix" | "redis-sentinel" | "rediss-sentinel" => {
                Ok(Self::Redis(Endpoint::Single(Box::new(Server::from_url(url)?))))
            }
            #[cfg(feature = "redis")]
            "redis-cluster" | "rediss-cluster" => Ok(Self::Redis(Endpoint::Cluster(Server::seeds_from_url(url)?))),
            #[cfg(not(feature = "redis"))]
            "redis" | "rediss" | "redis+unix" | "redis-sentinel" | "rediss-sentinel" | "redis-cluster"
            | "rediss-cluster" => Err(unusable(format!("`{scheme}://` needs the feature `redis` of `rate-limited`"))),
            "" => Err(unusable("the store's URL is empty")),
            // Not the URL itself, which may hold a password.
            _ if !url.contains("://") => {
                Err(unusable("the store's URL has no scheme: write `redis://` before the host, or `memory:`"))
            }
            _ => Err(unusable(
                "the store's URL has an unknown scheme: write `memory:`, `redis://host:port`, `rediss://host:port`, \
                 `redis+unix:///path`, `redis-sentinel://host:port/name` or `redis-cluster://host:port`",
            )),
        }
    }
}

fn unusable(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, problem)
}
