//! The blocking methods of a limiter, for code that is not async.

use std::time::Duration;

use crate::limiter::Limiter;
use crate::run::block_on;
use crate::{Allowed, Decision, Error, Key, Limit};

/// Blocking methods, for code that is not async.
///
/// Each blocks its thread until the decision is made. A shared store decides within its deadline. The methods work on
/// any thread, inside and outside of runtimes, because threads of the limiter's own run its connections and timers. In
/// an async function use the async method, which lets other tasks run meanwhile.
impl Limiter {
    /// Takes one permit if there is one: [`check`](Limiter::check) for code that is not async.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter};
    ///
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("report"), "1/h".parse()?);
    /// assert!(limiter.check_blocking(&key, &limit)?.is_allowed());
    /// assert!(limiter.check_blocking(&key, &limit)?.is_denied());
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn check_blocking(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        block_on(self.check(key, limit))
    }

    /// Takes `cost` permits if there are as many: [`check_n`](Limiter::check_n) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn check_n_blocking(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Decision, Error> {
        block_on(self.check_n(key, limit, cost))
    }

    /// Takes permits of several limits at once: [`check_all`](Limiter::check_all) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn check_all_blocking(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Decision, Error> {
        block_on(self.check_all(limits))
    }

    /// Takes one permit, waiting up to `max_wait` for it: [`wait`](Limiter::wait) for code that is not async.
    ///
    /// The call waits in the same queues as tasks do. It takes its number when it begins.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn wait_blocking(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Decision, Error> {
        block_on(self.wait(key, limit, max_wait))
    }

    /// Takes `cost` permits, waiting up to `max_wait` for them: [`wait_n`](Limiter::wait_n) for code that is not async.
    ///
    /// The call waits in the same queues as tasks do. It takes its number when it begins.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn wait_n_blocking(&self, key: &Key, limit: &Limit, cost: u32, max_wait: Duration) -> Result<Decision, Error> {
        block_on(self.wait_n(key, limit, cost, max_wait))
    }

    /// Decides without taking a permit: [`peek`](Limiter::peek) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn peek_blocking(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        block_on(self.peek(key, limit))
    }

    /// Refunds the permits of an allowed call: [`refund`](Limiter::refund) for code that is not async.
    ///
    /// # Errors
    /// As for [`refund`](Limiter::refund).
    pub fn refund_blocking(&self, allowed: &Allowed) -> Result<(), Error> {
        block_on(self.refund(allowed))
    }

    /// Refunds a part of the permits of an allowed call: [`refund_n`](Limiter::refund_n) for code that is not async.
    ///
    /// # Errors
    /// As for [`refund_n`](Limiter::refund_n).
    pub fn refund_n_blocking(&self, allowed: &Allowed, permits: u32) -> Result<(), Error> {
        block_on(self.refund_n(allowed, permits))
    }

    /// Resets the counter of a key: [`reset`](Limiter::reset) for code that is not async.
    ///
    /// # Errors
    /// As for [`reset`](Limiter::reset).
    pub fn reset_blocking(&self, key: &Key, limit: &Limit) -> Result<(), Error> {
        block_on(self.reset(key, limit))
    }
}
