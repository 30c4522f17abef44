//! The ways to create a limiter.

use crate::builder::Builder;
use crate::rule::RuleTable;
use crate::{Error, Limiter};

#[cfg(feature = "test-util")]
use {crate::ErrorKind, std::time::Duration};

impl Limiter {
    /// Creates a limiter that counts in this process alone. It starts nothing and has no server that can fail.
    ///
    /// It holds up to a million keys: see [`Builder::max_keys`].
    #[must_use]
    pub fn memory() -> Self {
        Builder::default().memory(RuleTable::of_environment())
    }

    /// Connects to the store at `url` and returns its limiter.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `memory:` | in this process |
    /// | `redis://[user:password@]host[:port][/database]` | one Redis |
    /// | `redis+unix:///path/to.sock[?db=1&user=…&pass=…]` | one Redis on this machine |
    /// | `redis-sentinel://[user:password@]host[:port],host[:port]/name[/database]` | the sentinels' master |
    /// | `redis-cluster://[user:password@]host[:port],host[:port]` | a cluster, found by any of its nodes |
    /// | `rediss://…`, `rediss-sentinel://…`, `rediss-cluster://…` | over TLS (feature `tls`): see [`Builder::tls`] |
    ///
    /// User and password are those of Redis. Special characters in them are percent-encoded. The sentinels' own
    /// password is `?sentinel_password=…`, and `&sentinel_user=…` adds their user. Use [`Builder::credentials`] for
    /// credentials that change while the program runs.
    ///
    /// # Errors
    /// The attempt fails within 5 s:
    ///
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) for a URL that cannot be used. Also for a server of another kind
    ///   than the URL names, older than Redis 6.2, or without scripts,
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) for a server that cannot be reached,
    /// - [`Refused`](crate::ErrorKind::Refused) for a wrong user, password or certificate.
    ///
    /// To start while the store is unavailable, use [`Builder::build`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Builder::default().url(url).connect().await
    }

    /// Creates a limiter whose calls all fail with this kind, for tests: see [`Builder::failing`], with which the
    /// policy can be set.
    ///
    /// It has the default policy, [`OnError::Standby`](crate::OnError::Standby): the standby limiter decides unless a
    /// function or a rule has a policy of its own.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn failing(kind: ErrorKind) -> Self {
        Builder::default().failing_with(kind, RuleTable::of_environment())
    }

    /// Creates a limiter in memory that takes this long for each decision, for tests: see [`Builder::slow`], with which
    /// deadline, policy and clock can be set.
    ///
    /// It has the default deadline of 100 ms.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn slow(delay: Duration) -> Self {
        Builder::default().slow_by(delay, RuleTable::of_environment())
    }

    /// Returns a [`Builder`] for a limiter with options.
    pub fn builder() -> Builder {
        Builder::default()
    }
}
