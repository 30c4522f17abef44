//! The limiter: where a question meets a store, a policy and the observers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::blocking::block_on;
use crate::builder::Builder;
use crate::clock::Clock;
use crate::decision::{Allowed, Decision, Denied, Rules};
use crate::guard::{Guard, OnError, Ruling, Settled, Terms};
use crate::observer::Observers;
use crate::queue::Queues;
use crate::store::Question;
use crate::store::memory::MemoryStore;
use crate::{Error, ErrorKind, Key, Limit};

mod waiting;

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
    pub(crate) clock: Clock,
    pub(crate) queues: Queues,
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
        let questions = [Question { key, limit: *limit, cost }];
        self.decide(direct(&questions), self.inner.on_error).await
    }

    /// Takes permits of several limits at once, `(key, limit, cost)` each: all of them or none.
    ///
    /// The decision is about one of them: a denial about the first that denies, with a `retry_after` that holds for
    /// all; an admission about the one with the least left. Where two are counted together, their costs add up. Of no
    /// limits, nothing is asked and the call is allowed.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limit, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let limiter = Limiter::memory();
    /// let (user, everybody) = (Key::new("user:").part(42), Key::new("everybody"));
    /// let (burst, day, total): (Limit, Limit, Limit) = ("5/s".parse()?, "1000/d".parse()?, "500/s".parse()?);
    /// let decision = limiter.check_all(&[(&user, &burst, 1), (&user, &day, 1), (&everybody, &total, 1)]).await?;
    /// assert_eq!(decision.remaining(), 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`check`](Limiter::check).
    pub async fn check_all(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Decision, Error> {
        let questions: Vec<_> =
            limits.iter().map(|&(key, limit, cost)| Question { key, limit: *limit, cost }).collect();
        self.decide(direct(&questions), self.inner.on_error).await
    }

    /// Takes one permit, waiting up to `max_wait` for it.
    ///
    /// Those who wait in this process for the same key, window and algorithm are served in the order they came. A call
    /// that could not be served in time even if nobody stood before it is denied at once, not at the end of its wait; so
    /// is one that a policy denies. Who still stands in line at the end of its wait is denied then.
    ///
    /// A [leaky bucket](crate::Algorithm::LeakyBucket) is a queue by itself, in which all processes stand: there a call
    /// is given its turn in one round trip, or denied if that does not come in time or too many wait already.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::time::Duration;
    /// use rate_limited::{Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("mail"), "1/10ms".parse()?);
    /// for _ in 0..3 {
    ///     assert!(limiter.wait(&key, &limit, Duration::from_secs(5)).await?.is_allowed());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// A future that is dropped while it waits takes nothing and lets the next one move up; one that is dropped while
    /// it asks may have taken its permit. Of a leaky bucket it loses the turn that it was given, which passes unused:
    /// those behind have been told theirs.
    pub async fn wait(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Decision, Error> {
        let questions = [Question { key, limit: *limit, cost: 1 }];
        self.decide_within(direct(&questions), self.inner.on_error, max_wait).await
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
        let questions = [Question { key, limit: *limit, cost: 1 }];
        self.look(direct(&questions), self.inner.on_error).await
    }

    /// Gives back what an allowed call took, because it came to nothing after all.
    ///
    /// Never more than what would be there if the call had not been made, and so sometimes less than it took. A window
    /// gives back what still counts in it; a token bucket what has not come back by itself meanwhile; a leaky bucket the
    /// turn that it gave last, and no other. Nothing is given back where nothing was taken, as by a policy or for a
    /// cost of 0, nor a second time: clones are the same receipt.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Decision, Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("export"), "1/h".parse()?);
    /// if let Decision::Allowed(allowed) = limiter.check(&key, &limit).await? {
    ///     // There was nothing to export.
    ///     limiter.refund(&allowed).await?;
    /// }
    /// assert!(limiter.check(&key, &limit).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The store's failure, whatever the policy: the permits may or may not be back, and the receipt is used up.
    /// [`ErrorKind::Config`] for a receipt of another limiter.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have given the permits back, and has used the receipt up.
    pub async fn refund(&self, allowed: &Allowed) -> Result<(), Error> {
        let Some(receipt) = allowed.receipt() else { return Ok(()) };
        if !receipt.is_of(&Arc::downgrade(&self.inner)) {
            return Err(Error::new(
                ErrorKind::Config,
                "permits can only be given back to the limiter that granted them",
            ));
        }
        let Some((questions, granted)) = receipt.spend() else { return Ok(()) };
        match &self.inner.engine {
            Engine::Memory(store) => {
                store.refund(&questions, granted.stamp);
                Ok(())
            }
            Engine::Guarded(guard) => guard.refund(&questions, granted, &self.inner.observers).await,
        }
    }

    /// Forgets what `key` has taken of `limit`, and of any limit with the same algorithm and window. Receipts from
    /// before give nothing back (but for one of the very millisecond in which the key was reset and taken from again).
    ///
    /// While the stand-in has a say, in another process too, that process's own count goes on. A key that has to share
    /// its count, because [`max_keys`](crate::Builder::max_keys) are in use, is not forgotten: others share it.
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

    /// The denial of an annotated call, if it is one, after waiting up to `wait`.
    pub(crate) async fn decide_or_wait(
        &self,
        rules: Rules<'_>,
        on_error: OnError,
        wait: Duration,
    ) -> Result<Option<Denied>, Error> {
        let decision = if wait.is_zero() {
            self.decide(rules, on_error).await?
        } else {
            self.decide_within(rules, on_error, wait).await?
        };
        Ok(decision.into_result().err())
    }

    /// What becomes of a call that failed before there was anything to ask, as by a limit that cannot be: no stand-in
    /// can decide that.
    pub(crate) fn without_answer(
        &self,
        rules: Rules<'_>,
        error: Error,
        on_error: OnError,
    ) -> Result<Option<Denied>, Error> {
        let observers = &self.inner.observers;
        observers.failed(&error);
        match on_error {
            OnError::Raise => Err(error),
            // Not even `Open` runs what has an impossible limit: it may come from a caller, as a plan without calls.
            OnError::Open | OnError::Closed | OnError::Standby => {
                let denied = rules.closed();
                observers.denied(&denied);
                Ok(Some(denied))
            }
        }
    }

    /// Decides, if the store answers at once.
    pub(crate) fn decide_at_once(&self, rules: Rules<'_>) -> Option<Decision> {
        let Engine::Memory(store) = &self.inner.engine else { return None };
        let ruling = Ruling::Settled(Settled::by_store(store.decide(rules.questions), 0));
        // The caller looks at denials alone: unless somebody watches, a receipt would be for nobody.
        let giver = self.inner.observers.watch_admissions().then(|| Arc::downgrade(&self.inner));
        let decision = rules.decision(&ruling, giver.as_ref());
        self.inner.observers.decided(&decision);
        Some(decision)
    }

    pub(crate) async fn decide(&self, rules: Rules<'_>, on_error: OnError) -> Result<Decision, Error> {
        let decision = self.ask(rules, on_error).await?;
        self.inner.observers.decided(&decision);
        Ok(decision)
    }

    async fn ask(&self, rules: Rules<'_>, on_error: OnError) -> Result<Decision, Error> {
        let ruling = self.rule(rules, Terms { on_error, patience: Duration::ZERO }).await?;
        Ok(rules.decision(&ruling, Some(&Arc::downgrade(&self.inner))))
    }

    async fn rule(&self, rules: Rules<'_>, terms: Terms) -> Result<Ruling, Error> {
        match &self.inner.engine {
            Engine::Memory(store) => {
                let answer = store.decide_within(rules.questions, terms.patience);
                Ok(Ruling::Settled(Settled::by_store(answer, 0)))
            }
            _ if rules.questions.is_empty() => Ok(Ruling::Opened),
            Engine::Guarded(guard) => guard.decide(rules.questions, terms, &self.inner.observers).await,
        }
    }

    async fn look(&self, rules: Rules<'_>, on_error: OnError) -> Result<Decision, Error> {
        let ruling = match &self.inner.engine {
            Engine::Memory(store) => Ruling::Settled(Settled::by_store(store.peek(rules.questions), 0)),
            Engine::Guarded(guard) => guard.peek(rules.questions, on_error, &self.inner.observers).await?,
        };
        Ok(rules.decision(&ruling, None))
    }
}

/// The questions of a direct call.
fn direct<'a>(questions: &'a [Question<'a>]) -> Rules<'a> {
    Rules { names: &[DIRECT], questions }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { engine, on_error, observers, .. } = &*self.inner;
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
