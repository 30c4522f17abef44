//! Options of a limiter.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::decision::limiter_id::LimiterId;
use crate::guard::{Guard, RemoteStore};
use crate::limiter::wait_queue::WaitQueues;
use crate::limiter::{Backend, Inner};
use crate::local::LocalStateOptions;
use crate::local::standby::StandbyConfig;
use crate::observer::Observers;
use crate::on_error::OnError;
use crate::overflow::Overflows;
use crate::rule::{RuleOverrides, is_deadline};
use crate::store::memory::MemoryStore;
use crate::store::naming::{Naming, Secret};
use crate::sync::process::{DroppedAtHome, PerProcess};
use crate::{Allowed, Denied, Error, ErrorKind, Layout, Limiter, Overflow, Rule, Source};

#[cfg(feature = "redis")]
use crate::store::redis::{Endpoint, Options, ReadySignal, RedisStore};

mod connection;

use connection::{Connection, Store};

/// Options of a [`Limiter`]; ends in [`build`](Builder::build) or [`connect`](Builder::connect).
///
/// ```
/// # use limiter_core as rate_limited;
/// use std::time::Duration;
/// use rate_limited::{Limiter, OnError};
///
/// let limiter = Limiter::builder()
///     .url("memory:")
///     .deadline(Duration::from_millis(50))
///     .on_error(OnError::Closed)
///     .on_denied(|denied| println!("{denied}"))
///     .build()?;
/// # Ok::<(), rate_limited::Error>(())
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    connection: Connection,
    on_error: OnError,
    rules: RuleOverrides,
    deadline: Duration,
    max_in_flight: u32,
    prefix: String,
    secret: Option<Result<Secret, Error>>,
    max_keys: usize,
    instances: u32,
    remember_denials: Duration,
    clock: Clock,
    observers: Observers,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            connection: Connection::default(),
            on_error: OnError::default(),
            rules: RuleOverrides::default(),
            deadline: Duration::from_millis(100),
            max_in_flight: 100_000,
            prefix: "rl".to_owned(),
            secret: None,
            max_keys: 1_000_000,
            instances: 1,
            remember_denials: Duration::from_secs(1),
            clock: Clock::default(),
            observers: Observers::default(),
        }
    }
}

impl Builder {
    /// How long a decision may take in the store, 1 ms to 60 s. Default: 100 ms. After that the call gets what
    /// [`on_error`](Builder::on_error) says.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The largest number of calls that may wait for the store's answer at a time, 1 or more. Default: 100 000.
    ///
    /// The bound is for the whole limiter. A call above it fails at once with
    /// [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded) and gets what [`on_error`](Builder::on_error) says, where
    /// [`Open`](OnError::Open) counts as [`Standby`](OnError::Standby). A call that sleeps in
    /// [`wait`](Limiter::wait) is not counted, nor is one that this process decides by itself; a call whose future is dropped
    /// gives its place back at once. Refunds and resets count too, and have no policy: one that is refused is an error, and its
    /// receipt is used up. Each call in flight takes about 1 kB: the bound limits the memory that a stalled store
    /// costs.
    pub fn max_in_flight(mut self, calls: u32) -> Self {
        self.max_in_flight = calls;
        self
    }

    /// What every key in the store begins with: 1 to 64 letters, digits and `-`, `_`, `.`, `:`. Default: `rl`.
    ///
    /// Limiters with different prefixes share nothing.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.to_owned();
        self
    }

    /// Keeps keys unreadable in the store, for those that hold personal data: in each Redis key the subject, text and parts, is
    /// replaced by 128 bits of its HMAC-SHA-256 under this secret, of 16 bytes or more. Default: it can be read.
    ///
    /// - Processes that are to share their counts need the same secret. With another one every key begins afresh: rotating
    ///   the secret hands out each quota once more, and what was counted before expires by itself.
    /// - The prefix, the algorithm and the window stay readable, and so do the names of rules in logs and metrics. In this
    ///   process keys are kept as they are.
    /// - In a cluster a key's slot is the CRC16 of what stands in its name. Whoever chooses keys can steer that, and burden
    ///   one node with all of them; with a secret that they do not know they cannot.
    /// - [`Layout::Zset`](crate::Layout::Zset) cannot be used with it: those sets are found by the key's text. A rule with
    ///   such a limit is refused by `build` and `connect`; a decision about one fails with [`ErrorKind::Config`] before
    ///   anything is sent.
    ///
    /// A limiter in memory writes keys nowhere, and has no use for it. `Debug` does not show the secret.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// # let secret = [7; 32];
    /// let limiter = Limiter::builder().url("redis://127.0.0.1:6379").hash_keys(secret).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[cfg(feature = "redis")]
    pub fn hash_keys(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(Secret::new(secret.as_ref()));
        self
    }

    /// How many keys are kept apart in this process: those of a limiter in memory, or of the stand-in for a store.
    /// Default: 1 000 000.
    ///
    /// A key takes a place from its first permit until its last is back, for each window and algorithm that it is
    /// counted by. While every place is taken, new keys share a fixed number of counts, 65 536: they may be denied early,
    /// and nobody is admitted too much. [`on_overflow`](Builder::on_overflow) tells when that happens. From 8 192 keys on
    /// the places are parted by chance, and some new keys share when about 97 % of all are taken.
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Settings of the annotated functions whose rule has this name: the attribute's `name`, or else its key as it is
    /// written there. A name that no function has does nothing.
    pub fn rule(mut self, name: &str, rule: Rule) -> Self {
        self.rules.add(name, rule);
        self
    }

    /// How many instances of the program share each limit, 1 or more. Default: 1.
    ///
    /// It matters while the store is away and stand-ins decide, and for one window after that: each gives away this part
    /// of a limit, so that all together stay within it. (Of a limit with fewer permits than instances, each gives one; and
    /// what an instance was given beyond its part just before the store failed comes on top, until its window is over.)
    /// With 1 each gives away the whole limit: N instances admit up to N times as much while the store is away.
    pub fn instances(mut self, instances: u32) -> Self {
        self.instances = instances;
        self
    }

    /// How long this process answers at most by itself for a key that the store has denied, up to 1 min. Default: 1 s;
    /// with nothing, the store is asked each time.
    ///
    /// A denial says until when it holds, and nobody is denied longer than that. But what *other* processes give back
    /// meanwhile, by a refund or a reset, is not noticed before this is over.
    pub fn remember_denials(mut self, longest: Duration) -> Self {
        self.remember_denials = longest;
        self
    }

    /// Either what a call gets when the store fails, an [`OnError`]; or an observer of failures,
    /// `|error: &Error| …`. Both may be given.
    pub fn on_error(mut self, setting: impl OnErrorSetting) -> Self {
        setting.apply(&mut self);
        self
    }

    /// Tells an observer of every decision that allows. Its panics are contained.
    pub fn on_allowed(mut self, observer: impl Fn(&Allowed) + Send + Sync + 'static) -> Self {
        self.observers.on_allowed(observer);
        self
    }

    /// Tells an observer of every decision that denies. Its panics are contained.
    pub fn on_denied(mut self, observer: impl Fn(&Denied) + Send + Sync + 'static) -> Self {
        self.observers.on_denied(observer);
        self
    }

    /// Tells an observer that keys in this process had to share a count, because [`max_keys`](Builder::max_keys) are in
    /// use: with the next decision, and while that lasts once a second. Its panics are contained. The log is told, too,
    /// once a minute.
    ///
    /// For a limiter in memory, and for the stand-in of a store.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// let limiter = Limiter::builder()
    ///     .max_keys(100_000)
    ///     .on_overflow(|overflow| println!("{} times without a place of its own", overflow.shared()))
    ///     .build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn on_overflow(mut self, observer: impl Fn(&Overflow) + Send + Sync + 'static) -> Self {
        self.observers.on_overflow(observer);
        self
    }

    /// The clock to count by instead of the process's or the server's own: for tests.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: crate::ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
        self
    }

    /// A limiter that need not wait for its store: it connects in the background, and until then each call gets what
    /// [`on_error`](Builder::on_error) says, by default the stand-in's decision.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an option out of its range or a URL that cannot be used.
    pub fn build(self) -> Result<Limiter, Error> {
        match self.store()? {
            Store::Memory => Ok(self.memory()),
            #[cfg(feature = "redis")]
            Store::Redis(place) => {
                let (store, overflows) = self.start(place, None)?;
                Ok(self.guarded(RemoteStore::Redis(store), overflows))
            }
        }
    }

    /// A limiter whose store has answered.
    ///
    /// # Errors
    /// As for [`Limiter::connect`], and [`ErrorKind::Config`] for an option out of its range.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn connect(self) -> Result<Limiter, Error> {
        match self.store()? {
            Store::Memory => Ok(self.memory()),
            #[cfg(feature = "redis")]
            Store::Redis(place) => {
                let (connected, answer) = ReadySignal::channel();
                let (store, overflows) = self.start(place, Some(connected))?;
                answer.await?;
                Ok(self.guarded(RemoteStore::Redis(store), overflows))
            }
        }
    }

    pub(crate) fn memory(self) -> Limiter {
        let store = MemoryStore::new(self.max_keys, self.clock.clone(), Source::Store);
        self.watching(store.overflows()).with(Backend::Memory(store))
    }

    /// A limiter whose store is known to be unusable.
    pub(crate) fn broken(self, error: Error) -> Limiter {
        let settings = self.local_settings(1, self.naming(None));
        let local = settings.new_state();
        self.guarded(RemoteStore::Misconfigured(error, local), settings.overflows)
    }

    /// What there is beside a store with so many slots.
    fn local_settings(&self, slots: u16, naming: Arc<Naming>) -> LocalStateOptions {
        let instances = NonZeroU32::new(self.instances).unwrap_or(NonZeroU32::MIN);
        let (max_keys, clock) = (self.max_keys, self.clock.clone());
        let standby = StandbyConfig { max_keys, instances, slots, naming };
        let overflows = Overflows::new(Source::Standby, max_keys, clock.clone());
        LocalStateOptions { standby, remember_denials: self.remember_denials, clock, overflows }
    }

    /// What keys are called, by this secret if there is one.
    fn naming(&self, secret: Option<Secret>) -> Arc<Naming> {
        Arc::new(Naming::new(&self.prefix, secret))
    }

    fn guarded(self, store: RemoteStore, overflows: Arc<Overflows>) -> Limiter {
        self.watching(overflows).with(Backend::Guarded(Guard::new(store)))
    }

    fn watching(mut self, overflows: Arc<Overflows>) -> Self {
        self.observers.look_after(overflows);
        self
    }

    fn with(self, backend: Backend) -> Limiter {
        let Self { on_error, rules, observers, clock, .. } = self;
        let queues = WaitQueues::new(clock.clone());
        Limiter::from_parts(Inner {
            backend,
            on_error,
            rules,
            observers,
            clock,
            queues: PerProcess::with(DroppedAtHome::new(queues)),
            limiter_id: LimiterId::next(),
        })
    }

    #[cfg(feature = "redis")]
    fn start(&self, place: Endpoint, connected: Option<ReadySignal>) -> Result<(RedisStore, Arc<Overflows>), Error> {
        let naming = self.naming(self.secret.clone().transpose()?);
        let local = self.local_settings(place.slots(), Arc::clone(&naming));
        let overflows = Arc::clone(&local.overflows);
        let (deadline, max_in_flight, clock) = (self.deadline, self.max_in_flight, self.clock.clone());
        let options = Options { naming, deadline, max_in_flight, clock, local };
        Ok((RedisStore::start(place, options, connected)?, overflows))
    }

    /// Checks the options and reads the URL.
    fn store(&self) -> Result<Store, Error> {
        let wrong = |problem: &str| Error::new(ErrorKind::Config, problem);
        if !is_deadline(self.deadline) {
            return Err(wrong("a deadline is between 1 ms and 60 s"));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if !(1..=64).contains(&self.prefix.len()) || !self.prefix.bytes().all(plain) {
            return Err(wrong("a prefix is 1 to 64 letters, digits and `-`, `_`, `.`, `:`"));
        }
        if self.max_in_flight == 0 {
            return Err(wrong("`max_in_flight` must be at least 1, got 0: leave it out for the default of 100000"));
        }
        if self.max_keys == 0 {
            return Err(wrong("a limiter keeps at least 1 key"));
        }
        if self.instances == 0 {
            return Err(wrong("there is at least 1 instance: this one"));
        }
        if self.remember_denials > Duration::from_secs(60) {
            return Err(wrong("denials are remembered for up to 1 min"));
        }
        if self.secret.clone().transpose()?.is_some() && self.rules.has_layout(Layout::Zset) {
            return Err(wrong(
                "a rule has a limit of `Layout::Zset`, whose names are the keys' texts: leave `hash_keys` out",
            ));
        }
        self.rules.check()?;
        self.connection.store()
    }
}

impl fmt::Debug for Builder {
    /// Without what leads to the store, which may hold a password, and without the secret of the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            connection: _,
            secret: _,
            on_error,
            rules,
            deadline,
            max_in_flight,
            prefix,
            max_keys,
            instances,
            remember_denials,
            clock,
            observers,
        } = self;
        f.debug_struct("Builder")
            .field("on_error", on_error)
            .field("rules", rules)
            .field("deadline", deadline)
            .field("max_in_flight", max_in_flight)
            .field("prefix", prefix)
            .field("max_keys", max_keys)
            .field("instances", instances)
            .field("remember_denials", remember_denials)
            .field("clock", clock)
            .field("observers", observers)
            .finish_non_exhaustive()
    }
}

/// What [`Builder::on_error`] takes: a policy, or an observer of failures.
#[diagnostic::on_unimplemented(
    message = "`on_error` takes a policy or an observer of failures",
    note = "a policy: `OnError::Open`, `Closed`, `Standby` or `Raise`",
    note = "an observer: a closure with its argument's type written out, `|error: &Error| …`"
)]
pub trait OnErrorSetting: sealed::Sealed {
    #[doc(hidden)]
    fn apply(self, builder: &mut Builder);
}

impl OnErrorSetting for OnError {
    fn apply(self, builder: &mut Builder) {
        builder.on_error = self;
    }
}

impl<F: Fn(&Error) + Send + Sync + 'static> OnErrorSetting for F {
    fn apply(self, builder: &mut Builder) {
        builder.observers.on_failed(self);
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::OnError {}
    impl<F: Fn(&crate::Error) + Send + Sync + 'static> Sealed for F {}
}
