//! Calls that hold what they were granted until they end: limits of concurrent calls.

use std::time::Duration;

use crate::concurrency::HeldSlots;
use crate::decision::DIRECT_CALL;
use crate::limiter::named::Named;
use crate::limiter::planned::{RuleDecision, decision_of};
use crate::limiter::{Inside, Limiter};
use crate::request::{Request, check_number_of};
use crate::rule::Plan;
use crate::run::block_on;
use crate::{Allowed, Decision, Denied, Error, Key, Limit};

/// The decision about a call that [`enter`](Limiter::enter)s.
#[must_use = "an unused entry limits nothing"]
#[derive(Debug)]
pub enum Entry {
    /// The call may run, and holds its slots.
    Entered(Entered),
    /// The call must not run. It holds nothing.
    Denied(Denied),
}

/// The slots of a call that runs. They are free when this is dropped.
///
/// It is not [`Clone`], since a slot is of one call. It may be moved to another task or thread. One that is leaked, as
/// by [`mem::forget`](std::mem::forget), holds its slots until the process ends. In a child of `fork` it holds nothing:
/// the slots are the parent's.
#[must_use = "the slots are free again at once when this is dropped"]
#[derive(Debug)]
pub struct Entered {
    allowed: Allowed,
    held: HeldSlots,
}

impl Entry {
    /// Returns `true` if the call may run.
    #[must_use]
    pub fn is_entered(&self) -> bool {
        matches!(self, Self::Entered(_))
    }

    /// Returns `true` if the call must not run.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied(_))
    }

    /// Returns what the call holds, for the operator `?`.
    ///
    /// # Errors
    /// The denial.
    pub fn into_result(self) -> Result<Entered, Denied> {
        match self {
            Self::Entered(entered) => Ok(entered),
            Self::Denied(denied) => Err(denied),
        }
    }

    /// Returns what the call holds; `None` if it is denied.
    #[must_use]
    pub fn entered(self) -> Option<Entered> {
        self.into_result().ok()
    }
}

impl Entered {
    /// The decision. Its permits of windows can be refunded; a refund returns no slot.
    #[must_use]
    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    /// Returns whether there is anything to hold: the call has slots.
    #[doc(hidden)]
    #[must_use]
    pub fn holds_slots(&self) -> bool {
        !self.held.is_empty()
    }

    /// Frees the slots. To drop it does the same.
    pub fn leave(self) {
        drop(self.held);
    }
}

impl Limiter {
    /// Takes a slot of a limit of concurrent calls if one is free, and holds it until the [`Entered`] is dropped.
    ///
    /// Other limits work as with [`check`](Limiter::check). Beside each other, slots are taken first; a denial by
    /// another limit gives them back. `retry_after` of a denial is an estimate, by the mean time for which calls hold
    /// their slots.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Entry, Key, Limit, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, erp, at_once) = (Limiter::memory(), Key::new("erp"), Limit::concurrent(1)?);
    /// match limiter.enter(&erp, &at_once).await? {
    ///     Entry::Entered(_held) => assert!(limiter.enter(&erp, &at_once).await?.is_denied()),
    ///     Entry::Denied(denied) => println!("retry after {:?}", denied.retry_after()),
    /// }
    /// assert!(limiter.enter(&erp, &at_once).await?.is_entered());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done holds nothing.
    pub async fn enter(&self, key: &Key, limit: &Limit) -> Result<Entry, Error> {
        self.enter_n(key, limit, 1).await
    }

    /// Takes `cost` slots, all of them or none: see [`enter`](Limiter::enter).
    ///
    /// A cost of 0 takes none. A cost above the limit's `max` is a [final](Denied::is_final) denial.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`enter`](Limiter::enter).
    pub async fn enter_n(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Entry, Error> {
        if let Some((allowed, held)) = self.inside().try_enter(key, limit, cost) {
            return Ok(Entry::Entered(Entered { allowed, held }));
        }
        Box::pin(self.enter_all(&[(key, limit, cost)])).await
    }

    /// Takes the slots and permits of several limits, all of them or none. Each limit is a `(key, limit, cost)`: see
    /// [`enter`](Limiter::enter) and [`check_all`](Limiter::check_all).
    ///
    /// # Errors
    /// As for [`check_all`](Limiter::check_all).
    ///
    /// # Cancel safety
    /// As for [`enter`](Limiter::enter). Permits of windows may have been taken.
    pub async fn enter_all(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Entry, Error> {
        check_number_of(limits.len())?;
        let (inside, requests) = (self.inside(), requests(limits));
        inside.enter(|| Ok(inside.rules.plan_direct(DIRECT_CALL, &requests)), Duration::ZERO).await
    }

    /// Takes a slot, waiting up to `max_wait` for it. The calls of a process enter in the order in which they began to
    /// wait, and processes that wait get their share: see [`enter`](Limiter::enter).
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`enter`](Limiter::enter). The next call in the queue goes on.
    pub async fn enter_wait(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Entry, Error> {
        self.enter_wait_n(key, limit, 1, max_wait).await
    }

    /// Takes `cost` slots, waiting up to `max_wait` for them: see [`enter_wait`](Limiter::enter_wait).
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`enter_wait`](Limiter::enter_wait).
    pub async fn enter_wait_n(&self, key: &Key, limit: &Limit, cost: u32, max_wait: Duration) -> Result<Entry, Error> {
        let (inside, requests) = (self.inside(), [Request::new(key, *limit, cost)]);
        if let Some((allowed, held)) = inside.try_enter(key, limit, cost) {
            return Ok(Entry::Entered(Entered { allowed, held }));
        }
        Box::pin(inside.enter(|| Ok(inside.rules.plan_direct(DIRECT_CALL, &requests)), max_wait)).await
    }
}

/// Blocking methods for calls that hold slots.
impl Limiter {
    /// [`enter`](Limiter::enter) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn enter_blocking(&self, key: &Key, limit: &Limit) -> Result<Entry, Error> {
        block_on(self.enter(key, limit))
    }

    /// [`enter_n`](Limiter::enter_n) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn enter_n_blocking(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Entry, Error> {
        block_on(self.enter_n(key, limit, cost))
    }

    /// [`enter_all`](Limiter::enter_all) for code that is not async.
    ///
    /// # Errors
    /// As for [`check_all`](Limiter::check_all).
    pub fn enter_all_blocking(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Entry, Error> {
        block_on(self.enter_all(limits))
    }

    /// [`enter_wait`](Limiter::enter_wait) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn enter_wait_blocking(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Entry, Error> {
        block_on(self.enter_wait(key, limit, max_wait))
    }

    /// [`enter_wait_n`](Limiter::enter_wait_n) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn enter_wait_n_blocking(
        &self,
        key: &Key,
        limit: &Limit,
        cost: u32,
        max_wait: Duration,
    ) -> Result<Entry, Error> {
        block_on(self.enter_wait_n(key, limit, cost, max_wait))
    }
}

impl Named<'_> {
    /// [`Limiter::enter`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::enter`].
    pub async fn enter(&self, key: &Key, limit: &Limit) -> Result<Entry, Error> {
        self.enter_n(key, limit, 1).await
    }

    /// [`Limiter::enter_n`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::enter`].
    pub async fn enter_n(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Entry, Error> {
        self.enter_all(&[(key, limit, cost)]).await
    }

    /// [`Limiter::enter_all`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::check_all`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::enter_all`].
    pub async fn enter_all(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Entry, Error> {
        self.enter_planned(limits, Duration::ZERO).await
    }

    /// [`Limiter::enter_wait`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::enter_wait`].
    pub async fn enter_wait(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Entry, Error> {
        self.enter_wait_n(key, limit, 1, max_wait).await
    }

    /// [`Limiter::enter_wait_n`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::enter_wait`].
    pub async fn enter_wait_n(&self, key: &Key, limit: &Limit, cost: u32, max_wait: Duration) -> Result<Entry, Error> {
        self.enter_planned(&[(key, limit, cost)], max_wait).await
    }

    /// [`enter`](Named::enter) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    pub fn enter_blocking(&self, key: &Key, limit: &Limit) -> Result<Entry, Error> {
        block_on(self.enter(key, limit))
    }

    /// [`enter_n`](Named::enter_n) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    pub fn enter_n_blocking(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Entry, Error> {
        block_on(self.enter_n(key, limit, cost))
    }

    /// [`enter_wait`](Named::enter_wait) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    pub fn enter_wait_blocking(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Entry, Error> {
        block_on(self.enter_wait(key, limit, max_wait))
    }

    async fn enter_planned(&self, limits: &[(&Key, &Limit, u32)], max_wait: Duration) -> Result<Entry, Error> {
        let inside = self.inside();
        inside.enter(|| self.plan_call(inside, limits), max_wait).await
    }
}

impl Inside {
    /// Decides about a call that `read` plans, and holds its slots.
    async fn enter<'k>(
        &self,
        read: impl Fn() -> Result<Plan<'k>, Error> + Send + Sync,
        max_wait: Duration,
    ) -> Result<Entry, Error> {
        let mut held = HeldSlots::new();
        let decision: RuleDecision = self.decide_named(read, max_wait, Some(&mut held)).await?;
        Ok(match decision_of(decision) {
            Decision::Allowed(allowed) => Entry::Entered(Entered { allowed, held }),
            Decision::Denied(denied) => Entry::Denied(denied),
        })
    }
}

fn requests<'a>(limits: &[(&'a Key, &Limit, u32)]) -> Vec<Request<'a>> {
    limits.iter().map(|&(key, limit, cost)| Request::new(key, *limit, cost)).collect()
}
