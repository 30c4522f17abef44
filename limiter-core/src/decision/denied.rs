//! The denial of a call, and the time after which it may come again.

use std::error::Error as StdError;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use super::rare::Rare;
use super::{Description, Details};
use crate::Limit;
use crate::error::Source;

/// The denial of a call: the limit is reached, and nothing was taken or written.
#[derive(Clone)]
pub struct Denied {
    pub(super) details: Details,
    retry: Retry,
    /// None unless the limiter exposes keys, or the caller has asked for several limits.
    pub(super) description: Rare<Description>,
}

/// When a denied call may come again, in microseconds from the decision.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    Never,
    After(u64),
    /// The key is blocked until then.
    Unblocked(u64),
}

impl Retry {
    fn micros(self) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::After(micros) | Self::Unblocked(micros) => Some(micros),
        }
    }
}

impl Denied {
    detail_getters!();

    /// The denial with these details. `retry_after` is in microseconds; `None` for never.
    pub(super) fn new(details: Details, retry_after: Option<u64>) -> Self {
        let retry = retry_after.map_or(Retry::Never, Retry::After);
        Self { details, retry, description: Rare::NONE }
    }

    /// The denial of a key that is blocked for so many microseconds.
    pub(super) fn blocked(details: Details, retry_after: u64) -> Self {
        Self { details, retry: Retry::Unblocked(retry_after), description: Rare::NONE }
    }

    pub(super) fn with_description(self, description: Rare<Description>) -> Self {
        Self { description, ..self }
    }

    pub(super) fn details(&self) -> &Details {
        &self.details
    }

    pub(super) fn description(&self) -> Option<&Description> {
        self.description.get()
    }

    pub(super) fn exposed_key(&self) -> Option<&str> {
        self.description()?.key.as_deref()
    }

    /// The index of the request that denied the decision: the first, if several did.
    pub(crate) fn request_index(&self) -> usize {
        self.details.request_index.into()
    }

    /// The name that lives until the process ends.
    pub(crate) fn static_name(&self) -> &'static str {
        self.details.name
    }

    /// Adds the key that the denial describes, in the form that users see.
    pub(crate) fn set_key(&mut self, encoded: String) {
        self.description.get_or_insert_default().key = Some(encoded);
    }

    /// The [`retry_after`](Denied::retry_after) of a [final](Denied::is_final) denial: 136 years. An `Instant` plus
    /// this duration does not overflow.
    pub const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

    /// The time until this call would be allowed, without further calls.
    ///
    /// It is exact if a store decided, and at most a second if a failure policy did. For a denial that
    /// [is final](Denied::is_final) it is [`NEVER`](Denied::NEVER).
    ///
    /// It is not rounded to seconds or milliseconds. For a client that can only wait for whole seconds there is
    /// [`retry_after_secs`](Denied::retry_after_secs).
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry.micros().map_or(Self::NEVER, Duration::from_micros)
    }

    /// The [`retry_after`](Denied::retry_after) in whole seconds, rounded up, and at least 1: the value of the HTTP
    /// header `Retry-After`.
    ///
    /// The part below 1 ms is dropped first. Permits come back at a whole millisecond of the store's clock, up to 1 ms
    /// after a window, and a window of 60 s is no reason for 61.
    ///
    /// For a denial that [is final](Denied::is_final) it is 4 294 967 295, the seconds of [`NEVER`](Denied::NEVER).
    /// Leave the header out then.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Decision, Key, Limiter};
    ///
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("getId"), "1/10s".parse()?);
    /// limiter.check_blocking(&key, &limit)?;
    /// if let Decision::Denied(denied) = limiter.check_blocking(&key, &limit)? {
    ///     println!("Retry-After: {}", denied.retry_after_secs());
    ///     assert!(denied.retry_after_secs() >= 1);
    /// }
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[must_use]
    pub fn retry_after_secs(&self) -> u64 {
        let retry_after = self.retry_after();
        (retry_after.as_secs() + u64::from(retry_after.subsec_millis() > 0)).max(1)
    }

    /// The [`retry_after`](Denied::retry_after) in whole milliseconds, rounded up; `None` for a denial that
    /// [is final](Denied::is_final).
    pub(crate) fn retry_after_millis(&self) -> Option<u64> {
        self.retry.micros().map(|micros| micros.div_ceil(1_000))
    }

    /// Returns `true` if no wait helps: the call costs more than the limit ever allows, or its rule [denies every
    /// call](crate::Mode::Deny).
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.retry == Retry::Never
    }

    /// Returns `true` if the key is [blocked](crate::Rule::block): by this denial, or by an earlier one. `retry_after` is the
    /// end of the block.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        matches!(self.retry, Retry::Unblocked(_))
    }
}

impl fmt::Debug for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry_after = self.retry.micros().map(Duration::from_micros);
        self.details.debug(&mut f.debug_struct("Denied")).field("retry_after", &retry_after).finish()
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { name, limit, source, .. } = self.details;
        match (source, self.retry_after_millis()) {
            (Source::Mode, _) => write!(f, "the rate limit `{name}` denies every call: its mode is `deny`"),
            (_, None) => write!(f, "the call costs more than the rate limit `{name}` of {limit} ever allows"),
            (_, Some(millis)) if self.is_blocked() => {
                let (seconds, rest) = (millis / 1000, millis % 1000);
                write!(f, "blocked by the rate limit `{name}` of {limit}: retry after {seconds}.{rest:03}s")
            }
            (Source::Policy, Some(_)) => write!(f, "the rate limit `{name}` of {limit} cannot be checked: denied"),
            (_, Some(millis)) => {
                write!(f, "rate limit `{name}` of {limit} reached: retry after {}.{:03}s", millis / 1000, millis % 1000)
            }
        }
    }
}

impl StdError for Denied {}

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
