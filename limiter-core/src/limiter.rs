//! The limiter: where a question meets a store, a policy and the observers.

use std::fmt;
use std::sync::Arc;

use crate::blocking::block_on;
use crate::builder::Builder;
use crate::decision::{Decision, Rule};
use crate::guard::{Guard, OnError};
use crate::observer::Observers;
use crate::store::memory::{MemoryStore, Question};
use crate::{Error, Key, Limit};

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
    pub(crate) engine: Engine,
    pub(crate) on_error: OnError,
    pub(crate) observers: Observers,
}

/// A store that cannot fail, or one that can with what that takes.
#[derive(Debug)]
pub(crate) enum Engine {
    Memory(MemoryStore),
    Guarded(Guard),
}

/// The name that decisions of direct calls carry.
const DIRECT: &str = "check";

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
    /// | `rediss://…` | the same over TLS (feature `tls`) |
    /// | `redis+unix:///path/to.sock` | one Redis on this machine |
    ///
    /// # Errors
    /// Within 5 s: [`ErrorKind::Config`](crate::ErrorKind::Config) for a URL that cannot be used,
    /// [`Unavailable`](crate::ErrorKind::Unavailable) for a server that cannot be reached,
    /// [`Refused`](crate::ErrorKind::Refused) for a wrong user or password.
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

    /// Takes one permit, if there is one.
    ///
    /// # Errors
    /// The store's failure, and only if this limiter's [`OnError`] is [`Raise`](OnError::Raise): every other policy
    /// turns it into a decision.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have taken its permit.
    pub async fn check(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        self.check_n(key, limit, 1).await
    }

    /// Takes `cost` permits, if there are as many: all or none.
    ///
    /// A cost of 0 is allowed and takes nothing; one above the limit's `max` is denied
    /// [for good](crate::Denied::is_final).
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`check`](Limiter::check).
    pub async fn check_n(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Decision, Error> {
        let rule = Rule { name: DIRECT, limit: *limit };
        self.decide(rule, key, cost, self.inner.on_error).await
    }

    /// What [`check`](Limiter::check) would say now, taking nothing: `remaining` is what there is before the call.
    ///
    /// Observers of decisions are not told.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// Nothing is taken, whether the future is dropped or not.
    pub async fn peek(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        let rule = Rule { name: DIRECT, limit: *limit };
        let question = Question { key, limit: *limit, cost: 1 };
        let Inner { engine, on_error, observers } = &*self.inner;
        match engine {
            Engine::Memory(store) => Ok(rule.decision(&store.peek(question), crate::Source::Store)),
            Engine::Guarded(guard) => guard.peek(rule, question, *on_error, observers).await,
        }
    }

    /// Forgets what `key` has taken of `limit`, and of any limit with the same window.
    ///
    /// # Errors
    /// The store's failure, whatever the policy: the key may not be forgotten there.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have reset the key.
    pub async fn reset(&self, key: &Key, limit: &Limit) -> Result<(), Error> {
        match &self.inner.engine {
            Engine::Memory(store) => {
                store.reset(key, *limit);
                Ok(())
            }
            Engine::Guarded(guard) => guard.reset(key, *limit, &self.inner.observers).await,
        }
    }

    /// [`check`](Limiter::check) for code that is not async: blocks this thread, at most for the deadline.
    ///
    /// Works on any thread, inside and outside of runtimes: the store is talked to from a thread of the limiter's own.
    /// In an async function prefer `check`, which lets other tasks run meanwhile.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn check_blocking(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        block_on(self.check(key, limit))
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
    /// A URL there that cannot be used is said in the log, and is a failure of each decision: it does not become a
    /// limiter in memory unseen.
    #[must_use]
    pub fn current() -> Self {
        crate::current::current()
    }

    pub(crate) fn on_error(&self) -> OnError {
        self.inner.on_error
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.inner.observers
    }

    pub(crate) async fn decide(&self, rule: Rule, key: &Key, cost: u32, on_error: OnError) -> Result<Decision, Error> {
        let question = Question { key, limit: rule.limit, cost };
        let Inner { engine, observers, .. } = &*self.inner;
        let decision = match engine {
            Engine::Memory(store) => rule.decision(&store.decide(question), crate::Source::Store),
            Engine::Guarded(guard) => guard.decide(rule, question, on_error, observers).await?,
        };
        observers.decided(&decision);
        Ok(decision)
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { engine, on_error, observers } = &*self.inner;
        let store = match engine {
            Engine::Memory(_) => "memory",
            Engine::Guarded(_) => "shared",
        };
        f.debug_struct("Limiter")
            .field("store", &store)
            .field("on_error", on_error)
            .field("observers", observers)
            .finish_non_exhaustive()
    }
}
