//! The limiter: where a request meets a store, a policy and the observers.

use std::fmt;
use std::sync::Arc;

use crate::Error;
use crate::builder::Builder;
use crate::clock::Clock;
use crate::decision::limiter_id::LimiterId;
use crate::guard::Guard;
use crate::limiter::wait_queue::WaitQueues;
use crate::observer::Observers;
use crate::on_error::OnError;
use crate::rule::RuleOverrides;
use crate::store::memory::MemoryStore;
use crate::sync::process::{DroppedAtHome, PerProcess};

#[cfg(all(test, not(limiter_loom)))]
mod tests;
mod api;
mod blocking;
mod check;
mod decide;
mod wait;
pub(crate) mod wait_queue;

/// Decides whether a call may run, by counts in this process or in a store that processes share.
///
/// Cheap to clone; clones are the same limiter. Everything takes `&self` and any number of tasks at once.
///
/// ```
/// # use limiter_core as rate_limited;
/// use rate_limited::{Decision, Key, Limit, Limiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rate_limited::Error> {
/// let limiter = Limiter::memory();
/// let limit: Limit = "5/10s".parse()?;
/// match limiter.check(&Key::new("user:").part(42), &limit).await? {
///     Decision::Allowed(allowed) => println!("{} more at once", allowed.remaining()),
///     Decision::Denied(denied) => println!("come back in {:?}", denied.retry_after()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) backend: Backend,
    pub(crate) on_error: OnError,
    pub(crate) rules: RuleOverrides,
    pub(crate) observers: Observers,
    pub(crate) clock: Clock,
    /// Of each process, since a child of `fork` inherits waiters that are not there.
    pub(crate) queues: PerProcess<DroppedAtHome<Arc<WaitQueues>>>,
    pub(crate) limiter_id: LimiterId,
}

/// A store that cannot fail, or one that can with what that takes.
///
/// With a tag of its own: one in an unused value of another field takes each decision more instructions to read.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum Backend {
    Memory(MemoryStore),
    Guarded(Guard),
}

impl Limiter {
    /// A limiter that counts in this process alone: nothing to start, nothing that can fail.
    ///
    /// Holds up to a million keys; see [`Builder::max_keys`].
    #[must_use]
    pub fn memory() -> Self {
        Builder::default().memory()
    }

    /// A limiter on the store that `url` names, connected.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `memory:` | in this process |
    /// | `redis://[user:password@]host[:port][/database]` | one Redis |
    /// | `redis+unix:///path/to.sock[?db=1&user=…&pass=…]` | one Redis on this machine |
    /// | `redis-sentinel://[user:password@]host[:port],host[:port]/name[/database]` | the master that these sentinels have under that name |
    /// | `redis-cluster://[user:password@]host[:port],host[:port]` | a cluster, by any of its nodes |
    /// | `rediss://…`, `rediss-sentinel://…`, `rediss-cluster://…` | the same over TLS (feature `tls`): see [`Builder::tls`] |
    ///
    /// User and password are Redis's own; special characters in them are percent-encoded. What the sentinels themselves
    /// want is `?sentinel_password=…`, with `&sentinel_user=…` for a user. Credentials that change come from
    /// [`Builder::credentials`].
    ///
    /// # Errors
    /// Within 5 s: [`ErrorKind::Config`](crate::ErrorKind::Config) for a URL that cannot be used,
    /// or a server that will not do: one of another kind than the URL says, older than Redis 6.2, or without scripts;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) for one that cannot be reached,
    /// [`Refused`](crate::ErrorKind::Refused) for a wrong user, password or certificate.
    ///
    /// To start while the store is away, use [`Builder::build`].
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Builder::default().url(url).connect().await
    }

    /// A limiter with options: see [`Builder`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn from_parts(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Makes this the default limiter of the process: the one that annotated functions use.
    ///
    /// # Errors
    /// There is one already; the limiter comes back in the error.
    pub fn install(self) -> Result<(), crate::InstallError> {
        crate::current::install(self)
    }

    /// Runs a future with this limiter as the default of its task; a task that it spawns has to be scoped by itself.
    ///
    /// This is how tests keep apart: each has a limiter of its own.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// Limiter::memory().scope(async { /* calls of annotated functions */ }).await;
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// That of the future: the scope is entered for each poll of it, and left again.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        crate::current::scope(self.clone(), future).await
    }

    /// [`scope`](Limiter::scope) for code that is not async.
    pub fn scope_sync<R>(&self, run: impl FnOnce() -> R) -> R {
        crate::current::scope_sync(self.clone(), run)
    }

    /// The limiter that annotated functions use here: the [scope](Limiter::scope)'s, else the one that was
    /// [installed](Limiter::install), else one on the store that the environment variable `RATE_LIMITED_URL` names,
    /// else one in memory, which the log says once.
    ///
    /// A URL there that cannot be used is an error in the log, once, and a failure of each decision, of kind
    /// [`Config`](crate::ErrorKind::Config). By the default policy the standby limiter then decides: limits count in this
    /// process alone, and decisions have [`Source::Standby`](crate::Source::Standby). Only `on_error = raise`, or a handler,
    /// sees the error.
    #[must_use]
    pub fn current() -> Self {
        crate::current::current()
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { backend, on_error, observers, .. } = &*self.inner;
        let store = match backend {
            Backend::Memory(_) => "memory",
            Backend::Guarded(_) => "shared",
        };
        f.debug_struct("Limiter")
            .field("store", &store)
            .field("on_error", on_error)
            .field("observers", observers)
            .finish_non_exhaustive()
    }
}
