//! The same requests for code that is not async.

use std::time::Duration;

use crate::block_on::block_on;
use crate::limiter::Limiter;
use crate::{Allowed, Decision, Error, Key, Limit};

/// For code that is not async: each blocks its thread until there is an answer, which for the store is its deadline at
/// the latest.
///
/// They work on any thread, inside and outside of runtimes: the store is talked to, and the time is watched, from
/// threads of the limiter's own. In an async function prefer the async method, which lets other tasks run meanwhile.
impl Limiter {
    /// [`check`](Limiter::check) for code that is not async.
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

    /// [`check_n`](Limiter::check_n) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn check_n_blocking(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Decision, Error> {
        block_on(self.check_n(key, limit, cost))
    }

    /// [`check_all`](Limiter::check_all) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn check_all_blocking(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Decision, Error> {
        block_on(self.check_all(limits))
    }

    /// [`wait`](Limiter::wait) for code that is not async: in the same queues as tasks, with the number of the call.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn wait_blocking(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Decision, Error> {
        block_on(self.wait(key, limit, max_wait))
    }

    /// [`peek`](Limiter::peek) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn peek_blocking(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        block_on(self.peek(key, limit))
    }

    /// [`refund`](Limiter::refund) for code that is not async.
    ///
    /// # Errors
    /// As for [`refund`](Limiter::refund).
    pub fn refund_blocking(&self, allowed: &Allowed) -> Result<(), Error> {
        block_on(self.refund(allowed))
    }

    /// [`reset`](Limiter::reset) for code that is not async.
    ///
    /// # Errors
    /// As for [`reset`](Limiter::reset).
    pub fn reset_blocking(&self, key: &Key, limit: &Limit) -> Result<(), Error> {
        block_on(self.reset(key, limit))
    }
}
