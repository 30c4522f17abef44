//! The options of the connection to a store: its address, credentials and certificates.

use crate::builder::Builder;
#[cfg(feature = "redis")]
use crate::store::redis::Endpoint;
use crate::{Error, ErrorKind};

#[cfg(feature = "test-util")]
use std::time::Duration;

#[derive(Default)]
pub(super) struct ConnectionOptions {
    pub(super) target: Target,
}

#[derive(Default)]
pub(super) enum Target {
    #[default]
    Memory,
    Url(String),
    #[cfg(feature = "redis")]
    Redis(Endpoint),
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
    /// Returns the store that the options name.
    pub(super) fn store(&self) -> Result<Store, Error> {
        match &self.target {
            Target::Memory => Ok(Store::Memory),
            Target::Url(url) => Store::from_url(url),
            #[cfg(feature = "redis")]
            Target::Redis(endpoint) => Ok(Store::Redis(endpoint.clone_without_state())),
            #[cfg(feature = "test-util")]
            Target::Failing(kind) => Ok(Store::Failing(*kind)),
            #[cfg(feature = "test-util")]
            Target::Slow(delay) => Ok(Store::Slow(*delay)),
        }
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
            "redis" | "rediss" | "redis+unix" | "redis-sentinel" | "rediss-sentinel" | "redis-cluster"
            | "rediss-cluster" => Endpoint::from_url(url).map(Self::Redis),
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

pub(super) fn config_error(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, problem)
}
