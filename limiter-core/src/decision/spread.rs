//! Retry times that differ between callers.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use super::Denied;

impl Denied {
    /// Returns [`retry_after`](Denied::retry_after) and a random part of `by`, so that callers who were denied together
    /// do not return together.
    ///
    /// The sum is at least `retry_after`, and less than `retry_after` and `by` unless `by` is zero. For a denial that
    /// [is final](Denied::is_final) it is [`NEVER`](Denied::NEVER). The randomness is not for secrets.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::time::Duration;
    ///
    /// use rate_limited::{Decision, Key, Limiter};
    ///
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("getId"), "1/10s".parse()?);
    /// limiter.check_blocking(&key, &limit)?;
    /// if let Decision::Denied(denied) = limiter.check_blocking(&key, &limit)? {
    ///     let pause = denied.retry_after_spread(Duration::from_secs(5));
    ///     assert!(denied.retry_after() <= pause && pause < denied.retry_after() + Duration::from_secs(5));
    /// }
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[must_use]
    pub fn retry_after_spread(&self, by: Duration) -> Duration {
        if self.is_final() {
            return Self::NEVER;
        }
        // Each state of the standard library's hash maps has other keys.
        let random = RandomState::new().build_hasher().finish();
        let part = by.as_nanos().saturating_mul(u128::from(random)) >> u64::BITS;
        self.retry_after().saturating_add(nanos(part))
    }
}

fn nanos(nanos: u128) -> Duration {
    const NANOS_PER_SECOND: u128 = 1_000_000_000;
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(u64::MAX);
    Duration::new(seconds, u32::try_from(nanos % NANOS_PER_SECOND).unwrap_or(0))
}
