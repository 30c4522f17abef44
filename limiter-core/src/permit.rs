//! The permit of an annotated call: its decision, with the limiter that made it.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::background::{self, run_in_background};
use crate::concurrency::free_slots_returned;
use crate::current::LimiterHandle;
use crate::run::{block_on, run_contained};
use crate::{Allowed, Decision, Error, ErrorKind, Key, Limiter, Receipt, TARGET, Usage};

/// The permit of an annotated call, for the body of the function: `permit = budget`.
///
/// It is the [`Allowed`] of the call, which it dereferences to, and knows the limiter. It may move into a task or a stream,
/// and be cloned: all clones are one receipt. Dropping it gives nothing back.
///
/// ```
/// # use limiter_core as rate_limited;
/// use rate_limited::{Permit, Usage};
///
/// /// Counts what a model has used, instead of the estimate.
/// async fn finish(budget: Permit, tokens: u32) -> Result<Usage, rate_limited::Error> {
///     budget.settle(tokens).await
/// }
/// ```
#[derive(Clone)]
pub struct Permit {
    allowed: Allowed,
    limiter: LimiterHandle,
}

impl Permit {
    pub(crate) fn new(allowed: Allowed, limiter: LimiterHandle) -> Self {
        Self { allowed, limiter }
    }

    /// Settles the call: it counts `actual` permits from here on. See [`Limiter::settle`](crate::Limiter::settle).
    ///
    /// # Errors
    /// As for [`Limiter::settle`](crate::Limiter::settle).
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have settled the call or not. Where a client can end the call, use
    /// [`settle_in_background`](Permit::settle_in_background).
    pub async fn settle(&self, actual: u32) -> Result<Usage, Error> {
        self.limiter.settle(&self.allowed, actual).await
    }

    /// Settles one rule of the call: see [`Limiter::settle_rule`](crate::Limiter::settle_rule). Several attributes of a
    /// function are several rules.
    ///
    /// # Errors
    /// As for [`Limiter::settle`](crate::Limiter::settle).
    ///
    /// # Cancel safety
    /// As for [`settle`](Permit::settle).
    pub async fn settle_rule(&self, rule: &str, actual: u32) -> Result<Usage, Error> {
        self.limiter.settle_rule(&self.allowed, rule, actual).await
    }

    /// Returns the receipt of what the call holds on a key, for another process: see
    /// [`Limiter::receipt`](crate::Limiter::receipt).
    ///
    /// # Errors
    /// As for [`Limiter::receipt`](crate::Limiter::receipt).
    pub fn receipt(&self, key: &Key) -> Result<Receipt, Error> {
        self.limiter.receipt(key, &self.allowed)
    }

    /// Gives all permits back: see [`Limiter::refund`](crate::Limiter::refund).
    ///
    /// # Errors
    /// As for [`Limiter::refund`](crate::Limiter::refund).
    ///
    /// # Cancel safety
    /// As for [`Limiter::refund`](crate::Limiter::refund).
    pub async fn refund(&self) -> Result<(), Error> {
        self.limiter.refund(&self.allowed).await
    }

    /// Settles the call without waiting for the store: for the end of a stream, and for `Drop`.
    ///
    /// The settlement is sent before this returns, and nothing can cancel it. A failure is logged, at most once a second, and
    /// passed to the observers and the metrics of failures. A call that is settled already stays as it is. A process that ends
    /// right afterwards may lose it, and what the call took counts then: see [`Limiter::flush`].
    pub fn settle_in_background(&self, actual: u32) {
        self.settle_by(move |_| Some(actual));
    }

    /// Settles one rule of the call as [`settle_in_background`](Permit::settle_in_background) does. A name that neither the
    /// call nor the program has is such a failure.
    pub fn settle_rule_in_background(&self, rule: &str, actual: u32) {
        let rule = rule.to_owned();
        if let Err(error) = self.limiter.inside().check_rule_of(&self.allowed, &rule) {
            self.limiter.inside().observers.failed(&error);
            let _ = run_contained(|| log_failure(&rule, &error));
            return;
        }
        self.settle_by(move |name| (name == rule).then_some(actual));
    }

    /// Settles the call for code that is not async: see [`settle`](Permit::settle).
    ///
    /// # Errors
    /// As for [`Limiter::settle`](crate::Limiter::settle).
    pub fn settle_blocking(&self, actual: u32) -> Result<Usage, Error> {
        block_on(self.settle(actual))
    }

    /// Returns the decision alone.
    #[must_use]
    pub fn into_allowed(self) -> Allowed {
        self.allowed
    }

    /// Settles the rules for which `actual` returns a number, without waiting for the store.
    pub(crate) fn settle_by(&self, actual: impl Fn(&str) -> Option<u32> + Send + Sync + 'static) {
        let Self { allowed, limiter } = self.clone();
        run_in_background(async move {
            let settled = limiter.inside().settle(&allowed, 0, |_, rule| actual(rule)).await;
            // A body may have settled the call itself.
            if let Err(error) = settled
                && error.kind() != ErrorKind::Settled
            {
                log_failure(allowed.name(), &error);
            }
        });
    }
}

impl Limiter {
    /// Waits until the settlements are done that were handed over in the background, and until the store has the
    /// [slots](crate::Limit::concurrent) back that no call of this process holds: of all limiters. For the end of `main`, which does
    /// not wait for them.
    ///
    /// A slot that is not returned is free for other processes when it ends, after the slot time. The wait for slots takes about
    /// a millisecond, above 64 slots a tenth of a second, and at most a second. Settlements are those of `settle` in an attribute, of [`Permit::settle_in_background`], and of the requests of a layer whose
    /// client has left. Each ends by the deadline of its call at the latest. A child of `fork` waits for its own alone. On the
    /// thread that runs them, as in an observer of their failures, it returns at once.
    ///
    /// ```
    /// use limiter_core::Limiter;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// // After the last request:
    /// Limiter::flush().await;
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// A future that is dropped waits no longer. The settlements go on.
    pub async fn flush() {
        background::flush().await;
        free_slots_returned().await;
    }

    /// [`flush`](Limiter::flush) for code that is not async.
    pub fn flush_blocking() {
        block_on(Self::flush());
    }
}

impl Deref for Permit {
    type Target = Allowed;

    fn deref(&self) -> &Allowed {
        &self.allowed
    }
}

impl AsRef<Allowed> for Permit {
    fn as_ref(&self) -> &Allowed {
        &self.allowed
    }
}

impl From<Permit> for Allowed {
    fn from(permit: Permit) -> Self {
        permit.allowed
    }
}

impl From<Permit> for Decision {
    fn from(permit: Permit) -> Self {
        Self::Allowed(permit.allowed)
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.allowed, f)
    }
}

/// Logs a settlement that failed, at most once a second in a process.
fn log_failure(rule: &str, error: &Error) {
    static LOGGED_AT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    if LOGGED_AT.swap(now, Ordering::Relaxed) != now {
        tracing::error!(
            target: TARGET,
            rule,
            %error,
            "a call could not be settled: it counts what it took before"
        );
    }
}
