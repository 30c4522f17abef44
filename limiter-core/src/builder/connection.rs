//! The options of the connection to a store: its address, credentials and certificates.

#[cfg(feature = "redis")]
use crate::Credentials;
#[cfg(feature = "tls")]
use crate::Tls;
use crate::builder::Builder;
#[cfg(feature = "redis")]
use crate::store::redis::{Endpoint, Provider, Server};
use crate::{Error, ErrorKind};

#[cfg(feature = "test-util")]
use std::time::Duration;

#[derive(Default)]
pub(super) struct ConnectionOptions {
    target: Target,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    #[cfg(feature = "redis")]
    provider: Option<Provider>,
}

#[derive(Default)]
enum Target {
    #[default]
    Memory,
    Url(String),
    #[cfg(feature = "redis")]
    Client(Box<redis::Client>),
    #[cfg(feature = "test-util")]
    Failing(ErrorKind),
    #[cfg(feature = "test-util")]
    Slow(Duration),
}

impl Builder {
    /// Sets the URL of the store, as for [`Limiter::connect`](crate::Limiter::connect). Default: `memory:`.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::env;
    /// use rate_limited::Limiter;
    ///
    /// let url = env::var("SHOP_REDIS_URL").unwrap_or("memory:".to_owned());
    /// let limiter = Limiter::builder().url(url).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.connection.target = Target::Url(url.as_ref().to_owned());
        self
    }

    /// Sets the store by a client of the `redis` crate instead of a URL.
    ///
    /// The limiter uses the client's address, user, password, database and certificates. It opens a connection of its
    /// own, and always uses RESP3. The client must come from `rate_limited::redis`, the version of the `redis` crate
    /// that the limiter is built with.
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
        self.connection.target = Target::Client(Box::new(client));
        self
    }

    /// Sets a store whose calls all fail with this kind, instead of a URL, for tests of [`on_error`](Builder::on_error)
    /// and of fallbacks.
    ///
    /// The policy decides about each call, as it does while a store cannot be used. Refunds and resets return the
    /// error. [`Limiter::failing`](crate::Limiter::failing) is such a limiter with the default policy.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{ErrorKind, Key, Limiter, OnError, Source};
    ///
    /// let builder = || Limiter::builder().failing(ErrorKind::Unavailable);
    /// let (key, limit) = (Key::new("getId"), "5/10s".parse()?);
    ///
    /// let decision = builder().on_error(OnError::Open).build()?.check_blocking(&key, &limit)?;
    /// assert_eq!((decision.is_allowed(), decision.source()), (true, Source::Policy));
    ///
    /// let error = builder().on_error(OnError::Raise).build()?.check_blocking(&key, &limit).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unavailable);
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[cfg(feature = "test-util")]
    pub fn failing(mut self, kind: ErrorKind) -> Self {
        self.connection.target = Target::Failing(kind);
        self
    }

    /// Sets a store in memory that takes this long for each call, instead of a URL, for tests of deadlines.
    ///
    /// A call is decided when `delay` is over. If that is longer than its [deadline](Builder::deadline), it fails with
    /// [`ErrorKind::Timeout`] when the deadline is over, takes nothing, and the policy decides. Both times are of the
    /// limiter's own clock: with a [`ManualClock`](crate::ManualClock) a call ends when the test has moved it. Refunds
    /// and resets take as long. [`Limiter::slow`](crate::Limiter::slow) is such a limiter with the default options.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::time::Duration;
    /// use rate_limited::{Key, Limiter, OnError, Source};
    ///
    /// let limiter = Limiter::builder()
    ///     .slow(Duration::from_secs(30))
    ///     .deadline(Duration::from_millis(5))
    ///     .on_error(OnError::Closed)
    ///     .build()?;
    /// let decision = limiter.check_blocking(&Key::new("getId"), &"5/10s".parse()?)?;
    /// assert_eq!((decision.is_denied(), decision.source()), (true, Source::Policy));
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[cfg(feature = "test-util")]
    pub fn slow(mut self, delay: Duration) -> Self {
        self.connection.target = Target::Slow(delay);
        self
    }

    /// Sets the certificates for a store over TLS, instead of those that the system trusts: see [`Tls`].
    ///
    /// The store's URL must be one with TLS, or [`build`](Builder::build) fails with [`ErrorKind::Config`].
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.connection.tls = Some(tls);
        self
    }

    /// Sets a provider of user and password, for credentials that change while the program runs. It is called before
    /// every connection, and its credentials replace those of the URL.
    ///
    /// The provider runs on a thread where it may block, one call at a time. Connections that are opened meanwhile use
    /// the same credentials. An attempt to connect takes at most 1 s, the first one of [`connect`](Builder::connect) at
    /// most 4 s. The provider's time is part of that. If the provider panics, the attempt fails with
    /// [`ErrorKind::Config`], and [`on_error`](Builder::on_error) decides about calls.
    ///
    /// An open connection stays open when credentials change. An operator who revokes a password must end its
    /// connections as well, by `CLIENT KILL` or `ACL DELUSER`. The limiter then reconnects with new credentials from
    /// the provider.
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

/// The store of a new limiter.
pub(super) enum Store {
    Memory,
    #[cfg(feature = "test-util")]
    Failing(ErrorKind),
    #[cfg(feature = "test-util")]
    Slow(Duration),
    #[cfg(feature = "redis")]
    Redis(Endpoint),
}

impl ConnectionOptions {
    /// Returns the store that the options describe.
    pub(super) fn store(&self) -> Result<Store, Error> {
        let store = match &self.target {
            Target::Memory => Store::Memory,
            Target::Url(url) => Store::from_url(url)?,
            #[cfg(feature = "redis")]
            Target::Client(client) => Store::Redis(Endpoint::Single(Box::new(Server::from_client(client)))),
            #[cfg(feature = "test-util")]
            Target::Failing(kind) => Store::Failing(*kind),
            #[cfg(feature = "test-util")]
            Target::Slow(delay) => Store::Slow(*delay),
        };
        match store {
            Store::Memory => self.memory(),
            #[cfg(feature = "redis")]
            Store::Redis(Endpoint::Single(server)) => {
                Ok(Store::Redis(Endpoint::Single(Box::new(self.with_options(*server)?))))
            }
            #[cfg(feature = "redis")]
            Store::Redis(Endpoint::Cluster(seeds)) => {
                let seeds = seeds.into_iter().map(|seed| self.with_options(seed));
                Ok(Store::Redis(Endpoint::Cluster(seeds.collect::<Result<_, _>>()?)))
            }
            // A test may keep the credentials and certificates of the program's own options.
            #[cfg(feature = "test-util")]
            Store::Failing(_) | Store::Slow(_) => Ok(store),
        }
    }

    /// Returns the memory store, unless there are options that only a server has.
    fn memory(&self) -> Result<Store, Error> {
        #[cfg(feature = "redis")]
        if self.provider.is_some() {
            return Err(config_error(
                "`credentials` must be used with a server, got the store `memory:`: write a URL such as `redis://host`",
            ));
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return Err(config_error(
                "`tls` must be used with a server, got the store `memory:`: write a URL such as `rediss://host`",
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
    fn from_url(url: &str) -> Result<Self, Error> {
        let scheme = url.split(':').next().unwrap_or_default();
        match scheme {
            "memory" if url == "memory:" => Ok(Self::Memory),
            "memory" => Err(config_error(
                "`url` must be `memory:` alone for the store in this process, got more text behind it: write `memory:`",
            )),
            "rediss" | "rediss-sentinel" | "rediss-cluster" if cfg!(feature = "redis") && !cfg!(feature = "tls") => {
                Err(config_error(format!(
                    "`url` must be one without TLS, got `{scheme}://`: turn on the feature `tls` of `rate-limited`"
                )))
            }
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+unix" | "redis-sentinel" | "rediss-sentinel" => {
                Ok(Self::Redis(Endpoint::Single(Box::new(Server::from_url(url)?))))
            }
            #[cfg(feature = "redis")]
            "redis-cluster" | "rediss-cluster" => Ok(Self::Redis(Endpoint::Cluster(Server::seeds_from_url(url)?))),
            #[cfg(not(feature = "redis"))]
            "redis" | "rediss" | "redis+unix" | "redis-sentinel" | "rediss-sentinel" | "redis-cluster"
            | "rediss-cluster" => Err(config_error(format!(
                "`url` must be `memory:`, got `{scheme}://`: turn on the feature `redis` of `rate-limited`"
            ))),
            "" => Err(config_error(
                "`url` must be the URL of a store, got an empty text: write `memory:` or `redis://host:port`",
            )),
            // The message must not contain the URL, which may hold a password.
            _ if !url.contains("://") => Err(config_error(
                "`url` must begin with a scheme, got none: write `redis://` before the host, or `memory:`",
            )),
            _ => Err(config_error(
                "`url` must begin with the scheme of a store, got an unknown scheme: write `memory:`, \
                 `redis://host:port`, `rediss://host:port`, `redis+unix:///path`, \
                 `redis-sentinel://host:port/name` or `redis-cluster://host:port`",
            )),
        }
    }
}

fn config_error(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, problem)
}
