//! The observers of decisions, of failures, of a store's state, and of keys that share counters.

use crate::builder::Builder;
use crate::{Activity, Allowed, Denied, Error, Health, Overflow};

impl Builder {
    /// Adds an observer of allowed calls. Its panics are caught.
    ///
    /// A call that several rules allow together is reported once for each of them, in their order: each key with each of
    /// its limits, with the name, `remaining` and `reset_after` of its own. The caller gets one decision, which
    /// describes the rule with the least permits left. If the standby limiter or a failure policy decided, the values
    /// are theirs. A rule in [shadow mode](crate::Mode::Shadow) that would allow the call is reported too, and a rule
    /// that is off is not.
    ///
    /// A report of one of several rules is no receipt: it holds no permits, and a [refund](crate::Limiter::refund) of it does
    /// nothing. With an observer of allowed calls, or the feature `metrics`, Redis replies to such a call with the values
    /// of all its rules. Otherwise it sends no more than the caller needs.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter};
    ///
    /// let limiter = Limiter::builder()
    ///     .on_allowed(|rule| println!("{} of {} has {} permits left", rule.name(), rule.limit(), rule.remaining()))
    ///     .build()?;
    /// let (user, total) = (Key::new("user:").part(42), Key::new("total"));
    /// // Two lines: `check of 5/s has 4 permits left` and `check of 500/min has 499 permits left`.
    /// let limits = [(&user, &"5/s".parse()?, 1), (&total, &"500/m".parse()?, 1)];
    /// assert_eq!(limiter.check_all_blocking(&limits)?.remaining(), 4);
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn on_allowed(mut self, observer: impl Fn(&Allowed) + Send + Sync + 'static) -> Self {
        self.observers.on_allowed(observer);
        self
    }

    /// Adds an observer of denied calls. Its panics are caught.
    ///
    /// A call under several rules that is denied is reported once, with the first rule that denies it.
    pub fn on_denied(mut self, observer: impl Fn(&Denied) + Send + Sync + 'static) -> Self {
        self.observers.on_denied(observer);
        self
    }

    /// Adds an observer of calls that a rule in [shadow mode](crate::Mode::Shadow) would deny if it was enforced. Its
    /// panics are caught.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Limiter, Mode, Rule};
    ///
    /// let limiter = Limiter::builder()
    ///     .rule("getId", Rule::new().mode(Mode::Shadow))
    ///     .on_shadowed(|denied| println!("{} would have denied a call", denied.name()))
    ///     .build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn on_shadowed(mut self, observer: impl Fn(&Denied) + Send + Sync + 'static) -> Self {
        self.observers.on_shadowed(observer);
        self
    }

    /// Adds an observer of failures: calls, refunds and resets that the store did not execute, and calls with an
    /// invalid limit. Its panics are caught.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// let limiter = Limiter::builder().on_failure(|error| eprintln!("the store failed: {error}")).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn on_failure(mut self, observer: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.observers.on_failed(observer);
        self
    }

    /// Adds an observer of the store's state, for alerts and readiness checks. Its panics are caught.
    ///
    /// It is called within 1 s of each change of [`Limiter::health`](crate::Limiter::health)'s state, also in a process
    /// without calls. It runs on a thread of the process that all limiters share for observers of this kind and for log
    /// lines, so it may block, which delays the others. It is called for changes alone: the first is usually that from
    /// [`Connecting`](crate::HealthState::Connecting). The state of a limiter in memory never changes. A child of
    /// `fork` observes the changes of its own state.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// let limiter = Limiter::builder()
    ///     .on_state_change(|health| eprintln!("the rate limiter's store is {}", health.state))
    ///     .build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn on_state_change(mut self, observer: impl Fn(&Health) + Send + Sync + 'static) -> Self {
        self.health_observers.add(observer);
        self
    }

    /// Adds an observer of overflows: new keys share counters because [`max_keys`](Builder::max_keys) are in use.
    ///
    /// It is called with the next decision, and at most once a second. Its panics are caught. The log gets a warning,
    /// at most once a minute. Overflows are those of a limiter in memory, or of the standby limiter of a store.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// let limiter = Limiter::builder()
    ///     .max_keys(100_000)
    ///     .on_overflow(|overflow| println!("a new key shared a counter {} times", overflow.shared()))
    ///     .build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn on_overflow(mut self, observer: impl Fn(&Overflow) + Send + Sync + 'static) -> Self {
        self.observers.on_overflow(observer);
        self
    }

    /// Counts the decisions of each rule, and the keys that are denied and allowed most often. Default: nothing is counted.
    ///
    /// - On Redis the totals are written at most once a second into a stream that all limiters share, which `limiter top`,
    ///   `limiter watch` and [`Limiter::activity`](crate::Limiter::activity) read. A fleet writes at most 50 entries of 4 kB a
    ///   second, and the stream has those of the last 15 minutes, at most 16 MB. No call waits for it, and an entry that fails
    ///   is no failure of the store.
    /// - The log has one line a minute for each rule that has denied calls, at level `INFO`, without keys.
    /// - A limiter in memory writes the log lines alone.
    ///
    /// The stream has keys that are denied or allowed often, which may be personal data: as digests with `hash_keys`, or none
    /// by [`top_keys(0)`](Activity::top_keys). The user needs more permissions, which docs/live.md lists. Without them the log
    /// has one warning. A child of `fork` begins its own totals.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Activity, Limiter};
    ///
    /// let limiter = Limiter::builder().activity(Activity::new("checkout")).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn activity(mut self, activity: Activity) -> Self {
        self.activity = Some(activity);
        self
    }
}
