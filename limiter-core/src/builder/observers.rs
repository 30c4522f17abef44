//! The observers of a store's state, and of keys that share counters.

use crate::builder::Builder;
use crate::{Health, Overflow};

impl Builder {
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
}
