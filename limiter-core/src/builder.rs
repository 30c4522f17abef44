//! The options of a limiter.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::activity::Activity;
use crate::clock::Clock;
use crate::concurrency::SlotOptions;
use crate::error::OnError;
use crate::health::HealthObservers;
use crate::observer::Observers;
use crate::receipt::book::ReceiptSecret;
use crate::request::CallOptions;
use crate::request::options::{deadline_problem, is_valid_deadline, leases_problem};
use crate::rule::RuleSet;
use crate::{Error, ErrorKind, Limiter, Rule};

mod build;
mod connection;
#[cfg(feature = "redis")]
mod redis;
mod instances;
mod observers;
mod slots;
mod constructors;
#[cfg(feature = "rules")]
mod rules_file;

use connection::{ConnectionOptions, Store};
use instances::InstancesOptions;
#[cfg(feature = "redis")]
use redis::RedisOptions;
#[cfg(feature = "rules")]
use rules_file::FileOptions;

/// The options of a [`Limiter`], which [`build`](Builder::build) or [`connect`](Builder::connect) creates.
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
#[must_use = "a builder has no effect until `build` or `connect`"]
pub struct Builder {
    connection: ConnectionOptions,
    #[cfg(feature = "redis")]
    redis: RedisOptions,
    options: CallOptions,
    rules: RuleSet,
    declared: BTreeSet<String>,
    #[cfg(feature = "rules")]
    rules_file: FileOptions,
    deadline: Duration,
    max_in_flight: u32,
    busy_poll: Duration,
    prefix: String,
    max_keys: usize,
    instances: InstancesOptions,
    remember_denials: Duration,
    clock: Clock,
    receipt_secret: Option<Result<ReceiptSecret, Error>>,
    observers: Observers,
    activity: Option<Activity>,
    exposes_keys: bool,
    health_observers: HealthObservers,
    slots: SlotOptions,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            connection: ConnectionOptions::default(),
            #[cfg(feature = "redis")]
            redis: RedisOptions::default(),
            options: CallOptions::default(),
            rules: RuleSet::default(),
            declared: BTreeSet::new(),
            #[cfg(feature = "rules")]
            rules_file: FileOptions::default(),
            deadline: Duration::from_millis(100),
            max_in_flight: 100_000,
            busy_poll: Duration::from_micros(100),
            prefix: "rl".to_owned(),
            max_keys: 1_000_000,
            instances: InstancesOptions::default(),
            remember_denials: Duration::from_secs(1),
            clock: Clock::default(),
            receipt_secret: None,
            observers: Observers::default(),
            activity: None,
            exposes_keys: false,
            health_observers: HealthObservers::default(),
            slots: SlotOptions::default(),
        }
    }
}

impl Builder {
    /// Sets the time in which the store must reply, 1 ms to 60 s. Default: 100 ms. After that
    /// [`on_error`](Builder::on_error) decides.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the largest number of calls that may be in flight to the store at a time, 1 or more. Default: 100 000.
    ///
    /// The bound is for the whole limiter. A call above it fails at once with
    /// [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded), and [`on_error`](Builder::on_error) decides, where
    /// [`Open`](OnError::Open) counts as [`Standby`](OnError::Standby).
    ///
    /// A call that sleeps in [`wait`](Limiter::wait) is not counted, nor is one that this process decides locally. A
    /// call whose future is dropped is not in flight any more. Refunds and resets are counted, and no failure policy
    /// applies to them: above the bound they return the error, and the receipt is used up.
    ///
    /// Each call in flight takes about 1 kB, so the bound limits the memory that a stalled store costs.
    pub fn max_in_flight(mut self, calls: u32) -> Self {
        self.max_in_flight = calls;
        self
    }

    /// Sets how long a thread polls for a reply of Redis before it sleeps, up to 1 ms. Zero turns polling off. Default:
    /// 100 µs.
    ///
    /// A sleeping thread takes tens of microseconds to wake up, so calls end sooner if Redis replies within the limit. If
    /// checks of one limit come one at a time, without TLS, each polls on its caller's thread, and blocks it meanwhile:
    /// other tasks of that thread wait, as for any computation of that length. For all other calls the limiter's own
    /// thread polls. It uses up to one core while replies arrive within the limit of each other. If Redis replies later,
    /// and few calls are in flight, both soon poll after one of 64 calls only. On a machine with one core they never
    /// poll.
    ///
    /// Turn it off where processor time counts more than the time of a call, and where tasks of a runtime with one thread
    /// must not wait for so long.
    pub fn busy_poll(mut self, limit: Duration) -> Self {
        self.busy_poll = limit;
        self
    }

    /// Sets the prefix of every key in the store: 1 to 64 letters, digits and `-`, `_`, `.`, `:`. Default: `rl`.
    ///
    /// Limiters with different prefixes share nothing.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.prefix = prefix.as_ref().to_owned();
        self
    }

    /// Sets the number of keys that have counters of their own in this process, 1 or more. Default: 1 000 000.
    ///
    /// It applies to a limiter in memory, and to the standby limiter of a store.
    ///
    /// A key has a counter for each window and algorithm, from its first permit until its last one does not count any
    /// more. While all counters are in use, new keys share a fixed number of counters, 65 536. They may be denied
    /// early, but no limit is exceeded. [`on_overflow`](Builder::on_overflow) reports this.
    ///
    /// From 8 192 keys on, the counters are divided among shards by hash. Some new keys then share counters already
    /// when about 97 % of all counters are in use.
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Adds settings for the annotated functions whose rule has this name: the attribute's `name`, or else its key as
    /// written there. They also apply to direct calls [under this name](Limiter::named).
    pub fn rule(mut self, name: impl AsRef<str>, rule: Rule) -> Self {
        self.rules = self.rules.rule(name, rule);
        self
    }

    /// Declares the name of a rule that no annotated function has: of direct calls [under this name](Limiter::named), or
    /// of a layer for services. Settings of a name that is neither an annotated function's nor declared are a warning in
    /// the log, or an error in a [strict](RuleSet::strict) set.
    ///
    /// The keys of a declared rule are not known before its first call. If overrides match none of them, that is a
    /// warning in the log.
    pub fn declare(mut self, name: impl AsRef<str>) -> Self {
        self.declared.insert(name.as_ref().to_owned());
        self
    }

    /// Sets the rules of the builder: those of earlier calls of [`rule`](Builder::rule) and of this method are replaced.
    ///
    /// The environment variable `RATE_LIMITED_MODE` comes before every setting. `off` turns all rate limits of the
    /// limiter off, and those that deny every call as well. `shadow` puts the enforced rules into [shadow
    /// mode](crate::Mode::Shadow), and `enforce` the other way round. Every limiter reads it when it is built, also for
    /// direct calls without a rule, and logs it.
    pub fn rules(mut self, rules: RuleSet) -> Self {
        self.rules = rules;
        self
    }

    /// Sets the longest time for which this process caches a denial of the store, up to 60 s. Default: 1 s. With
    /// [`Duration::ZERO`] every call is sent to the store.
    ///
    /// A denial states how long it holds, and the cache denies no call for longer than that. But a refund or a reset by
    /// *another* process has no effect here before this time is over.
    pub fn remember_denials(mut self, max_age: Duration) -> Self {
        self.remember_denials = max_age;
        self
    }

    /// Sets the secret that signs [receipts](Limiter::receipt), 16 bytes or more from a random source. Default: none, and no
    /// receipts.
    ///
    /// All processes that use each other's receipts need the same secret, store and [`prefix`](Builder::prefix). Whoever
    /// knows it can give permits back that nobody took. With another secret the receipts from before are refused. Use it for
    /// one store only: another server with the same prefix would take the receipt as well.
    ///
    /// The receipts of a limiter in memory are its own: no other process can use them. It keeps the marks of used ones until
    /// their end, at most as many as [`max_keys`](Builder::max_keys), and refuses receipts while it has no room. On Redis a
    /// mark is a key of about 150 bytes, for an hour or a window of the limit if that is longer.
    ///
    /// `Debug` does not show the secret.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// # let secret = [7; 32];
    /// let limiter = Limiter::builder().url("memory:").receipt_secret(secret).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn receipt_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.receipt_secret = Some(ReceiptSecret::new(secret.as_ref()));
        self
    }

    /// Turns leases on or off, for rules without a [setting](Rule::leases) and for direct calls. Default: off. `true` needs
    /// the feature `leases`.
    ///
    /// With leases this process takes permits of a busy key ahead, for a short part of the window. Most calls then take
    /// one of them at once, without a request to the store, and their decisions have
    /// [`Source::Lease`](crate::Source::Lease). No limit is exceeded: the store counts all permits of a lease from its
    /// end, and those that are not used are given back.
    ///
    /// A decision about several counts takes no lease, and [`Rule::leases`] lists the limits that have some. A limiter in
    /// memory needs none, and ignores the setting.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// # #[cfg(feature = "leases")]
    /// # {
    /// let limiter = Limiter::builder().url("redis://127.0.0.1:6379").leases(true).build()?;
    /// # }
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn leases(mut self, leases: bool) -> Self {
        self.options.leases = leases;
        self
    }

    /// Sets the failure policy, an [`OnError`]. Default: [`OnError::Standby`] for a store that processes share.
    ///
    /// It also takes an observer, `|error: &Error| …`, as [`on_failure`](Builder::on_failure) does.
    pub fn on_error(mut self, setting: impl OnErrorSetting) -> Self {
        setting.apply(&mut self);
        self
    }

    /// Makes each decision return its key, by [`Allowed::key`](crate::Allowed::key) and
    /// [`Denied::key`](crate::Denied::key). Default: decisions have no key.
    ///
    /// Observers, fallbacks and handlers then see the encoded keys, which may be personal data. With `hash_keys` they see
    /// the digests that Redis has. Logs, spans and `Debug` forms contain neither. Each decision allocates its key's text.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter};
    ///
    /// let limiter = Limiter::builder()
    ///     .expose_keys()
    ///     .on_denied(|denied| println!("{} was denied", denied.key().unwrap_or_default()))
    ///     .build()?;
    /// let (key, limit) = (Key::new("user:").part(42), "5/10s".parse()?);
    /// let allowed = limiter.check_blocking(&key, &limit)?.into_result()?;
    /// assert_eq!(allowed.key(), Some("user:@42"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expose_keys(mut self) -> Self {
        self.exposes_keys = true;
        self
    }

    /// Makes each decision about several limits return all of them, by [`Allowed::limits`](crate::Allowed::limits) and
    /// [`Denied::limits`](crate::Denied::limits). Default: off, so that a decision returns the limit that it describes.
    ///
    /// Redis then replies to such a call with the values of each limit. Decisions about one limit do not change.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter};
    ///
    /// let limiter = Limiter::builder().report_limits(true).build()?;
    /// let (user, total) = (Key::new("user:").part(42), Key::new("total"));
    /// let limits = [(&user, &"5/s".parse()?, 1), (&total, &"500/m".parse()?, 1)];
    /// let allowed = limiter.check_all_blocking(&limits)?.into_result()?;
    /// assert_eq!(allowed.limits().map(|state| state.remaining()).collect::<Vec<_>>(), [4, 499]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn report_limits(mut self, report: bool) -> Self {
        self.options.wants_reports = report;
        self
    }

    /// Sets a manual clock instead of the process's or the server's own, for tests.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: crate::ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
        self
    }

    /// Creates a limiter that connects to its store in the background. Until it is connected,
    /// [`on_error`](Builder::on_error) decides: by default the standby limiter does.
    ///
    /// With the feature `metrics`, install the recorder of metrics before.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an option out of its range or a URL that cannot be used.
    pub fn build(self) -> Result<Limiter, Error> {
        #[cfg(feature = "rules")]
        return self.open_rules_file()?.build(self);
        #[cfg(not(feature = "rules"))]
        self.build_without_file()
    }

    /// Creates a limiter and waits until it is connected to its store.
    ///
    /// # Errors
    /// As for [`Limiter::connect`], and [`ErrorKind::Config`] for an option out of its range.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened.
    pub async fn connect(self) -> Result<Limiter, Error> {
        #[cfg(feature = "rules")]
        return self.open_rules_file_async().await?.connect(self).await;
        #[cfg(not(feature = "rules"))]
        self.connect_without_file().await
    }

    /// Checks the options and the URL.
    pub(crate) fn check_store(&self) -> Result<(), Error> {
        self.store().map(drop)
    }

    /// Checks the options and parses the URL.
    fn store(&self) -> Result<Store, Error> {
        self.check()?;
        let store = self.connection.store()?;
        #[cfg(feature = "redis")]
        let store = self.redis.apply_to(store)?;
        Ok(store)
    }

    /// Returns whether the limiter writes no heartbeats.
    fn is_silent(&self) -> bool {
        #[cfg(feature = "redis")]
        return self.redis.is_silent();
        #[cfg(not(feature = "redis"))]
        true
    }

    /// Checks the options of this builder against their ranges.
    fn check(&self) -> Result<(), Error> {
        let Self { deadline, prefix, max_in_flight, busy_poll, max_keys, instances, .. } = self;
        let Self { remember_denials, options, declared, activity, .. } = self;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        let problem = if !is_valid_deadline(*deadline) {
            deadline_problem("`deadline`", *deadline)
        } else if !(1..=64).contains(&prefix.len()) || !prefix.bytes().all(is_plain) {
            let bound = "1 to 64 letters, digits and `-`, `_`, `.`, `:`";
            format!("`prefix` must be {bound}, got {prefix:?}: leave it out for the default of `rl`")
        } else if *max_in_flight == 0 {
            "`max_in_flight` must be at least 1, got 0: leave it out for the default of 100000".to_owned()
        } else if *busy_poll > Duration::from_millis(1) {
            format!("`busy_poll` must be at most 1 ms, got {busy_poll:?}: leave it out for the default of 100 µs")
        } else if *max_keys == 0 {
            "`max_keys` must be at least 1, got 0: leave it out for the default of 1000000".to_owned()
        } else if let Some(problem) = instances.instances_problem(self.is_silent()) {
            problem
        } else if *remember_denials > Duration::from_secs(60) {
            format!(
                "`remember_denials` must be at most 60 s, got {remember_denials:?}: leave it out for the default of 1 s"
            )
        } else if declared.contains("") {
            "`declare` must have the name of a rule, got an empty text: write that of a direct call or a layer"
                .to_owned()
        } else if let Some(problem) = leases_problem(options.leases, "`leases`").or_else(|| self.slots.problem()) {
            problem
        } else if let Some(problem) = activity.as_ref().and_then(Activity::option_problem) {
            problem
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Config, problem))
    }
}

impl fmt::Debug for Builder {
    /// Omits the connection, which may contain a password, and the secret of receipts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            connection: _,
            #[cfg(feature = "redis")]
            redis,
            options: CallOptions { on_error, leases, .. },
            rules,
            declared,
            #[cfg(feature = "rules")]
            rules_file,
            deadline,
            max_in_flight,
            busy_poll,
            prefix,
            max_keys,
            instances,
            remember_denials,
            clock,
            receipt_secret: _,
            observers,
            activity,
            exposes_keys,
            health_observers,
            slots,
        } = self;
        let mut debug = f.debug_struct("Builder");
        #[cfg(feature = "rules")]
        debug.field("rules_file", rules_file);
        #[cfg(feature = "redis")]
        debug.field("redis", redis);
        debug
            .field("on_error", on_error)
            .field("rules", rules)
            .field("declared", declared)
            .field("deadline", deadline)
            .field("max_in_flight", max_in_flight)
            .field("busy_poll", busy_poll)
            .field("prefix", prefix)
            .field("max_keys", max_keys)
            .field("instances", instances)
            .field("remember_denials", remember_denials)
            .field("leases", leases)
            .field("clock", clock)
            .field("observers", observers)
            .field("activity", activity)
            .field("exposes_keys", exposes_keys)
            .field("health_observers", health_observers)
            .field("slots", slots)
            .finish_non_exhaustive()
    }
}

// The argument of `Builder::on_error`.

/// An argument of [`Builder::on_error`]: a policy, or an observer of failures.
#[diagnostic::on_unimplemented(
    message = "`on_error` takes a policy or an observer of failures",
    note = "a policy: `OnError::Open`, `Closed`, `Standby` or `Raise`",
    note = "an observer: `|error: &Error| …` with the type written out, or use `on_failure`"
)]
pub trait OnErrorSetting: sealed::Sealed {
    #[doc(hidden)]
    fn apply(self, builder: &mut Builder);
}

impl OnErrorSetting for OnError {
    fn apply(self, builder: &mut Builder) {
        builder.options.on_error = self;
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

#[cfg(all(test, not(limiter_loom)))]
mod tests;
