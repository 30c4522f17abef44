//! The limiter: a store with its failure policy, rules and observers.

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

/// A rate limiter that counts in this process or in a store that several processes share.
///
/// Cheap to clone: clones are the same limiter. All methods take `&self`, and any number of tasks may call them at
/// once.
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
///     Decision::Allowed(allowed) => println!("{} permits left", allowed.remaining()),
///     Decision::Denied(denied) => println!("retry after {:?}", denied.retry_after()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<LimiterInner>,
}

pub(crate) struct LimiterInner {
    pub(crate) backend: Backend,
    pub(crate) on_error: OnError,
    pub(crate) rules: RuleOverrides,
    pub(crate) observers: Observers,
    pub(crate) clock: Clock,
    /// The queues of each process. A child of `fork` inherits waiters whose tasks it does not have.
    pub(crate) queues: PerProcess<DroppedAtHome<Arc<WaitQueues>>>,
    pub(crate) limiter_id: LimiterId,
}

/// The store of a limiter: one in this process, which has no failure policy to apply, or a guarded one.
///
/// `repr(u8)` gives it a tag of its own. A tag in the niche of another field takes each decision more instructions to
/// read.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum Backend {
    Memory(MemoryStore),
    Guarded(Guard),
}

impl Limiter {
    /// Creates a limiter that counts in this process alone. It starts nothing and has no server that can fail.
    ///
    /// It holds up to a million keys: see [`Builder::max_keys`].
    #[must_use]
    pub fn memory() -> Self {
        Builder::default().memory()
    }

    /// Connects to the store at `url` and returns its limiter.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `memory:` | in this process |
    /// | `redis://[user:password@]host[:port][/database]` | one Redis |
    /// | `redis+unix:///path/to.sock[?db=1&user=…&pass=…]` | one Redis on this machine |
    /// | `redis-sentinel://[user:password@]host[:port],host[:port]/name[/database]` | the master `name` of these sentinels |
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
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) for a URL that cannot be used, or a server of another kind
    ///   than the URL names, older than Redis 6.2, or without scripts,
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) for a server that cannot be reached,
    /// - [`Refused`](crate::ErrorKind::Refused) for a wrong user, password or certificate.
    ///
    /// To start while the store is unavailable, use [`Builder::build`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Builder::default().url(url).connect().await
    }

    /// Returns a [`Builder`] for a limiter with options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn from_parts(inner: LimiterInner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Installs this limiter as the default of the process, which annotated functions use.
    ///
    /// # Errors
    /// [`InstallError`](crate::InstallError) if a default limiter is installed already. The error returns this limiter.
    pub fn install(self) -> Result<(), crate::InstallError> {
        crate::current::install(self)
    }

    /// Runs a future with this limiter as the default of its task. A task that the future spawns needs a scope of its
    /// own.
    ///
    /// Use it in tests, to give each test a limiter of its own.
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
    /// The same as that of `future`. The scope is entered and left with each poll.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        crate::current::scope(self.clone(), future).await
    }

    /// Runs a closure with this limiter as the default: [`scope`](Limiter::scope) for code that is not async.
    pub fn scope_sync<R>(&self, run: impl FnOnce() -> R) -> R {
        crate::current::scope_sync(self.clone(), run)
    }

    /// The limiter that annotated functions use here.
    ///
    /// It is the first of these that exists:
    ///
    /// 1. the limiter of the current [scope](Limiter::scope),
    /// 2. the [installed](Limiter::install) limiter,
    /// 3. a limiter on the store that the environment variable `RATE_LIMITED_URL` names,
    /// 4. a limiter in memory, with one warning in the log.
    ///
    /// If `RATE_LIMITED_URL` cannot be used, the log gets one error, and each decision fails with
    /// [`Config`](crate::ErrorKind::Config). By the default policy the standby limiter then decides: limits count in
    /// this process alone, and decisions have [`Source::Standby`](crate::Source::Standby). Only `on_error = raise`, or
    /// a handler, receives the error.
    #[must_use]
    pub fn current() -> Self {
        crate::current::current()
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimiterInner { backend, on_error, observers, .. } = &*self.inner;
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
